"""Two sides of a call as tables: what differs first, what is the same in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gemmgate.suite.anatomy import Difference
from gemmgate.suite.report.layout import Block, Cell, Column, Notes, Style, Table, cells
from gemmgate.suite.report.rows import SCHEMA


def blocks(title: str, names: tuple[str, str], found: Sequence[Difference]) -> list[Block]:
    """A table of what differs, and a line that names what does not."""
    differing = [one for one in found if not one.is_equal]
    same = [one for one in found if one.is_equal]
    columns = (Column("kernel"), Column("what"), *(Column(name, wraps=True) for name in names))
    style: Style = "head"
    rows = tuple((*cells((one.kernel, one.what)), Cell(one.before), Cell(one.after, style)) for one in differing)
    made: list[Block] = []
    if rows:
        made.append(Table(title, columns, rows).without_empty_columns())
    said = ", ".join(f"{f'{one.kernel}: ' if one.kernel else ''}{one.what} {one.before}" for one in same)
    lines = [f"{title}: nothing differs."] if not rows else []
    return [*made, Notes((*lines, *([f"The same: {said}."] if said else [])))]


def differences_json(names: tuple[str, str], parts: Iterable[tuple[str, Sequence[Difference]]]) -> dict[str, Any]:
    """`{"schema": 1, "sides": [...], "recorded": [...], "code": [...]}`."""
    return {
        "schema": SCHEMA,
        "sides": names,
        **{
            part: [{"kernel": one.kernel, "what": one.what, "before": one.before, "after": one.after} for one in found]
            for part, found in parts
        },
    }
