"""What the gate's rule would make of a case, found by drawing from the blocks that were measured. Pure.

Under unchanged code the two sides could be exchanged, so a block's deviation counts with either sign; the
mean over all blocks, which one series only knows to within its error, is replaced by a draw of the bias
that all series together show beyond their errors. `beside` is how many other cases a gate would flag in
vain at the same time, for which Holm corrects.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from gemmgate.suite.block_rule import ALPHA, CONFIRM_TRIM, Rule
from gemmgate.suite.statistics import Interval, holm, share_interval, yuen

Floats = NDArray[np.float64]

GATE_CASES = 200
GATES = 3000
SHIFTS = 2000
"""Series drawn for each case, wherever a share of series is asked for."""
POWER = 0.95


def draw(x: Floats, shape: tuple[int, int], bias: float, source: np.random.Generator) -> Floats:
    """Blocks of unchanged code, a series a line: deviations with either sign about a bias of its own."""
    deviations = (x - x.mean()) * math.sqrt(len(x) / (len(x) - 1))
    signs = source.choice((-1.0, 1.0), size=shape)
    drawn: Floats = source.choice(deviations, size=shape) * signs + source.normal(0.0, bias, size=(shape[0], 1))
    return drawn


def flagged_share(x: Floats, rule: Rule, bias: float, source: np.random.Generator) -> float:
    """How often the screen flags unchanged code."""
    medians = np.median(draw(x, (SHIFTS, rule.screen_blocks), bias, source), axis=-1)
    return float((medians > rule.screen_at).mean())


def smallest_found(x: Floats, rule: Rule, beside: int, source: np.random.Generator) -> float:
    """The slow-down found with a chance of `POWER`, as a share of the time.

    By adding to unchanged blocks what each series lacks to be found, and taking the quantile over the series.
    """
    screen = np.median(draw(x, (SHIFTS, rule.screen_blocks), 0.0, source), axis=-1)
    mean, error, freedom = yuen(draw(x, (SHIFTS, rule.confirm_blocks), 0.0, source), CONFIRM_TRIM)
    critical = float(stdtrit(freedom, 1 - ALPHA / (1 + beside)))
    lacks = np.maximum.reduce([rule.screen_at - screen, rule.confirm_at - mean, critical * error - mean])
    return math.expm1(float(np.quantile(lacks, POWER)))


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
        own = source.normal(0.0, bias, size=(len(gates), 1))
        screen = draw(x, (len(gates), rule.screen_blocks), 0.0, source) + own
        flagged = np.median(screen, axis=-1) > rule.screen_at
        fresh = draw(x, (int(flagged.sum()), rule.confirm_blocks), 0.0, source) + own[flagged]
        mean, error, freedom = yuen(fresh, CONFIRM_TRIM)
        p = stdtr(freedom, -mean / np.maximum(error, 1e-300))
        for gate, p_value, large in zip(gates[flagged], p, mean > rule.confirm_at, strict=True):
            p_values[int(gate)].append((float(p_value), bool(large)))
    alarms = 0
    for flagged_in_gate in p_values.values():
        certain = holm([p for p, _ in flagged_in_gate], ALPHA)
        alarms += any(is_certain and large for is_certain, (_, large) in zip(certain, flagged_in_gate, strict=True))
    return share_interval(alarms, GATES)


def hits(x: Floats, rule: Rule, beside: int, source: np.random.Generator) -> int:
    """In how many of `SHIFTS` gates code with these blocks is found slower."""
    screen = source.choice(x, size=(SHIFTS, rule.screen_blocks))
    mean, error, freedom = yuen(source.choice(x, size=(SHIFTS, rule.confirm_blocks)), CONFIRM_TRIM)
    critical = float(stdtrit(freedom, 1 - ALPHA / (1 + beside)))
    found = (np.median(screen, axis=-1) > rule.screen_at) & (mean > rule.confirm_at) & (mean > critical * error)
    return int(found.sum())
