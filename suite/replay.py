"""The gate's rule on recorded blocks: how often it rings in vain, and which slow-downs of a single kernel it finds.

Pure. Gates are played over `GATE_CASES` cases drawn from the recorded ones, each block a recorded deviation with either
sign. For power, one of them in each gate is slowed down by what injected work added to recorded blocks of its own.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gemmgate.suite.block_rule import QUIET_SD
from gemmgate.suite.block_values import BlockValue, values
from gemmgate.suite.errors import UsageError
from gemmgate.suite.looks import Noise, noise_of
from gemmgate.suite.records import Run
from gemmgate.suite.rehearsal import Rehearsed, from_recorded, rehearse
from gemmgate.suite.resampling import GATE_CASES, draw
from gemmgate.suite.stages import RELEASE
from gemmgate.suite.statistics import Floats, Interval, share_interval

GATES = 1000
"""Gates of unchanged code."""
GATES_A_CASE = 40
"""Gates in which one case is slowed by one amount."""
FEWEST = 9
"""Blocks of a case below which it is left out; of slowed ones, `FEWEST_SLOWED`."""
FEWEST_SLOWED = 6
_SEED = 20250331


@dataclass(frozen=True)
class Power:
    """Of a slow-down in one kernel among `GATE_CASES`: what it came to, and how often it was found.

    `quiet` counts cases with a block standard deviation up to `QUIET_SD`, None without any.
    """

    level: float
    realised: float
    quiet: Interval | None
    every: Interval
    quiet_cases: int
    cases: int


@dataclass(frozen=True)
class Replayed:
    """`blocks` are pairs of launches, over all runs; each has some of the `cases`, `fewest` to `most` blocks a case.

    `reported` cases are too noisy or have two modes: a gate judges none of them, nor are they drawn here.
    """

    runs: tuple[str, ...]
    machine: str
    boards: int
    method: int
    blocks: int
    cases: int
    fewest: int
    most: int
    reported: int
    alarms: Rehearsed
    power: tuple[Power, ...]


def replay(runs: Sequence[Run], gates: int = GATES, gates_a_case: int = GATES_A_CASE) -> Replayed:
    """What the recorded blocks of unchanged and of slowed code say of the gate.

    Raises `UsageError` where the runs are of several machines or methods, or have too few blocks.
    """
    kinds = {(run.machine.key, run.method) for run in runs}
    if len(kinds) != 1:
        said = ", ".join(f"{run.id} ({run.machine.key}, method {run.method})" for run in runs) or "none"
        raise UsageError(f"Blocks are replayed of one machine and one method, and these runs are: {said}.")
    plain, slowed = _recorded(runs)
    noise = {path: noise_of(x, "recorded") for path, x in plain.items() if len(x) >= FEWEST}
    drawn = {path: np.array(plain[path]) for path, one in noise.items() if one.rule.standing != "reported"}
    source = np.random.default_rng(_SEED)
    alarms = from_recorded(list(drawn.values()), gates, GATE_CASES, source)
    if alarms is None:
        raise UsageError(f"No case has {FEWEST} blocks that can be judged: `gemmgate calibrate` records more.")
    levels = sorted({level for path in drawn for level in slowed[path]})
    ((machine, method),) = kinds
    lengths = [len(x) for x in drawn.values()]
    return Replayed(
        tuple(run.id for run in runs),
        machine,
        len({row.board for run in runs for row in run.rows}),
        method,
        len({(run.id, value.block) for run in runs for value in values(run.rows) if value.block < RELEASE}),
        len(drawn),
        min(lengths),
        max(lengths),
        len(noise) - len(drawn),
        alarms,
        tuple(
            found
            for level in levels
            if (found := _power(level, drawn, slowed, noise, gates_a_case, source)) is not None
        ),
    )


def _recorded(runs: Sequence[Run]) -> tuple[Mapping[str, list[float]], Mapping[str, Mapping[float, list[float]]]]:
    """By item: log-ratios of unchanged code, and by slow-down what it added to those of the same launches."""
    plain: defaultdict[str, list[float]] = defaultdict(list)
    added: defaultdict[str, defaultdict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        kept = [value for value in values(run.rows) if not (value.spoiled or value.edited) and value.block < RELEASE]
        same: dict[tuple[str, int], BlockValue] = {(v.path, v.block): v for v in kept if v.is_plain}
        for value in same.values():
            plain[value.path].append(value.log_ratio)
        for value in kept:
            if value.level and (value.path, value.block) in same:
                added[value.path][value.level].append(value.log_ratio - same[value.path, value.block].log_ratio)
    return plain, added


def _power(
    level: float,
    drawn: Mapping[str, Floats],
    slowed: Mapping[str, Mapping[float, list[float]]],
    noise: Mapping[str, Noise],
    gates: int,
    source: np.random.Generator,
) -> Power | None:
    found: dict[str, int] = {}
    realised: list[float] = []
    paths = list(drawn)
    for path in paths:
        extra = slowed[path].get(level, ())
        if len(extra) < FEWEST_SLOWED:
            continue
        realised += extra
        others = [paths[index] for index in source.integers(len(paths), size=GATE_CASES - 1)]
        cases = [path, *others]
        steps = np.array(extra) - math.log1p(level)  # `rehearse` adds that much to all blocks of the case

        def take(case: int, blocks: int, cases: list[str] = cases, steps: Floats = steps) -> Floats:
            x = draw(drawn[cases[case]], (1, blocks), 0.0, source)[0, :, 0]
            return x if case else x + source.choice(steps, size=blocks)

        changes = [level] + [0.0] * len(others)
        found[path] = rehearse(take, [noise[one] for one in cases], changes, gates).found
    if not found:
        return None
    quiet = [path for path in found if noise[path].sd <= QUIET_SD]
    return Power(
        level,
        math.expm1(statistics.median(realised)),
        share_interval(sum(found[path] for path in quiet), gates * len(quiet)) if quiet else None,
        share_interval(sum(found.values()), gates * len(found)),
        len(quiet),
        len(found),
    )
