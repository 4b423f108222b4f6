"""Steps of series as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gemmgate.suite.causes import Found
from gemmgate.suite.report.layout import Block, Cell, Column, Notes, Style, Table, cells
from gemmgate.suite.report.rows import SCHEMA, finite
from gemmgate.suite.report.units import counted
from gemmgate.suite.series import Place

Confirmed = Mapping[tuple[Place, str], str]
"""What paired blocks said of a step, by its series and commit."""
_HEADERS = ("commit", "after", "series", "conditions", "machine", "change", "likely", "evidence", "confirmed")


def blocks(found: Sequence[Found], series: int, confirmed: Confirmed) -> list[Block]:
    """A line a step, then what the steps come to. `confirmed` holds what was asked of paired blocks."""
    columns = tuple(Column(name, right=name == "change", wraps=name == "evidence") for name in _HEADERS)
    rows = tuple(_row(step, confirmed.get(step.key, "")) for step in found)
    counts: dict[str, int] = {}
    for step in found:
        counts[step.cause.what] = counts.get(step.cause.what, 0) + 1
    said = ", ".join(f"{count} {what}" for what, count in counts.items())
    summary = f"{counted(len(found), 'step')} in {series} series{f': {said}' if said else ''}."
    table: list[Block] = [Table("", columns, rows).without_empty_columns()] if rows else []
    return [*table, Notes((summary,), "head")]


def steps_json(found: Sequence[Found], confirmed: Confirmed) -> dict[str, Any]:
    """`{"schema": 1, "steps": [...]}`, the newest first."""
    steps = [
        {
            **{name: getattr(step.place, name) for name in Place.__dataclass_fields__},
            "commit": step.after.commit,
            "after_commit": step.before.commit,
            "before": step.before.value,
            "after": step.after.value,
            "ratio": step.ratio,
            "likely": step.cause.what,
            "evidence": step.cause.sentence,
            "confirmed": confirmed.get(step.key),
        }
        for step in found
    ]
    made: dict[str, Any] = finite({"schema": SCHEMA, "steps": steps})
    return made


def _row(step: Found, confirmed: str) -> tuple[Cell, ...]:
    place, worse = step.place, step.ratio > 1
    style: Style = "loss" if worse else "win"
    quantity = "" if place.quantity == "seconds" else f" {place.quantity}"
    before = cells((step.after.commit[:10], step.before.commit[:10], f"{_path(place)}{quantity}"))
    where = cells((place.conditions, place.machine))
    change = Cell(f"{step.ratio - 1:+.1%}", style)
    return (*before, *where, change, *cells((step.cause.what, step.cause.sentence, confirmed)))


def _path(place: Place) -> str:
    return f"{place.family}/{place.implementation}/{place.case}"
