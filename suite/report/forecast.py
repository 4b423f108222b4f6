"""What a gate will take, stage by stage."""

from __future__ import annotations

from gemmgate.suite.forecast import Forecast
from gemmgate.suite.looks import LOOKS, SCREEN_STEPS
from gemmgate.suite.report.layout import Block, Column, Notes, Table, cells
from gemmgate.suite.report.units import plain

_COLUMNS = (
    Column("stage"),
    Column("items", right=True),
    Column("blocks", right=True),
    Column("visits", right=True),
    Column("seconds", right=True),
)


def blocks(found: Forecast, seconds: float | None) -> list[Block]:
    """The stages with their sum, what a changed item adds, where the figures are from, and whether `seconds` do."""
    rows = [
        cells(
            (
                stage.name,
                f"{stage.items:.0f}" if stage.items >= 1 or not stage.items else f"{stage.items:.1f}",
                stage.blocks,
                str(stage.visits) if stage.visits else "",
                f"{stage.seconds:.0f}",
            )
        )
        for stage in found.stages
    ]
    total = cells(("all, if nothing changed", "", "", "", f"{found.total_s:.0f}"), "head")
    costs = found.costs
    least_s, most_s = found.changed_s
    lines = [
        f"An item takes {costs.survey_s:.2f} s to survey and {costs.item_s:.2f} s a block, as on {costs.source}.",
    ]
    if found.unknown:
        known, all_ = SCREEN_STEPS[0][0], SCREEN_STEPS[1][0]
        lines.append(
            f"The noise of {found.unknown} items is not known: they have {all_} blocks at least, where {known} may do; "
            f"the last {all_ - known} of these, which calibrating them may spare, take "
            f"{found.unknown * (all_ - known) * costs.item_s:.0f} s."
        )
    if most_s:
        lines.append(f"Each item that changed adds {least_s:.0f} to {most_s:.0f} s.")
    if costs.turns:
        least_s, most_s = (costs.block_s * look for look in (LOOKS[0], LOOKS[-1]))
        lines.append(
            f"The GPU admits one process at a time: {costs.turns} take turns in a block, {costs.block_s:.1f} s beside "
            f"its items, so the first item that changed adds {least_s:.0f} to {most_s:.0f} s more."
        )
    if seconds is not None:
        said = sentence(found, seconds)
        lines.append(said or f"--seconds {plain(seconds)} are enough.")
    return [Table("", _COLUMNS, (*rows, total)), Notes(tuple(lines), "")]


def sentence(found: Forecast, seconds: float) -> str:
    """What is wrong with a budget of `seconds`; empty where it does."""
    if found.total_s <= seconds:
        return ""
    return (
        f"About {found.total_s:.0f} s are needed, and --seconds gives {plain(seconds)}: what is not reached could not "
        "be judged. Give more, or select fewer items."
    )
