"""What stands beside the times of a family: the same calls timed in other ways, and on other distributions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gemmgate.suite.compare import Rated
from gemmgate.suite.records import BESIDE, CROSS_CHECK, SINGLY, Row
from gemmgate.suite.report import units
from gemmgate.suite.report.layout import Block, Cell, Column, Notes, Table, cells
from gemmgate.suite.report.means import mean_text

_USUAL_DATA = "normal"
AGREES, UNEXPLAINED = "agrees", "unexplained"
"""Reasons of a cross-check's rows that are no explanation of a difference."""


def without_checks(rated: Sequence[Rated]) -> list[Rated]:
    """The rows that count: timed by the timer of their kind, on the usual distribution where there are several."""
    counted = [r for r in rated if r.row.phase not in BESIDE]
    present = list(dict.fromkeys(r.row.data for r in counted))
    usual = _USUAL_DATA if _USUAL_DATA in present else next(iter(present), "")
    return [r for r in counted if r.row.data == usual]


def cross_checks(rated: Sequence[Rated]) -> list[Block]:
    """A line for each call that was timed in several ways, and how many of the differences are explained."""
    crossed = [r for r in rated if r.row.phase == CROSS_CHECK]
    if not crossed:
        return []
    names = list(dict.fromkeys(r.row.timer for r in crossed))
    counted = {_place(r): r for r in rated if r.row.phase not in BESIDE}
    by_place: dict[tuple[str, ...], dict[str, Rated]] = {}
    for r in crossed:
        by_place.setdefault(_place(r), {})[r.row.timer] = r
    rows = []
    for place, found in by_place.items():
        own = counted.get(place)
        line = [*cells(place[:3]), Cell(units.microseconds(own.row.median_s) if own else units.NONE)]
        line += [Cell(_time(found.get(name))) for name in names]
        line.append(Cell(str(next((r.row.kernels for r in found.values() if r.row.kernels is not None), ""))))
        said = [r.row.detail for r in found.values() if r.row.detail and r.row.reason != "agrees"]
        is_bad = any("unexplained" in r.row.marks or r.row.status != "ok" for r in found.values())
        rows.append((*line, Cell("; ".join(said), "bad" if is_bad else "dim")))
    columns = (
        *(Column(name) for name in ("case", "implementation", "cache")),
        Column("us", right=True),
        *(Column(f"{name} us", right=True) for name in names),
        Column("kernels", right=True),
        Column("why they differ", wraps=True),
    )
    notes = Notes((_summary([r.row for r in crossed]),))
    return [Table("Cross-check of the timers", columns, tuple(rows)), notes]


def _summary(rows: Sequence[Row]) -> str:
    """`Other timers: 20 agree, 15 of 16 disagreements explained (12 launch gap, 3 overlap), 1 unexplained, ...`"""
    timed = [row for row in rows if row.status == "ok"]
    reasons = Counter(row.reason for row in timed if row.reason)
    agree, unexplained = reasons.pop(AGREES, 0), reasons.pop(UNEXPLAINED, 0)
    explained = sum(reasons.values())
    listed = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in reasons.most_common())
    said = [f"{agree} agree with it", f"{explained} of {explained + unexplained} disagreements explained"]
    said[-1] += f" ({listed})" if listed else ""
    said += [f"{unexplained} unexplained"] if unexplained else []
    alone = sum(not row.reason for row in timed)
    said += [f"{alone} without a time to compare with"] if alone else []
    failed = Counter(row.reason or row.status for row in rows if row.status != "ok")
    said += [f"{count} not timed ({reason.replace('_', ' ')})" for reason, count in failed.most_common()]
    return f"Other timers against the one that counts: {', '.join(said)}."


def timed_singly(rated: Sequence[Rated]) -> list[Block]:
    """What the ratios come to where calls are timed one by one, beside what they come to by the method, for each name.

    Both means are of the cases that have both.
    """
    single = {_place(r): r for r in rated if r.row.phase == SINGLY and r.ratio}
    if not single:
        return []
    counted = {_place(r): r for r in rated if r.row.phase not in BESIDE and r.ratio and _place(r) in single}
    rows = []
    for name in dict.fromkeys(r.row.implementation for r in counted.values() if r.row.implementation != r.yardstick):
        mine = [place for place, r in counted.items() if r.row.implementation == name]
        rows.append(cells((name, *(mean_text([found[place] for place in mine]) for found in (single, counted)))))
    columns = (Column("implementation"), Column("timed singly", right=True), Column("by the method", right=True))
    note = (
        "Timed singly: two events around each call, the cache emptied by a write before it. Launch and write-back are "
        "in it, so no other number here rests on it."
    )
    title = "Geometric mean of the ratio (of so many cases) by calls timed singly"
    return [Table(title, columns, tuple(rows)), Notes((note,))] if rows else []


def by_data(rated: Sequence[Rated]) -> list[Block]:
    """Time and error by distribution of the inputs, where there are several."""
    counted = [r for r in rated if r.row.phase not in BESIDE and r.row.kind == "time"]
    words = list(dict.fromkeys(r.row.data for r in counted))
    if len(words) < 2:
        return []
    by_place: dict[tuple[str, ...], dict[str, Rated]] = {}
    for r in counted:
        by_place.setdefault(_place(r)[:3], {})[r.row.data] = r
    base = _USUAL_DATA if _USUAL_DATA in words else words[0]
    others = [word for word in words if word != base]
    rows = []
    for place, found in by_place.items():
        if not any(r.row.status == "ok" for r in found.values()):
            continue
        line = [*place, _time(found.get(base)), _error(found.get(base))]
        for word in others:
            line += [_against(found.get(word), found.get(base)), _error(found.get(word))]
        rows.append(cells(line))
    columns = [Column(name) for name in ("case", "implementation", "cache")]
    columns += [Column(f"{base} us", right=True), Column("error", right=True)]
    for word in others:
        columns += [Column(f"{word} us", right=True), Column("error", right=True)]
    note = f"In brackets the change of the time against {base}. error: against float64, relative."
    return [Table("By distribution of the inputs", tuple(columns), tuple(rows)), Notes((note,))]


def _place(r: Rated) -> tuple[str, ...]:
    return (r.row.case, r.row.implementation, r.row.cache, r.row.data)


def _time(r: Rated | None) -> str:
    if r is None:
        return units.NONE
    return units.microseconds(r.row.median_s) if r.row.status == "ok" else r.row.reason or r.row.status


def _against(r: Rated | None, base: Rated | None) -> str:
    if r is None or base is None or not r.row.median_s or not base.row.median_s:
        return _time(r)
    return f"{_time(r)} ({r.row.median_s / base.row.median_s - 1:+.1%})"


def _error(r: Rated | None) -> str:
    return units.NONE if r is None or r.row.error is None else f"{r.row.error:.1e}"
