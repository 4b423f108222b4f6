"""What a model or a program spends in its products: each time, multiplied by how often it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gemmgate.suite.compare import Rated
from gemmgate.suite.report import units
from gemmgate.suite.report.layout import Block, Column, Notes, Table, cells


def totals(family: str, rated: Sequence[Rated], selection: Mapping[str, Any], caches: Sequence[str]) -> list[Block]:
    """A line an implementation and cache state, a column a group of calls; nothing where nobody counted calls.

    An implementation has a total where it is ok on every case of the group.
    """
    present = {r.row.case for r in rated}
    groups: dict[str, dict[str, int]] = {}
    absent: set[str] = set()
    for group, calls in selection.get("made", {}).get("calls", {}).items():
        mine = {name.removeprefix(f"{family}/"): n for name, n in calls.items() if name.startswith(f"{family}/")}
        absent |= set(mine) - present
        groups[group] = {case: count for case, count in mine.items() if case in present}
    groups = {group: calls for group, calls in groups.items() if calls}
    if not groups:
        return []
    lines, without = [], []
    for cache in caches:
        here = [r.row for r in rated if r.row.cache == cache]
        for name in dict.fromkeys(row.implementation for row in here):
            times = {row.case: row.median_s for row in here if row.implementation == name and row.median_s}
            sums = [_sum(times, calls) for calls in groups.values()]
            if any(total is not None for total in sums):
                lines.append(cells((name, cache, *map(units.microseconds, sums))))
            else:
                without.append(name)
    counts = (f"{sum(calls.values())}{f' ({group})' if group else ''}" for group, calls in groups.items())
    notes = [f"Calls: {', '.join(counts)}."]
    if without:
        notes.append(f"No total for what is not ok on every case: {', '.join(dict.fromkeys(without))}.")
    if absent:
        notes.append(f"Not in this run, and so in no total: {units.counted(len(absent), 'case')}.")
    if not lines:
        return [Notes(tuple(notes))]
    headers = (f"us, {group or 'all calls'}" for group in groups)
    columns = (Column("implementation"), Column("cache"), *(Column(header, right=True) for header in headers))
    return [Table(f"{family}: medians times calls, summed", columns, tuple(lines)), Notes(tuple(notes))]


def _sum(times: Mapping[str, float], calls: Mapping[str, int]) -> float | None:
    return sum(times[case] * n for case, n in calls.items()) if set(calls) <= set(times) else None
