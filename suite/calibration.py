"""From blocks of unchanged code, and of code slowed down on purpose, to what this machine can tell.

Pure. What the gate would do is not derived from a normal distribution but found by resampling the blocks
that were measured, with the gate's own rule.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import stdtr

from gemmgate.suite.block_rule import Rule, rule_for
from gemmgate.suite.block_values import BlockValue, Measure, is_power_limited, judged_by, values
from gemmgate.suite.calibration_power import (
    FEWEST_BLOCKS,
    EditFound,
    Found,
    columns_of,
    found_by_level,
    found_edits,
    largest_sd,
)
from gemmgate.suite.records import Limits, Run
from gemmgate.suite.resampling import GATE_CASES, false_alarms, flagged_share, smallest_found
from gemmgate.suite.statistics import Floats, Interval, holm, summarise

BIAS_ALPHA = 0.05
_SEED = 20250331
_LEAST_ERROR = 1e-12
"""A millionth, squared: blocks without any scatter are none of a clock, and get no weight beyond this."""


@dataclass(frozen=True)
class CaseNoise:
    """One implementation of one case with unchanged code. Shares are of the variance of the block log-ratio.

    `cycles_sd` is the block standard deviation in cycles of the SM clock, `judged_sd` the larger one of those that
    the rule looks at. `mde` is the smallest slow-down found with a chance of `POWER`, as a share of the time;
    None below `FEWEST_BLOCKS`. `differs` says that its mean is not zero, though the code is the same.
    `spoiled` blocks count for nothing.
    """

    path: str
    median_s: float
    blocks: int
    spoiled: int
    block_sd: float
    cycles_sd: float | None
    judged_sd: float
    within_share: float | None
    mean_log_ratio: float
    p_differs: float
    differs: bool
    rule: Rule
    two_modes: bool
    mde: float | None
    power_limited: bool
    kernels: int | None
    joules: float | None
    sm_clock_hz: float | None

    @property
    def between_share(self) -> float | None:
        return None if self.within_share is None else 1 - self.within_share


@dataclass(frozen=True)
class Calibration:
    """What a machine's blocks say. `pooled_bias` is that of all cases in time; `judged_bias`, which gates are resampled
    with, that of what a gate judges, in what it is judged by, each case with the weight that its error allows.
    `family_wise` is the share of gates over `GATE_CASES` cases with a false alarm.
    """

    run: Run
    cases: tuple[CaseNoise, ...]
    blocks: int
    pooled_bias: float
    judged_bias: float
    family_wise: Interval | None
    family_wise_blocks: int
    found: tuple[Found, ...]
    edits: tuple[EditFound, ...] = ()

    @property
    def limits(self) -> Limits:
        return self.run.limits


def calibration(run: Run) -> Calibration:
    """Everything that follows from the rows of a calibration."""
    by_path: dict[str, list[BlockValue]] = defaultdict(list)
    for value in values(run.rows):
        by_path[value.path].append(value)
    plain = {path: [value for value in found if value.is_plain] for path, found in by_path.items()}
    plain = {path: found for path, found in plain.items() if sum(not value.spoiled for value in found) >= 2}
    kept = {path: np.array([value.log_ratio for value in found if not value.spoiled]) for path, found in plain.items()}
    measures = {path: _measures(found, by_path[path]) for path, found in plain.items()}
    series = {path: columns_of(found, measures[path]) for path, found in plain.items()}
    known = {path: x for path, x in series.items() if len(x) >= FEWEST_BLOCKS}
    modes = {path for path, x in series.items() if "two_modes" in summarise(np.exp(x[:, 0])).marks}
    rules = {path: _rule(x, two_modes=path in modes) for path, x in series.items()}
    source = np.random.default_rng(_SEED)
    gated = {path: measures[path] for path in known if rules[path].standing != "reported"}
    # What is too noisy to judge rings in no gate, and its mean is known too badly to be put into others.
    bias = _pooled_bias([column for path in gated for column in known[path].T], weighted=True)
    flagged = {path: flagged_share(x, rules[path], bias, source) for path, x in known.items()}
    beside = round((GATE_CASES - 1) * statistics.fmean(flagged[path] for path in gated)) if gated else 0
    p = [_p_of_mean(x) for x in kept.values()]
    differs = holm(p, BIAS_ALPHA)
    cases = tuple(
        _case(
            found,
            kept[path],
            series[path],
            rules[path],
            path in modes,
            p_differs,
            bool(is_other),
            smallest_found(known[path], rules[path], beside, source) if path in known else None,
        )
        for (path, found), p_differs, is_other in zip(plain.items(), p, differs, strict=True)
    )
    return Calibration(
        run,
        cases,
        max((len(x) for x in kept.values()), default=0),
        _pooled_bias(list(kept.values())),
        bias,
        false_alarms([known[path] for path in gated], [rules[path] for path in gated], bias, source),
        min((len(known[path]) for path in gated), default=0),
        found_by_level(by_path, rules, gated, series, beside, bias, source),
        found_edits(by_path, rules, gated, beside, source),
    )


def calibration_json(made: Calibration) -> dict[str, Any]:
    """The public form of a calibration: plain JSON values."""
    limits = made.limits
    return {
        "machine": made.run.machine.key,
        "blocks": made.blocks,
        "roofs": {
            "bytes_per_s": limits.bytes_per_s,
            "copy_bytes_per_s": limits.copy_bytes_per_s,
            "read_bytes_per_s": limits.read_bytes_per_s,
            "l2_bytes_per_s": limits.l2_bytes_per_s,
            "bytes_per_s_by_size": dict(limits.bytes_per_s_by_size),
            "flop_per_s": dict(limits.flop_per_s),
            "settled_flop_per_s": dict(limits.settled_flop_per_s),
            "settled_sm_clock_hz": dict(limits.settled_sm_clock_hz),
            "event_floor_s": limits.event_floor_s,
            "timer_resolution_s": limits.timer_resolution_s,
        },
        "launch_floor_s": limits.launch_floor_s,
        "cases": [
            {
                "case": case.path,
                "median_s": case.median_s,
                "block_sd": case.block_sd,
                "mean_log_ratio": case.mean_log_ratio,
                "mde": case.mde,
                "power_limited": case.power_limited,
            }
            for case in made.cases
        ],
        "power": {f"{found.level:g}": found.gated.estimate for found in made.found},
        "family_wise_false_alarm": made.family_wise.estimate if made.family_wise else None,
    }


def _case(
    found: Sequence[BlockValue],
    x: Floats,
    series: Floats,
    rule: Rule,
    two_modes: bool,
    p_differs: float,
    differs: bool,
    mde: float | None,
) -> CaseNoise:
    kept = [value for value in found if not value.spoiled]
    cycles = [value.cycles_log_ratio for value in kept if value.cycles_log_ratio is not None]
    within = [value.within for value in kept if value.within is not None]
    variance = float(x.var(ddof=1))
    rows = [row for value in kept for row in (value.baseline, value.candidate)]
    clocks = [row.sm_clock_hz for row in rows if row.sm_clock_hz]
    return CaseNoise(
        path=kept[0].path,
        median_s=statistics.median(row.median_s for row in rows if row.median_s),
        blocks=len(kept),
        spoiled=len(found) - len(kept),
        block_sd=math.sqrt(variance),
        cycles_sd=statistics.stdev(cycles) if len(cycles) == len(kept) else None,
        judged_sd=largest_sd(series),
        within_share=min(statistics.fmean(w * w for w in within) / variance, 1.0) if within and variance else None,
        mean_log_ratio=float(x.mean()),
        p_differs=p_differs,
        differs=differs,
        rule=rule,
        two_modes=two_modes,
        mde=mde,
        power_limited=is_power_limited(found),
        kernels=rows[0].kernels,
        joules=rows[0].joules,
        sm_clock_hz=statistics.median(clocks) if clocks else None,
    )


def _measures(plain: Sequence[BlockValue], every: Sequence[BlockValue]) -> tuple[Measure, ...]:
    """What unchanged blocks are judged by, as in a gate; time alone where a block of slowed-down code has no clock."""
    of_all = judged_by(every)
    return of_all if of_all == ("time",) else judged_by(plain)


def _rule(x: Floats, *, two_modes: bool) -> Rule:
    """Of two modes a trimmed mean may see only one: what launches that way is reported, however narrow."""
    rule = rule_for(largest_sd(x))
    return replace(rule, standing="reported") if two_modes else rule


def _p_of_mean(x: Floats) -> float:
    """Two-sided t-test of the mean against zero."""
    error = float(x.std(ddof=1)) / math.sqrt(len(x))
    return 2 * float(stdtr(len(x) - 1, -abs(float(x.mean())) / error)) if error > 0 else 1.0


def _pooled_bias(series: Sequence[Floats], *, weighted: bool = False) -> float:
    """Root mean square of the means, without what their own sampling errors put in.

    Weighted by the inverse squares of those errors, as DerSimonian and Laird (1986) pool studies, few noisy cases
    neither hide nor make what the others show.
    """
    errors = [float(x.var(ddof=1)) / len(x) for x in series]
    squares = [float(x.mean()) ** 2 - error for x, error in zip(series, errors, strict=True)]
    weights = [1.0 / max(error, _LEAST_ERROR) for error in errors] if weighted else None
    return math.sqrt(max(statistics.fmean(squares, weights), 0.0)) if squares else 0.0
