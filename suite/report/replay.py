"""What recorded blocks say of the gate: its false alarms, and what it finds in a single kernel."""

from __future__ import annotations

from gemmgate.suite.block_rule import QUIET_SD
from gemmgate.suite.replay import Replayed
from gemmgate.suite.report.layout import Block, Column, Notes, Table, cells
from gemmgate.suite.report.units import NONE, counted
from gemmgate.suite.resampling import GATE_CASES
from gemmgate.suite.statistics import Interval

_COLUMNS = (
    Column("slow-down of one kernel"),
    Column("came to", right=True),
    Column(f"found, sd up to {QUIET_SD:.1%}", right=True),
    Column("found, all judged", right=True),
    Column("cases", right=True),
)


def blocks(found: Replayed) -> list[Block]:
    """Where the blocks are from, false alarms with their bound, and the table of power where slow-downs were put in."""
    alarms = found.alarms
    boards = "1 board" if found.boards == 1 else f"{found.boards} boards"
    each = str(found.fewest) if found.fewest == found.most else f"{found.fewest} to {found.most}"
    lines = [
        f"{counted(found.blocks, 'block')} of {found.machine} on {boards}, method {found.method}: "
        f"{counted(found.cases, 'case')} with {each} blocks each; "
        f"{counted(found.reported, 'case')} more too noisy to judge.",
        f"Runs: {', '.join(found.runs)}.",
        f"False alarms: {alarms.alarms} of {counted(alarms.gates, 'gate')} over {GATE_CASES} unchanged cases "
        f"(95 % confidence: at most {alarms.false_alarms.high:.2%}); {alarms.unjudged} could not be judged. "
        f"A gate takes {alarms.screen_blocks / alarms.gates / GATE_CASES:.1f} blocks a case to screen and "
        f"{alarms.confirm_blocks / alarms.gates:.0f} in all to confirm what was flagged in vain.",
    ]
    if not found.power:
        return [Notes((*lines, "No slow-downs are among these blocks: `gemmgate calibrate --power` puts some in."), "")]
    rows = [
        cells(
            (
                f"{100 * one.level:g}%",
                f"{one.realised:.2%}",
                _share(one.quiet) if one.quiet else NONE,
                _share(one.every),
                f"{one.quiet_cases} quiet of {one.cases}",
            )
        )
        for one in found.power
    ]
    said = "In brackets, 95% intervals over the gates that were played on these cases."
    return [Notes(tuple(lines), ""), Table("", _COLUMNS, tuple(rows)), Notes((said,))]


def _share(interval: Interval) -> str:
    return f"{interval.estimate:.1%} [{interval.low:.1%}, {interval.high:.1%}]"
