"""Interleaved rounds: every implementation once a round, in an order that favours none.

Pure but for the clock, so that a fake clock drives it in tests.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gemmgate.suite.records import MIN_SAMPLES

_ROUNDS = 40
_MOST_REPEATS = 100_000
"""Of a launch within one sample, where a clock claims that launches take next to nothing."""
MOST_ROUNDS = 640
LOOK_EVERY = 1.5
"""Rounds grow by this factor from one look at the interval to the next: looks that are few and far between leave an
interval of a width fixed beforehand its confidence."""


@dataclass(frozen=True)
class Launch:
    """Work that a clock can time: `enqueue()` runs `calls` calls; `host_s` is about how long enqueueing takes."""

    enqueue: Callable[[], None]
    calls: int
    host_s: float = 0.0


Finish = Callable[[], list[float]]
"""Waits for launches that were started; gives the seconds of each, in their order."""


class Clock(Protocol):
    """Times launches back to back. `name` is the word that a row's `timer` carries."""

    name: str

    def start(self, launches: Sequence[Launch]) -> Finish:
        """Begins with the launches, and may return before they have finished."""
        ...


def time_launches(clock: Clock, launches: Sequence[Launch]) -> list[float]:
    """Seconds of each launch, in order; returns when all have finished."""
    return clock.start(launches)()


class ImpossibleTime(Exception):
    """A clock gave a time that no clock can give: zero, negative or not a number."""

    def __init__(self, index: int, seconds: float) -> None:
        super().__init__(f"the clock gave {seconds} s for one sample")
        self.index = index


def balanced_orders(count: int, rounds: int) -> list[list[int]]:
    """An order of `range(count)` for each round: a Williams design, mirrored every other round.

    Over `2 * count` rounds each stands equally often in each place and follows each other equally
    often, so that what a launch leaves behind (heat, cache) falls on all alike.
    """
    zigzag = [(step + 1) // 2 if step % 2 else -(step // 2) for step in range(count)]
    orders = []
    for index in range(rounds):
        order = [(step + index // 2) % count for step in zigzag]
        orders.append(order[::-1] if index % 2 else order)
    return orders


def rounds_and_repeats(launches_s: Sequence[float], budget_s: float | None, default_s: float) -> tuple[int, list[int]]:
    """Rounds, and how often each launch is repeated within one sample, from the seconds of one launch each.

    Without a budget a sample lasts `default_s` or one launch, whichever is longer. With one, samples
    get longer to fill it; where not even single launches fit, rounds fall to the fewest that give
    an interval.
    """
    rounds, per_sample_s = _ROUNDS, default_s
    if budget_s is not None:
        rounds = max(MIN_SAMPLES, min(_ROUNDS, int(budget_s / max(sum(launches_s), 1e-9))))
        per_sample_s = budget_s / (rounds * max(len(launches_s), 1))
    return rounds, [max(1, min(_MOST_REPEATS, round(per_sample_s / max(seconds, 1e-9)))) for seconds in launches_s]


def sequential_rounds(launches_s: Sequence[float], budget_s: float | None, default_s: float) -> tuple[int, list[int]]:
    """As `rounds_and_repeats`, for samples that stop once they say enough: short ones, and as many rounds as fit."""
    _, repeats = rounds_and_repeats(launches_s, None, default_s)
    round_s = sum(times * one_s for times, one_s in zip(repeats, launches_s, strict=True))
    if budget_s is None:
        return MOST_ROUNDS, repeats
    return max(MIN_SAMPLES, min(MOST_ROUNDS, int(budget_s / max(round_s, 1e-9)))), repeats


def looks(rounds: int) -> set[int]:
    """After how many rounds the interval is looked at."""
    found, at = set(), float(_ROUNDS)
    while at < rounds:
        found.add(round(at))
        at *= LOOK_EVERY
    return found


def sample(
    clock: Clock,
    launches: Sequence[Launch],
    rounds: int,
    out_of_time: Callable[[], bool] = lambda: False,
    is_enough: Callable[[Sequence[Sequence[float]]], bool] | None = None,
) -> list[list[float]]:
    """Seconds a call: for each launch one sample a round, the i-th of each from the same round.

    The next round is started before the last is waited for: a device that idles between rounds runs
    whatever comes first after the pause about 1 % slower. `out_of_time` is asked before each round; a
    yes ends early, but never with fewer rounds than give an interval. So does a yes of `is_enough` to the
    samples at one of the `looks`; the round then under way is waited for and left out, so that what was
    looked at is what counts. Raises `ImpossibleTime` with the index of the launch.
    """
    samples: list[list[float]] = [[] for _ in launches]
    looked_at = looks(rounds) if is_enough else set()

    def keep(order: Sequence[int], finish: Finish) -> None:
        for index, seconds in zip(order, finish(), strict=True):
            if not (math.isfinite(seconds) and seconds > 0):
                raise ImpossibleTime(index, seconds)
            samples[index].append(seconds / launches[index].calls)

    waiting: deque[tuple[list[int], Finish]] = deque()
    for done, order in enumerate(balanced_orders(len(launches), rounds)):
        if out_of_time() and done >= MIN_SAMPLES:
            break
        waiting.append((order, clock.start([launches[index] for index in order])))
        if len(waiting) > 1:
            keep(*waiting.popleft())
        if is_enough and done in looked_at and is_enough(samples):
            waiting.pop()[1]()
            break
    while waiting:
        keep(*waiting.popleft())
    return samples
