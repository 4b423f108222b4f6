"""When do blocks say that code got slower: screen all, confirm the flagged on fresh blocks, allow for many cases.

Pure. Thresholds follow from a case's own noise, the standard deviation of its block log-ratio with
unchanged code, as calibration measured it. Screening costs few blocks and may be wrong; the confirmation
alone answers for false alarms: a trimmed one-sided test on blocks that screening has not seen, corrected
by Holm for all that were flagged, and a size below which a change is not of interest.

Where the clock was read, a change has to be there in time and in cycles of it: each is judged by itself, and
what says less counts. Whoever rejects only if both tests do keeps the error of either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtr

from gemmgate.suite.statistics import Floats, Samples, holm, yuen

Standing = Literal["gated", "extended", "reported"]

QUIET_SD, GATED_SD, EXTENDED_SD = 0.006, 0.015, 0.025
"""Up to these a slow-down of 1 %, 2 % and 3 % is found; what is noisier is reported, and fails nothing."""
GATED_BLOCKS, EXTENDED_BLOCKS = (12, 30), (12, 40)
"""To screen and to confirm."""
SCREEN_SD, CONFIRM_SD = 0.6, 0.75
"""Thresholds in block standard deviations: those of the median in the screen and of the trimmed mean thereafter."""
LEAST_SCREEN, LEAST_CONFIRM = 0.003, 0.005
"""Nor less than these: below them lies what differs between launches of the same code."""
CONFIRM_TRIM = 0.25
ALPHA = 0.01
"""The chance of any false alarm, over all cases of a gate together."""


@dataclass(frozen=True)
class Rule:
    """Numbers of blocks, and thresholds on the log-ratio. A `reported` case has a rule too, which fails nothing."""

    standing: Standing
    screen_blocks: int
    confirm_blocks: int
    screen_at: float
    confirm_at: float


def rule_for(block_sd: float) -> Rule:
    """The rule of a case whose block log-ratio has this standard deviation."""
    standing: Standing
    if block_sd <= GATED_SD:
        standing, blocks = "gated", GATED_BLOCKS
    else:
        standing, blocks = ("extended" if block_sd <= EXTENDED_SD else "reported"), EXTENDED_BLOCKS
    screen_at, confirm_at = max(SCREEN_SD * block_sd, LEAST_SCREEN), max(CONFIRM_SD * block_sd, LEAST_CONFIRM)
    return Rule(standing, *blocks, math.log1p(screen_at), math.log1p(confirm_at))


def is_flagged(log_ratios: Samples, rule: Rule, cycles: Samples | None = None) -> bool:
    """Whether the screen's blocks ask for a confirmation. `cycles` are the same blocks in cycles of the clock."""
    return all(float(np.median(x)) > rule.screen_at for x in _both(log_ratios, cycles))


def p_slower(log_ratios: Samples, cycles: Samples | None = None) -> tuple[float, float]:
    """Trimmed mean of fresh blocks, and the chance of one so large if the code were unchanged.

    With `cycles`, the smaller mean and the larger chance.
    """
    means, chances = zip(*map(_p_slower, _both(log_ratios, cycles)), strict=True)
    return min(means), max(chances)


def _both(log_ratios: Samples, cycles: Samples | None) -> list[Floats]:
    return [np.asarray(x, dtype=np.float64) for x in (log_ratios, cycles) if x is not None]


def _p_slower(x: Floats) -> tuple[float, float]:
    mean, error, freedom = yuen(x, CONFIRM_TRIM)
    if freedom < 1:
        return float(mean), 1.0
    # Blocks without any spread do not happen to real clocks; the sign decides then.
    t = float(mean) / float(error) if error > 0 else math.copysign(math.inf, float(mean)) if mean else 0.0
    return float(mean), float(stdtr(freedom, -t))


def confirmed(
    fresh: Mapping[str, Samples],
    rules: Mapping[str, Rule],
    alpha: float = ALPHA,
    cycles: Mapping[str, Samples | None] | None = None,
) -> set[str]:
    """Of the flagged cases, by name, those that are slower; `cycles` holds the same blocks in cycles, where known."""
    names = list(fresh)
    found = [p_slower(fresh[name], (cycles or {}).get(name)) for name in names]
    certain = holm([p for _, p in found], alpha)
    return {
        name
        for name, (mean, _), is_certain in zip(names, found, certain, strict=True)
        if is_certain and mean > rules[name].confirm_at
    }
