"""When may a gate stop: early where blocks are clear, later where they are not, with one budget for false alarms.

Pure. Screening takes blocks in two steps, so that what looks unchanged costs half. What it flags is looked at
after so many fresh blocks, and each look may spend a part of the chance of a false alarm: at one look it is shared
by Holm among all that were flagged, and over the looks the parts add up to the budget, however the looks depend on
each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from gemmgate.suite.block_rule import (
    ALPHA,
    CONFIRM_TRIM,
    GATED_BLOCKS,
    QUIET_SD,
    Rule,
    p_slower,
    rule_for,
)
from gemmgate.suite.statistics import Floats, Interval, holm, summarise, yuen

Decision = Literal["slower", "same", "unclear", "clock", "open"]

SCREEN_STEPS = ((4, 0.1), (6, 0.1), (9, 0.2))
"""Blocks after which screening lets go of what looks unchanged, and below which share of its threshold; the first of
them where the noise is known, and so small that four blocks tell."""
CLEAR = 5
"""Thresholds of the screen beyond which a step of it flags, in either direction: fresh blocks confirm it anyway."""
LOOKS = (6, 12, 20, 30, 40)
"""Fresh blocks after which the flagged are looked at: the first time for what is clearly slower alone."""
FEWEST_LOOKED = 4
"""Fresh blocks that a look at the end of the time takes."""
SPENT = 3
"""By then the share of blocks, to this power, is the share of the chance that is spent: little at first, as O'Brien and
Fleming do, for few blocks tell their own noise badly."""
SAME_SURE = 0.99
"""How sure it must be that nothing as large as the size of interest is there."""
LEAST_SIZE, SIZE_SD = 0.01, 1.25
"""Size of interest: 1 %, or so many block standard deviations."""
_ROBUST = 1.1
"""Standard error of a mean of normal blocks, trimmed by a quarter a side, over that of all of them."""
OWN_COUNTS = 0.75
"""Of twelve blocks' standard deviation, which share the true one exceeds with 95 %."""
OWN = "this gate's own blocks"

Blocks = Mapping[int, tuple[float, float | None]]
"""Log-ratio in time and in cycles (None where unknown), by the number of the block; spoiled ones are left out."""


@dataclass(frozen=True)
class Noise:
    """How much unchanged code scatters. `source` says where that is known from."""

    sd: float
    two_modes: bool = False
    source: str = ""
    blocks: int = 0

    @property
    def rule(self) -> Rule:
        """Of two modes a trimmed mean may see only one: what launches that way is reported, however narrow."""
        rule = rule_for(self.sd)
        return replace(rule, standing="reported") if self.two_modes else rule

    @property
    def size(self) -> float:
        """The smallest slow-down that this noise lets a gate find with certainty, as a share of the time."""
        return max(LEAST_SIZE, SIZE_SD * self.sd)


def noise_of(log_ratios: Sequence[float], source: str) -> Noise:
    """That of blocks, robust against a launch that is slow by accident and not blind to two modes."""
    modes = "two_modes" in summarise(np.exp(np.asarray(log_ratios, dtype=np.float64))).marks
    return Noise(float(robust_sd(np.asarray(log_ratios))), modes, source, len(log_ratios))


def robust_sd(log_ratios: Floats) -> Floats:
    """Standard deviations along the last axis, from the trimmed means' errors; without bound for fewer than two."""
    _, error, freedom = yuen(np.asarray(log_ratios, dtype=np.float64), CONFIRM_TRIM)
    return error * math.sqrt(log_ratios.shape[-1]) / _ROBUST if freedom else np.full(error.shape, math.inf)


def with_own(known: Noise | None, log_ratios: Sequence[float]) -> Noise:
    """What is known of a case, unless its own blocks in this gate show more; those alone where nothing is known."""
    if known is None:
        return noise_of(log_ratios, OWN)
    sd = float(robust_sd(np.asarray(log_ratios))) * (1.0 if known.source == OWN else OWN_COUNTS)
    return known if sd <= known.sd else Noise(sd, known.two_modes, OWN, len(log_ratios))


def screen_steps(known: Noise | None) -> tuple[tuple[int, float], ...]:
    """Those of `SCREEN_STEPS` that an item of this noise is looked at by."""
    is_quiet = known is not None and known.sd <= QUIET_SD and known.source != OWN
    return SCREEN_STEPS if is_quiet else SCREEN_STEPS[1:]


def let_go(log_ratios: Sequence[float], rule: Rule, share: float) -> bool:
    """Whether a step of the screen sees neither that share of the threshold nor as much less time as all of it."""
    median = float(np.median(np.asarray(log_ratios, dtype=np.float64)))
    return -rule.screen_at < median < share * rule.screen_at


