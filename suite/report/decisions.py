"""What errors do to what an output is for, where a family says so."""

from __future__ import annotations

from collections.abc import Sequence

from gemmgate.suite.compare import Rated
from gemmgate.suite.report import units
from gemmgate.suite.report.layout import Block, Column, Table, cells


def decisions(rated: Sequence[Rated]) -> list[Block]:
    """A line for each implementation on each case, the family's numbers beside the error; nothing without any."""
    found = {(r.row.case, r.row.implementation, r.row.data): r.row for r in rated if r.row.decision}
    if not found:
        return []
    names = list(dict.fromkeys(name for row in found.values() for name in row.decision or ()))
    columns = [Column("case"), Column("implementation"), Column("error", right=True)]
    columns += [Column(name, right=True) for name in names]
    rows = []
    for (case, implementation, _), row in found.items():
        numbers = [_said((row.decision or {}).get(name)) for name in names]
        rows.append(cells((case, implementation, units.NONE if row.error is None else f"{row.error:.1e}", *numbers)))
    return [Table("Decision: what the error does", tuple(columns), tuple(rows))]


def _said(value: float | None) -> str:
    """Shares with enough digits that one token of thousands shows."""
    return units.NONE if value is None else f"{value:.4f}"
