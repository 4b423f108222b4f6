"""What the gate's rule would make of a case, found by drawing from the blocks that were measured. Pure.

Under unchanged code the two sides could be exchanged, so a block's deviation counts with either sign; the
mean over all blocks, which one series only knows to within its error, is replaced by a draw of the bias
that all series together show beyond their errors. `beside` is how many other cases a gate would flag in
vain at the same time, for which Holm corrects.

A series of blocks is [blocks], or [blocks, 2] where the rule looks at time and at cycles: both of a block are
drawn together, and both have to say so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtr, stdtrit

from gemmgate.suite.block_rule import ALPHA, CONFIRM_TRIM, Rule
from gemmgate.suite.statistics import Floats, Interval, holm, share_interval, yuen

GATE_CASES = 200
GATES = 3000
SHIFTS = 2000
"""Series drawn for each case, wherever a share of series is asked for."""
POWER = 0.95


def draw(x: Floats, shape: tuple[int, int], bias: float, source: np.random.Generator) -> Floats:
    """Blocks of unchanged code, [series, blocks, 1 or 2]: deviations with either sign about a bias of their own."""
    blocks = _columns(x)
    deviations = (blocks - blocks.mean(axis=0)) * math.sqrt(len(x) / (len(x) - 1))
    signs = source.choice((-1.0, 1.0), size=(*shape, 1))
    drawn: Floats = source.choice(deviations, size=shape) * signs + source.normal(0.0, bias, size=(shape[0], 1, 1))
    return drawn


def flagged_share(x: Floats, rule: Rule, bias: float, source: np.random.Generator) -> float:
    """How often the screen flags unchanged code."""
    return float((_screened(draw(x, (SHIFTS, rule.screen_blocks), bias, source)) > rule.screen_at).mean())


def smallest_found(x: Floats, rule: Rule, beside: int, source: np.random.Generator) -> float:
    """The slow-down found with a chance of `POWER`, as a share of the time.

    By adding to unchanged blocks what each series lacks to be found, and taking the quantile over the series.
    """
    screen = _screened(draw(x, (SHIFTS, rule.screen_blocks), 0.0, source))
    mean, error, freedom = _trimmed(draw(x, (SHIFTS, rule.confirm_blocks), 0.0, source))
    critical = float(stdtrit(freedom, 1 - ALPHA / (1 + beside)))
    confirm = np.maximum(rule.confirm_at - mean, critical * error - mean).max(axis=-1)
    return math.expm1(float(np.quantile(np.maximum(rule.screen_at - screen, confirm), POWER)))


def false_alarms(
    series: Sequence[Floats], rules: Sequence[Rule], bias: float, source: np.random.Generator
) -> Interval | None:
    """Whole gates over cases drawn from the calibrated ones; both stages and the correction as the gate does them."""
    if not series:
        return None
    which = source.integers(len(series), size=(GATES, GATE_CASES))
    p_values: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for index, (x, rule) in enumerate(zip(series, rules, strict=True)):
        gates = np.nonzero(which == index)[0]
        own = source.normal(0.0, bias, size=(len(gates), 1, 1))
        screen = draw(x, (len(gates), rule.screen_blocks), 0.0, source) + own
        flagged = _screened(screen) > rule.screen_at
        fresh = draw(x, (int(flagged.sum()), rule.confirm_blocks), 0.0, source) + own[flagged]
        mean, error, freedom = _trimmed(fresh)
        p = stdtr(freedom, -mean / np.maximum(error, 1e-300)).max(axis=-1)
        for gate, p_value, large in zip(gates[flagged], p, mean.min(axis=-1) > rule.confirm_at, strict=True):
            p_values[int(gate)].append((float(p_value), bool(large)))
    alarms = 0
    for flagged_in_gate in p_values.values():
        certain = holm([p for p, _ in flagged_in_gate], ALPHA)
        alarms += any(is_certain and large for is_certain, (_, large) in zip(certain, flagged_in_gate, strict=True))
    return share_interval(alarms, GATES)


def hits(
    x: Floats,
    rule: Rule,
    beside: int,
    source: np.random.Generator,
    *,
    added: Floats | None = None,
    bias: float = 0.0,
) -> int:
    """In how many of `SHIFTS` gates code with these blocks is found slower.

    With `added`, `x` are blocks of unchanged code, drawn as such, and `added` what slowing down the same launches
    added to some of them: few blocks tell that well, since launches cancel in it, and their mean badly.
    """
    own = source.normal(0.0, bias, size=(SHIFTS, 1, 1))

    def drawn(count: int) -> Floats:
        size = (SHIFTS, count)
        if added is None:
            return np.asarray(source.choice(_columns(x), size=size))
        return draw(x, size, 0.0, source) + source.choice(_columns(added), size=size) + own

    screen = _screened(drawn(rule.screen_blocks))
    mean, error, freedom = _trimmed(drawn(rule.confirm_blocks))
    critical = float(stdtrit(freedom, 1 - ALPHA / (1 + beside)))
    confirmed = ((mean > rule.confirm_at) & (mean > critical * error)).all(axis=-1)
    return int(((screen > rule.screen_at) & confirmed).sum())


def _columns(x: Floats) -> Floats:
    return x if x.ndim == 2 else x[:, np.newaxis]


def _screened(drawn: Floats) -> Floats:
    """The median of each series; of time and cycles the one that says less."""
    medians: Floats = np.median(drawn, axis=1).min(axis=-1)
    return medians


def _trimmed(drawn: Floats) -> tuple[Floats, Floats, int]:
    """Means and errors, [series, 1 or 2], and degrees of freedom."""
    return yuen(np.moveaxis(drawn, 1, -1), CONFIRM_TRIM)