def is_clear(log_ratios: Sequence[float], rule: Rule) -> bool:
    """Whether a step of the screen sees so much more or less time that more blocks would not let it go."""
    return abs(float(np.median(np.asarray(log_ratios, dtype=np.float64)))) > CLEAR * rule.screen_at


def alpha_of(before: int, blocks: int) -> float:
    """What a look after so many fresh blocks may spend, with the one before it."""
    return ALPHA * ((blocks / LOOKS[-1]) ** SPENT - (before / LOOKS[-1]) ** SPENT)


def looks_at(tried: int, *, ended: bool) -> list[int]:
    """The looks that so many fresh blocks allow, with one at their end where there will be no more.

    How much the parts spend depends on the numbers of blocks alone, so a look may stand anywhere (Lan and DeMets, 1983)
    as long as what puts it there is not what it sees: here, the clock on the wall.
    """
    found = [size for size in LOOKS if size <= tried]
    return [*found, tried] if ended and FEWEST_LOOKED <= tried < LOOKS[-1] and tried not in found else found


def decide(
    fresh: Mapping[str, Blocks], noise: Mapping[str, Noise], tried: int, *, ended: bool = False
) -> dict[str, Decision]:
    """What is known of every flagged case after `tried` fresh blocks: all looks up to there, one after the other.

    Series are those in which slower is positive. A case that one look decided keeps its decision. With `ended` there
    will be no more blocks.
    """
    found: dict[str, Decision] = dict.fromkeys(fresh, "open")
    before = 0
    for size in looks_at(tried, ended=ended):
        alpha, before = alpha_of(before, size), size
        p, means = {}, {}
        for name, decision in found.items():
            x = _first(fresh[name], size, 0)
            # Decided ones keep their place among the hypotheses: gone as rejected, or never to be.
            p[name], means[name] = 0.0 if decision == "slower" else 1.0, 0.0
            if decision == "open" and len(x) >= size / 2:
                means[name], p[name] = p_slower(x)
        certain = dict(zip(p, holm(list(p.values()), alpha), strict=True))
        for name in [name for name, decision in found.items() if decision == "open"]:
            found[name] = _decision(fresh[name], size, noise[name], means[name], bool(certain[name]))
    return found


def _decision(blocks: Blocks, size: int, noise: Noise, mean: float, is_certain: bool) -> Decision:
    last = size == LOOKS[-1]
    x = _first(blocks, size, 0)
    if len(x) < size / 2:
        return "unclear" if last else "open"
    noise = with_own(noise, x)
    rule = noise.rule
    if is_certain and mean > rule.confirm_at:
        if cycles_agree(blocks, size, rule):
            return "slower"
        return "clock" if last else "open"
    if size > LOOKS[0] and mean <= rule.confirm_at and upper(x) < math.log1p(noise.size):
        return "same"
    return "unclear" if last else "open"


def cycles_agree(blocks: Blocks, size: int, rule: Rule) -> bool:
    """Whether clock cycles show half of the threshold at least; so do blocks of which no cycles are known."""
    cycles = _first(blocks, size, 1)
    if len(cycles) < size / 2:
        return True
    mean, _, _ = yuen(np.asarray(cycles), CONFIRM_TRIM)
    return float(mean) > rule.confirm_at / 2


def upper(log_ratios: Sequence[float], confidence: float = SAME_SURE) -> float:
    """The largest mean log-ratio that blocks leave possible, one-sided."""
    mean, error, freedom = yuen(np.asarray(log_ratios, dtype=np.float64), CONFIRM_TRIM)
    return float(mean) + float(stdtrit(freedom, confidence)) * float(error) if freedom else math.inf


def ratio_of(log_ratios: Sequence[float], confidence: float = 0.95) -> Interval:
    """The baseline's time over the candidate's from blocks of log(candidate / baseline)."""
    x = np.asarray(log_ratios, dtype=np.float64)
    mean, error, freedom = yuen(x, CONFIRM_TRIM)
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * float(error) if freedom else math.inf
    low = math.exp(-float(mean) - half) if math.isfinite(half) else 0.0
    return Interval(math.exp(-float(mean)), low, math.exp(min(half - float(mean), 700.0)), confidence)


def smallest_seen(noise: Noise, blocks: int) -> float:
    """The slow-down that so many blocks would have shown nineteen times in twenty, as a share of the time."""
    rule = noise.rule
    if blocks >= GATED_BLOCKS[0]:
        at = max(rule.confirm_at, 4.0 * _ROBUST * noise.sd / math.sqrt(blocks))
        return math.expm1(at + 1.645 * _ROBUST * noise.sd / math.sqrt(blocks))
    return math.expm1(rule.screen_at + 1.645 * 1.25 * noise.sd / math.sqrt(max(blocks, 1)))


def _first(blocks: Blocks, size: int, column: int) -> list[float]:
    return [value for number, pair in sorted(blocks.items()) if number < size and (value := pair[column]) is not None]
