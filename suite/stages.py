"""The stages of a gate, replayed from its blocks: what the screen says of an item, and what confirms it. Pure.

Numbers of blocks say which stage they are of, so that stored blocks are judged as they were when they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from gemmgate.suite import looks
from gemmgate.suite.block_rule import Rule
from gemmgate.suite.block_values import BlockValue
from gemmgate.suite.looks import Noise

SCREEN = 0
FRESH = 100
"""Number of the first block that only confirms; blocks below it screen."""
RELEASE = 1000
"""Number of the first block against the last release."""
SHOWN_BLOCKS = 3
"""Blocks where times are shown and not judged."""
Screened = Literal["open", "gone", "slower", "faster"]


def logs(found: Sequence[BlockValue], begin: int, end: int) -> looks.Blocks:
    """Log-ratios of the unspoiled blocks numbered from `begin` to `end`, counted from `begin`."""
    return {
        value.block - begin: (value.log_ratio, value.cycles_log_ratio)
        for value in found
        if begin <= value.block < end and not value.spoiled and value.is_plain
    }


def screened(found: Sequence[BlockValue], known: Noise | None) -> Screened:
    """What the blocks of the screen say: to let the item go, to confirm it, or that they are not complete."""
    blocks = logs(found, SCREEN, FRESH)
    every = [x for x, _ in blocks.values()]
    for step, share in looks.screen_steps(known):
        first = [x for number, (x, _) in blocks.items() if number < step]
        if len(first) < step / 2:
            return "open"
        if len(every) == len(first):
            rule = looks.with_own(known, first).rule
            if len(first) == step and looks.is_clear(first, rule):  # fewer tell their own noise too badly
                return _flag(first, rule)
            return "gone" if looks.let_go(first, rule, share) else "open"
    rule = looks.with_own(known, every).rule
    return _flag(every, rule) if len(every) >= rule.screen_blocks / 2 else "open"


def _flag(log_ratios: Sequence[float], rule: Rule) -> Screened:
    median = float(np.median(log_ratios))
    return "slower" if median > rule.screen_at else "faster" if median < -rule.screen_at else "gone"


def confirmations(
    by_path: Mapping[str, Sequence[BlockValue]], known: Mapping[str, Noise], *, ended: bool = False
) -> dict[str, looks.Decision]:
    """What the fresh blocks decide of the flagged items, of which there will be no more where it has `ended`.

    Slower and faster each have a budget of their own.
    """
    decided: dict[str, looks.Decision] = {}
    flags = {path: screened(found, known.get(path)) for path, found in by_path.items()}
    for flag, sign in (("slower", 1), ("faster", -1)):
        paths = [path for path, screen in flags.items() if screen == flag]
        fresh, noise = {}, {}
        for path in paths:
            blocks = logs(by_path[path], FRESH, RELEASE)
            fresh[path] = {i: (sign * x, None if c is None else sign * c) for i, (x, c) in blocks.items()}
            noise[path] = looks.with_own(known.get(path), [x for x, _ in logs(by_path[path], SCREEN, FRESH).values()])
        tried = 1 + max(
            (value.block - FRESH for path in paths for value in by_path[path] if FRESH <= value.block < RELEASE),
            default=-1,
        )
        decided |= looks.decide(fresh, noise, tried, ended=ended)
    return decided
