"""Known slow-downs: work of a calibrated length inside what is timed, to see whether it is found."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

NODE_S = 3e-6
"""About how long an inserted kernel lasts: as long as launching one takes, and some."""
LAUNCH_S = 1.2e-6
"""About what an inserted kernel takes besides its length."""
_CORRECTIONS = 3
_CLOSE = 0.05
"""A slow-down within this share of what was asked for needs no further correction."""


@dataclass(frozen=True)
class Extra:
    """`nodes` pieces of work spread over the calls of a launch, each `amount` long: SM cycles, or seconds on a CPU."""

    nodes: int
    amount: float


def first_guess(extra_s: float, calls: int, amounts_per_s: float, floor_s: float = LAUNCH_S) -> Extra:
    """So many pieces of about `NODE_S` that together they take `extra_s`, at most one a call."""
    nodes = max(1, min(calls, round(extra_s / NODE_S)))
    return Extra(nodes, max(extra_s / nodes - floor_s, 0.0) * amounts_per_s)


def places(calls: int, nodes: int) -> set[int]:
    """Indices of the calls that a piece of extra work follows, evenly spread."""
    return {(2 * index + 1) * calls // (2 * nodes) for index in range(nodes)}


def calibrate(
    extra: Extra, wanted_s: float, amounts_per_s: float, added_s: Callable[[Extra], float]
) -> tuple[Extra, float]:
    """Corrects the length until `added_s`, which measures what a launch takes longer, is `wanted_s`.

    Returns the extra work and what it was last seen to add. Pieces that are too long even when empty
    give way to fewer.
    """
    seen_s = added_s(extra)
    for _ in range(_CORRECTIONS):
        if abs(seen_s - wanted_s) <= _CLOSE * wanted_s:
            break
        amount = extra.amount + (wanted_s - seen_s) / extra.nodes * amounts_per_s
        if amount < 0 and extra.nodes > 1:
            extra = Extra(max(1, round(extra.nodes * wanted_s / seen_s)), 0.0)
        else:
            extra = replace(extra, amount=max(amount, 0.0))
        seen_s = added_s(extra)
    return extra, seen_s


def difference_s(pairs: Sequence[tuple[float, float]]) -> float:
    """Median of what the second of each pair took longer than the first."""
    return statistics.median(slow - plain for plain, slow in pairs)
