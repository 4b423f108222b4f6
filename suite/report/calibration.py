"""A calibration as blocks: what the machine can do, how each case scatters, and what a gate would find."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from gemmgate.suite.block_rule import ALPHA, QUIET_SD
from gemmgate.suite.block_values import WHY_SPOILED
from gemmgate.suite.calibration import Calibration, CaseNoise
from gemmgate.suite.calibration_power import FEWEST_BLOCKS, EditFound, Found
from gemmgate.suite.errors import unknown
from gemmgate.suite.records import Limits
from gemmgate.suite.report import units
from gemmgate.suite.report.layout import Block, Column, Notes, Table, cells
from gemmgate.suite.report.measured import where
from gemmgate.suite.resampling import GATE_CASES, GATES, POWER
from gemmgate.suite.statistics import Interval

_NOISE = (
    ("case", False, 0),
    ("us", True, 0),
    ("blocks", True, 6),
    ("sd", True, 0),
    ("sd, cycles", True, 4),
    ("within", True, 5),
    ("between", True, 3),
    ("mean", True, 2),
    ("finds", True, 0),
    ("is", False, 1),
    ("notes", False, 7),
)
"""Header, whether to the right, and in which order to give way."""


PARTS = ("floors", "roofs", "noise", "power", "edits")
"""What a calibration consists of."""


def blocks(made: Calibration, parts: Sequence[str] = ()) -> list[Block]:
    """All of a calibration, or some of `PARTS`, in their order; then where it was measured."""
    for part in parts:
        if part not in PARTS:
            raise unknown("part of a calibration", part, PARTS)
    found: dict[str, Callable[[], list[Block]]] = {
        "floors": lambda: [_floors(made.limits)],
        "roofs": lambda: _roofs(made.limits),
        "noise": lambda: _noise(made),
        "power": lambda: _found(made),
        "edits": lambda: _edits(made),
    }
    return [*(block for name in PARTS if not parts or name in parts for block in found[name]()), where(made.run)]


def _floors(limits: Limits) -> Notes:
    lines = [
        f"A launch takes at least {units.microseconds(limits.launch_floor_s)} us, "
        f"two events with nothing in between {units.microseconds(limits.event_floor_s)} us; "
        f"the timer's steps are {units.significant(limits.timer_resolution_s * 1e9)} ns."
    ]
    return Notes(tuple(lines), "")


def _roofs(limits: Limits) -> list[Block]:
    rates = [
        (name, _tera(rate), _tera(limits.settled_flop_per_s.get(name)), _mhz(limits.settled_sm_clock_hz.get(name)))
        for name, rate in limits.flop_per_s.items()
    ]
    columns = (
        Column("TFLOP/s"),
        Column("fastest", right=True),
        Column("settled", right=True),
        Column("MHz", right=True),
    )
    bandwidths = [
        ("copy, read and written", _tera(limits.copy_bytes_per_s)),
        ("read alone", _tera(limits.read_bytes_per_s)),
        ("L2, read and written", _tera(limits.l2_bytes_per_s)),
        *((f"a kernel over {int(size) >> 20} MiB", _tera(rate)) for size, rate in limits.bytes_per_s_by_size.items()),
    ]
    return [
        Table("", columns, tuple(map(cells, rates))).without_empty_columns(),
        Table("", (Column("TB/s"), Column("", right=True)), tuple(map(cells, bandwidths))),
    ]


def _noise(made: Calibration) -> list[Block]:
    columns = tuple(Column(header, right=right, drop=drop) for header, right, drop in _NOISE)
    table = Table("Unchanged code, block by block", columns, tuple(cells(_line(case)) for case in made.cases))
    return [table.without_empty_columns(), Notes(tuple(_sentences(made)), "")]


def _line(case: CaseNoise) -> tuple[str, ...]:
    notes = []
    if case.power_limited:
        at = f" at {_mhz(case.sm_clock_hz)} MHz" if case.sm_clock_hz else ""
        notes.append(f"power-limited{at}" + (", judged in cycles" if case.cycles_sd is not None else ""))
    if case.kernels and case.kernels > 1:
        notes.append(f"{case.kernels} kernels")
    if case.joules:
        notes.append(f"{units.significant(case.joules * 1e3)} mJ")
    if case.two_modes:
        notes.append("two modes")
    if case.differs:
        notes.append("differs from itself")
    if case.spoiled:
        notes.append(f"{units.counted(case.spoiled, 'block')} {WHY_SPOILED}")
    return (
        case.path,
        units.microseconds(case.median_s),
        str(case.blocks),
        _percent(case.block_sd),
        _percent(case.cycles_sd),
        units.share(case.within_share),
        units.share(case.between_share),
        f"{100 * case.mean_log_ratio:+.2f}%",
        _percent(case.mde),
        case.rule.standing,
        ", ".join(notes),
    )


def _sentences(made: Calibration) -> list[str]:
    if not made.cases:
        return ["No case has two blocks, so there is nothing to say about noise."]
    sds, judged_sds = [case.block_sd for case in made.cases], [case.judged_sd for case in made.cases]
    (calm, calmer), (quiet, quieter) = (
        [sum(sd <= limit for sd in of) for limit in (0.006, 0.01)] for of in (sds, judged_sds)
    )
    others = [case.block_sd for case in made.cases[1:]]
    needs = "" if made.blocks >= FEWEST_BLOCKS else f"; it takes {FEWEST_BLOCKS} blocks"
    said = [
        f"sd is the standard deviation of a block's log-ratio: {calm} of {len(sds)} are at most 0.6%, {calmer} at "
        f"most 1%; by what a verdict takes, {quiet} and {quieter}. within and between are the shares of its variance "
        "that arise in a process and from one to the next. A verdict takes time and cycles of the clock that was read; "
        "at the power limit, which is met in more than half of the blocks, cycles alone.",
        f"finds is the smallest slow-down found with a chance of {POWER:.0%}, at the gate's block counts and with "
        f"{GATE_CASES} cases in all{needs}.",
        f"Means beyond their sampling errors come to {_percent(made.pooled_bias)} (root mean square), of what a gate "
        f"judges to {_percent(made.judged_bias)} (weighted); {sum(case.differs for case in made.cases)} of {len(sds)} "
        "differ from zero (Holm, 5%).",
    ]
    if made.run.machine.takes_turns:
        said.append(
            "The GPU admits one process at a time, so workers took turns: what arises in a process is not told apart."
        )
    if others:
        said.append(
            f"The first case has an sd of {_percent(sds[0])}, the others {_percent(statistics.median(others))}"
            f"{_of_its_kind(made)}."
        )
    if made.family_wise:
        said.append(
            f"False alarms: {round(made.family_wise.estimate * GATES)} of {GATES} gates over {GATE_CASES} cases "
            f"({_bound(made.family_wise)}), resampled from {made.family_wise_blocks} blocks a case or more; "
            f"{ALPHA:.0%} are allowed."
        )
    return said


def _of_its_kind(made: Calibration) -> str:
    """What tells a first case that is noisy by itself from one that suffers from being the first."""
    first, second = made.cases[:2]
    *_, case = first.path.split("/")
    return (
        f", and the second, of the same sizes, {_percent(second.block_sd)}" if second.path.endswith(f"/{case}") else ""
    )


def _found(made: Calibration) -> list[Block]:
    if not made.found:
        return []
    columns = (
        Column("slow-down"),
        Column("came to", right=True),
        Column(f"found, sd up to {100 * QUIET_SD:g}%", right=True),
        Column("found, all gated", right=True),
        Column("cases", right=True),
    )
    return [Table("Code slowed down on purpose", columns, tuple(cells(_power(found)) for found in made.found))]


def _edits(made: Calibration) -> list[Block]:
    if not made.edits:
        return []
    columns = (
        Column("case"),
        Column("slower by", right=True),
        Column("blocks", right=True),
        Column("found", right=True),
        Column("found after", right=True),
    )
    title = "One trip too many in the kernel's loop, in another checkout"
    note = "found after: blocks of this calibration in their order, until screen and confirmation had both said so."
    return [Table(title, columns, tuple(cells(_edit(edit)) for edit in made.edits)), Notes((note,))]


def _edit(edit: EditFound) -> tuple[str, ...]:
    after = units.counted(edit.after, "block") if edit.after else "not found"
    return (edit.path, _percent(edit.change), str(edit.blocks), f"{edit.found.estimate:.1%}", after)


def _power(found: Found) -> tuple[str, ...]:
    quiet = f"{found.quiet.estimate:.1%}" if found.quiet else units.NONE
    cases = f"{found.quiet_cases} quiet of {found.cases}"
    return (f"{100 * found.level:g}%", _percent(found.realised), quiet, f"{found.gated.estimate:.1%}", cases)


def _bound(interval: Interval) -> str:
    return f"{interval.confidence:.0%} confidence: at most {100 * interval.high:.2g}%"


def _percent(value: float | None) -> str:
    return units.NONE if value is None else f"{100 * value:.2f}%"


def _tera(rate: float | None) -> str:
    return units.significant(rate / 1e12) if rate else units.NONE


def _mhz(clock_hz: float | None) -> str:
    return f"{clock_hz / 1e6:.0f}" if clock_hz else units.NONE
