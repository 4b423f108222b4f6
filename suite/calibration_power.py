"""How often code that was slowed down on purpose is found, by injected work or by a known edit. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gemmgate.suite.block_rule import ALPHA, QUIET_SD, Rule, is_flagged, p_slower
from gemmgate.suite.block_values import BlockValue, Measure, log_ratios
from gemmgate.suite.resampling import SHIFTS, hits
from gemmgate.suite.statistics import Floats, Interval, share_interval

FEWEST_BLOCKS = 6
"""Below this, no statement about what could be detected."""


@dataclass(frozen=True)
class Found:
    """How often a slow-down was found. `realised` is what the injected work came to, over all cases."""

    level: float
    realised: float
    gated: Interval
    quiet: Interval | None
    cases: int
    quiet_cases: int


@dataclass(frozen=True)
class EditFound:
    """What became of a known edit of the code. `change` is what it costs, as a share of the time; `found` how often
    resampled gates find it; `after` the number of blocks, in the order measured, by which this one did, if it did.
    """

    path: str
    change: float
    blocks: int
    found: Interval
    after: int | None


def columns_of(found: Iterable[BlockValue], measures: Sequence[Measure]) -> Floats:
    """Log-ratios as the rule looks at them, [blocks, measures]."""
    return np.column_stack([np.array(column) for column in log_ratios(found, measures)])


def largest_sd(x: Floats) -> float:
    """The larger standard deviation of the columns."""
    return float(x.std(axis=0, ddof=1).max())


def found_by_level(
    by_path: Mapping[str, Sequence[BlockValue]],
    rules: Mapping[str, Rule],
    gated: Mapping[str, tuple[Measure, ...]],
    series: Mapping[str, Floats],
    beside: int,
    bias: float,
    source: np.random.Generator,
) -> tuple[Found, ...]:
    """By level, how often slowed code is found, with as many flagged beside it as usual."""
    levels = sorted({value.level for found in by_path.values() for value in found if value.level})
    made = []
    for level in levels:
        counts: dict[str, int] = {}
        realised: list[float] = []
        for path, measures in gated.items():
            if rules[path].standing != "gated":
                continue
            plain, slowed = _pairs(by_path[path], level)
            if len(slowed) < FEWEST_BLOCKS:
                continue
            realised += [slow.log_ratio - same.log_ratio for same, slow in zip(plain, slowed, strict=True)]
            added = columns_of(slowed, measures) - columns_of(plain, measures)
            counts[path] = hits(series[path], rules[path], beside, source, added=added, bias=bias)
        if not counts:
            continue
        quiet = [path for path in counts if largest_sd(series[path]) <= QUIET_SD]
        made.append(
            Found(
                level,
                math.expm1(statistics.median(realised)),
                share_interval(sum(counts.values()), SHIFTS * len(counts)),
                share_interval(sum(counts[path] for path in quiet), SHIFTS * len(quiet)) if quiet else None,
                len(counts),
                len(quiet),
            )
        )
    return tuple(made)


def _pairs(found: Sequence[BlockValue], level: float) -> tuple[list[BlockValue], list[BlockValue]]:
    """The blocks in which unchanged code and code slowed down by `level` were both measured, in one order."""
    plain = {value.block: value for value in found if value.is_plain and not value.spoiled}
    slowed = [value for value in found if value.level == level and not value.spoiled and value.block in plain]
    return [plain[value.block] for value in slowed], slowed


def found_edits(
    by_path: Mapping[str, Sequence[BlockValue]],
    rules: Mapping[str, Rule],
    gated: Mapping[str, tuple[Measure, ...]],
    beside: int,
    source: np.random.Generator,
) -> tuple[EditFound, ...]:
    """What the rule makes of edited code, of each case that it judges."""
    made = []
    for path, measures in gated.items():
        edited = [value for value in by_path[path] if value.edited and not value.spoiled]
        if len(edited) < FEWEST_BLOCKS:
            continue
        edited.sort(key=lambda value: value.block)
        x = columns_of(edited, measures)
        change = math.expm1(float(np.median([value.log_ratio for value in edited])))
        found = share_interval(hits(x, rules[path], beside, source), SHIFTS)
        made.append(EditFound(path, change, len(edited), found, _found_after(x, rules[path], beside)))
    return tuple(made)


def _found_after(x: Floats, rule: Rule, beside: int) -> int | None:
    """By which block the screen and then a confirmation on the blocks after it have found a slow-down."""
    screen, fresh = x[: rule.screen_blocks], x[rule.screen_blocks :]
    columns = list(screen.T)
    if len(screen) < rule.screen_blocks or not is_flagged(columns[0], rule, *columns[1:]):
        return None
    for count in range(FEWEST_BLOCKS, min(len(fresh), rule.confirm_blocks) + 1):
        mean, p = p_slower(*fresh[:count].T)
        if mean > rule.confirm_at and p <= ALPHA / (1 + beside):
            return rule.screen_blocks + count
    return None
