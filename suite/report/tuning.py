"""A tuning as blocks: what was picked, how far it is ahead, and what a wider search would have gained."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from gemmgate.suite.records import Run
from gemmgate.suite.report import units
from gemmgate.suite.report.layout import Block, Column, Notes, Table, cells
from gemmgate.suite.report.measured import where
from gemmgate.suite.statistics import geometric_mean
from gemmgate.suite.tuning.picks import Pick, picks

GOOD = 0.01
"""A regret that is small enough."""


def blocks(run: Run) -> list[Block]:
    """All of a tuning."""
    found = picks(run.rows)
    return [_table(found), Notes(tuple(_sentences(found)), ""), where(run)]


def _table(found: Sequence[Pick]) -> Table:
    columns = (
        Column("case"),
        Column("implementation", drop=2),
        Column("us", right=True),
        Column("over yardstick", right=True),
        Column("over rule", right=True),
        Column("tiles", right=True, drop=3),
        Column("s", right=True, drop=4),
        Column("regret", right=True),
        Column("tile", wraps=True, drop=1),
    )
    return Table("", columns, tuple(cells(_line(pick)) for pick in found)).without_empty_columns()


def _line(pick: Pick) -> tuple[str, ...]:
    row = pick.row
    ahead = [f"{units.speedup(r.estimate)} {units.plus_minus(r)}" if r else units.NONE for r in (pick.ratio, pick.gain)]
    tile = " ".join(f"{name}={value}" for name, value in (row.tile or {}).items())
    return (
        row.case,
        row.implementation,
        units.microseconds(row.median_s),
        *ahead,
        str(len(row.screened_s or {})),
        units.significant(row.measure_s, 2) if row.measure_s else units.NONE,
        units.NONE if pick.regret is None else f"{pick.regret:+.1%}",
        tile if row.status == "ok" else f"{row.status}: {row.detail or row.reason}",
    )


def _sentences(found: Sequence[Pick]) -> list[str]:
    good = [pick for pick in found if pick.row.status == "ok"]
    lines = [f"{units.counted(len(good), 'pick')} of {len(found)} searches."]
    for name, values in (
        ("the yardstick", [pick.ratio.estimate for pick in good if pick.ratio]),
        ("the tile without a search", [pick.gain.estimate for pick in good if pick.gain]),
    ):
        if values:
            lines.append(
                f"Over {name}: geometric mean {units.speedup(geometric_mean(values))}, "
                f"{units.speedup(min(values))} to {units.speedup(max(values))}."
            )
    regrets = [pick.regret for pick in good if pick.regret is not None]
    if regrets:
        small = sum(regret <= GOOD for regret in regrets)
        lines.append(
            f"Regret against every legal tile, on samples that did not choose: mean {statistics.fmean(regrets):.2%}, "
            f"worst {max(regrets):.2%}, at most {GOOD:.0%} in {small} of {len(regrets)}."
        )
    return lines
