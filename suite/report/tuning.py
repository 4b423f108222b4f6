"""A tuning as blocks: what was picked, how far it is ahead, and what a wider search would have gained."""

from __future__ import annotations

from collections.abc import Sequence

from gemmgate.suite.records import Run
from gemmgate.suite.report import units
from gemmgate.suite.report.layout import Block, Column, Notes, Table, cells
from gemmgate.suite.report.measured import where
from gemmgate.suite.statistics import geometric_mean
from gemmgate.suite.tuning.picks import Pick, picks, skipped
from gemmgate.suite.tuning.planned import SEARCH_S, Planned

GOOD = 0.01
"""What a pick may take longer than the best."""


def blocks(run: Run) -> list[Block]:
    """All of a tuning."""
    found = picks(run.rows)
    return [_table(found), Notes(tuple(_sentences(found, skipped(run.rows))), ""), where(run)]


def planned_blocks(found: Sequence[Planned], machine: str) -> list[Block]:
    """What would be searched."""
    columns = (
        Column("family", stacks=True, drop=1),
        Column("implementation"),
        Column("searches", right=True),
        Column("legal tiles", right=True),
        Column("tried", right=True),
        Column("s", right=True),
        Column("refused", wraps=True),
    )
    lines = [
        (
            one.family,
            one.implementation,
            str(one.searches),
            f"{one.fewest} to {one.most}" if one.fewest != one.most else str(one.most),
            f"to {one.tried}",
            f"{one.seconds:.0f}",
            one.refused,
        )
        for one in found
    ]
    searches, seconds = sum(one.searches for one in found), sum(one.seconds for one in found)
    said = f"{searches} searches for {machine}, about {seconds:.0f} s at {SEARCH_S} s each."
    return [Table("", columns, tuple(map(cells, lines))).without_empty_columns(), Notes((said,), "head")]


def _table(found: Sequence[Pick]) -> Table:
    columns = (
        Column("case"),
        Column("implementation", drop=2),
        Column("us", right=True),
        Column("over yardstick", right=True),
        Column("over incumbent", right=True),
        Column("tiles", right=True, drop=3),
        Column("s", right=True, drop=4),
        Column("over best", right=True),
        Column("of tiles", right=True, drop=5),
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
        units.NONE if pick.regret is None else f"{1 + pick.regret:.3f}",
        _space(pick),
        tile if row.status == "ok" else f"{row.status}: {row.detail or row.reason}",
    )


def _sentences(found: Sequence[Pick], without_time: int) -> list[str]:
    good = [pick for pick in found if pick.row.status == "ok"]
    lines = [f"{units.counted(len(good), 'pick')} of {len(found)} searches."]
    if without_time:
        lines = [
            f"{lines[0][:-1]}; {without_time} more of {len(found) + without_time} that were asked for had no time."
        ]
    for name, values in (
        ("the yardstick", [pick.ratio.estimate for pick in good if pick.ratio]),
        ("the incumbent, the tile without a search", [pick.gain.estimate for pick in good if pick.gain]),
    ):
        if values:
            lines.append(
                f"Over {name}: geometric mean {units.speedup(geometric_mean(values))}, "
                f"{units.speedup(min(values))} to {units.speedup(max(values))}."
            )
    over = [1 + pick.regret for pick in good if pick.regret is not None]
    if over:
        small = sum(ratio <= 1 + GOOD for ratio in over)
        lines.append(
            "Time of the pick over that of the best of all tiles, on samples that did not choose: "
            f"geometric mean {geometric_mean(over):.4f}, worst {max(over):.4f}, "
            f"at most {1 + GOOD} in {small} of {len(over)}."
        )
    cut = [pick for pick in good if pick.left_out]
    if cut:
        left_out, swept = sum(pick.left_out for pick in cut), sum(pick.swept for pick in good)
        lines.append(
            f"Time ended before all tiles had a turn in {units.counted(len(cut), 'case')}: "
            f"{left_out} were left out, the slowest by the model, and {swept} timed beside the picks."
        )
    return lines


def _space(pick: Pick) -> str:
    """Tiles of a wider search that were timed, and of how many where some had no turn."""
    timed, all_tiles = pick.swept + 1, pick.swept + pick.left_out + 1
    if all_tiles == 1:
        return units.NONE
    return f"{timed} of {all_tiles}" if pick.left_out else str(timed)
