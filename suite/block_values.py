"""What a block says: two sides' rows of one case, as the log-ratio that inference counts as one observation.

Pure. A block's rows come in pairs that share a `visit`; their `phase` says which block, which side and,
where a slow-down was put in on purpose, how large it is: `block 7 baseline`, `block 7 candidate +1%`,
`block 7 candidate edited` where the candidate's code has a known edit.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gemmgate.suite.records import STATES_APART, Row

BASELINE, CANDIDATE = "baseline", "candidate"
Measure = Literal["time", "cycles"]
SPOILED = ("throttled", "shared")
"""Marks of a block that says nothing about the code: it is measured again, and never averaged."""
WHY_SPOILED = "throttled, shared or launched in two states"
IN_TURNS = "in_turns"
"""Mark of a block whose workers held the device one after the other: an item's outer visits are of two processes."""
_EDITED = " edited"
_FARTHEST = 0.05
"""Share of their median that replays count for at most: places of a workspace are 2 % apart, stragglers more."""
_PHASE = re.compile(rf"block (\d+) (baseline|candidate)(?: \+([\d.]+)%)?(?:{_EDITED})?")


@dataclass(frozen=True)
class BlockValue:
    """One implementation of one case in one block. `log_ratio` is log(candidate / baseline): above 0 is slower.

    `cycles_log_ratio` is the same in cycles of the SM clock. `within` is a contrast of the four visits
    that has the variance which visits in the same two processes give to `log_ratio`, whatever the code
    and the processes; a linear drift cancels in it. `level` is the slow-down that was put in, and `edited`
    says that the candidate's code has a known edit; of those there is no contrast, nor of blocks in turns.
    """

    path: str
    block: int
    level: float
    log_ratio: float
    cycles_log_ratio: float | None
    within: float | None
    baseline: Row
    candidate: Row
    edited: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the candidate's code is what its checkout says."""
        return not (self.level or self.edited)

    @property
    def in_cycles(self) -> float:
        """`cycles_log_ratio`, NaN where no clock was read."""
        return math.nan if self.cycles_log_ratio is None else self.cycles_log_ratio

    @property
    def marks(self) -> tuple[str, ...]:
        return tuple(sorted({*self.baseline.marks, *self.candidate.marks}))

    @property
    def spoiled(self) -> bool:
        """Whether the board was disturbed, or the two processes launched in different states."""
        return any(mark in SPOILED for mark in self.marks) or self._is_launched_apart

    @property
    def _is_launched_apart(self) -> bool:
        """Whether nodes of the two sides' graphs show two states; at the power limit they show the clock."""
        nodes_s = [row.node_s for row in (self.baseline, self.candidate) if row.node_s]
        if len(nodes_s) < 2 or "power_limited" in self.marks:
            return False
        return min(nodes_s) < (1 - STATES_APART) * max(nodes_s)


def phase_of(block: int, side: str, level: float = 0.0, *, edited: bool = False) -> str:
    """The `phase` of a row of a block."""
    return f"block {block} {side}" + (f" +{100 * level:g}%" if level else "") + (_EDITED if edited else "")


def read_phase(phase: str) -> tuple[int, str, float] | None:
    """Block, side and level of a `phase`; None where it is of no block."""
    found = _PHASE.fullmatch(phase)
    return (int(found[1]), found[2], float(found[3] or 0) / 100) if found else None


def values(rows: Iterable[Row]) -> list[BlockValue]:
    """The pairs among the rows that have a time on both sides. Of what was measured again the newest counts."""
    pairs: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        read = read_phase(row.phase)
        if read is not None and row.status == "ok":
            pairs[row.visit][read[1]] = row
    made = [value_of(pair[BASELINE], pair[CANDIDATE]) for pair in pairs.values() if len(pair) == 2]
    return list({(value.path, value.block, value.level, value.edited): value for value in made}.values())


def value_of(baseline: Row, candidate: Row) -> BlockValue:
    """The value of two rows with the same `visit`."""
    read = read_phase(candidate.phase)
    if read is None or not (baseline.samples_s and candidate.samples_s):
        raise ValueError(f"Rows {baseline.path} '{baseline.phase}' and '{candidate.phase}' are no block.")
    log_ratio = math.log(typical_s(candidate.samples_s) / typical_s(baseline.samples_s))
    edited = candidate.phase.endswith(_EDITED)
    has_contrast = not (read[2] or edited or IN_TURNS in candidate.marks)
    clocks = baseline.sm_clock_hz, candidate.sm_clock_hz
    return BlockValue(
        path=candidate.path,
        block=read[0],
        level=read[2],
        log_ratio=log_ratio,
        cycles_log_ratio=log_ratio + math.log(clocks[1] / clocks[0]) if clocks[0] and clocks[1] else None,
        within=_within(baseline, candidate, mirrored=is_mirrored(read[0])) if has_contrast else None,
        baseline=baseline,
        candidate=candidate,
        edited=edited,
    )


def judged(found: Sequence[BlockValue]) -> tuple[list[float], list[float] | None]:
    """What the rule looks at: log-ratios, and those in cycles where both have to agree. Spoiled blocks do not count."""
    columns = log_ratios(found, judged_by(found))
    return columns[0], columns[1] if len(columns) > 1 else None


def judged_by(found: Sequence[BlockValue]) -> tuple[Measure, ...]:
    """Time and cycles where the clock was read; at the power limit cycles alone, for there a board chooses its clock
    from one moment to the next; time alone where there is no clock.
    """
    if any(value.cycles_log_ratio is None for value in found if not value.spoiled):
        return ("time",)
    return ("cycles",) if is_power_limited(found) else ("time", "cycles")


def is_power_limited(found: Sequence[BlockValue]) -> bool:
    """Whether more than half of the blocks were at the power limit."""
    kept = [value for value in found if not value.spoiled]
    return 2 * sum("power_limited" in value.marks for value in kept) > len(kept)


def log_ratios(found: Iterable[BlockValue], measures: Iterable[Measure]) -> list[list[float]]:
    """Those of the blocks that are not spoiled, by measure; NaN where there was no clock."""
    kept = [value for value in found if not value.spoiled]
    return [[value.log_ratio if measure == "time" else value.in_cycles for value in kept] for measure in measures]


def typical_s(samples_s: Sequence[float]) -> float:
    """The mean of replays, each moved to within `_FARTHEST` of their median.

    Replays of a library differ by where its workspace lies, in two groups, all of which count: a median would go with
    the larger group, and a trimmed mean towards it.
    """
    middle = statistics.median(samples_s)
    least, most = middle * (1 - _FARTHEST), middle * (1 + _FARTHEST)
    return statistics.fmean(min(max(seconds, least), most) for seconds in samples_s)


def is_mirrored(block: int) -> bool:
    """Whether a block goes B A A B instead of A B B A."""
    return block % 2 == 1


def _within(baseline: Row, candidate: Row, *, mirrored: bool) -> float | None:
    """Visits stand at times 0 1 2 3, outer ones of one side and inner ones of the other.

    Outer difference minus three times the inner one is free of a linear drift and has twenty times the
    variance of a visit; a block's value, half the sum of two visits minus half that of two others, has it once.
    """
    outer, inner = (candidate, baseline) if mirrored else (baseline, candidate)
    steps = []
    for row in (outer, inner):
        half = len(row.samples_s) // 2
        if half == 0:
            return None
        first, second = (typical_s(visit) for visit in (row.samples_s[:half], row.samples_s[half:]))
        steps.append(math.log(second / first))
    return (steps[0] - 3 * steps[1]) / math.sqrt(20)
