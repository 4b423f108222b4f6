"""A load that runs until the clock and the power it draws are steady. Pure but for what it is given."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

CLOCK_CHANGE = 0.01
POWER_CHANGE = 0.03
WINDOW_S = 0.1
"""Steady is what changes by no more than these shares from the first half of this time to the second; of the clock
less where less time went by. Halves, since a board at its power limit steps its clock up and down for ever."""
MOST_S = 3.0
ENERGY_LEAST_S = 0.25
"""The energy counter moves in steps of some 20 ms: over less than this its difference says little."""
_CAPPED_CLOCK = 0.97
"""A clock that settles lower than this share of the highest one was held there, whatever the reasons given."""
_FREE_CLOCK = 0.995
"""At this share of the highest clock or more nothing holds it: the reason given is that of an earlier load."""


@dataclass(frozen=True)
class Reading:
    """What the board says of itself at a moment under load; None where it does not say."""

    sm_clock_hz: float | None = None
    power_w: float | None = None
    joules: float | None = None
    marks: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Settled:
    """How the load ended up. `steady` is False where `MOST_S` went by first; `joules` are of one call."""

    seconds: float
    steady: bool
    sm_clock_hz: float | None
    power_w: float | None
    joules: float | None
    marks: tuple[str, ...]


def settle(
    load: Callable[[], int],
    read: Callable[[], Reading],
    now: Callable[[], float],
    *,
    least_s: float,
    most_s: float = MOST_S,
    highest_clock_hz: float | None = None,
) -> Settled:
    """Calls `load`, which runs for some milliseconds and returns its number of calls, until readings are steady.

    A board without readings is steady at once after `least_s`. `power_limited` is among the marks where
    the board gives that reason below its `highest_clock_hz`, or settles well below it without another one.
    """
    begin = now()
    history: list[tuple[float, int, Reading]] = []
    calls = 0
    while True:
        calls += load()
        elapsed_s = now() - begin
        history.append((elapsed_s, calls, read()))
        window = [entry for entry in history if entry[0] >= elapsed_s - WINDOW_S]
        steady = _is_steady([reading for _, _, reading in window], min((elapsed_s - window[0][0]) / WINDOW_S, 1.0))
        if (elapsed_s >= least_s and steady) or elapsed_s >= most_s:
            break
    recent = [reading for _, _, reading in window]
    clocks = [reading.sm_clock_hz for reading in recent if reading.sm_clock_hz]
    powers = [reading.power_w for reading in recent if reading.power_w]
    clock_hz = statistics.median(clocks) if clocks else None
    marks = {mark for reading in recent for mark in reading.marks}
    if clock_hz and highest_clock_hz and clock_hz < _CAPPED_CLOCK * highest_clock_hz and "throttled" not in marks:
        marks.add("power_limited")
    if clock_hz and highest_clock_hz and clock_hz >= _FREE_CLOCK * highest_clock_hz:
        marks.discard("power_limited")
    return Settled(
        elapsed_s,
        steady,
        clock_hz,
        statistics.median(powers) if powers else None,
        _joules_a_call(history),
        tuple(sorted(marks)),
    )


def _is_steady(readings: Sequence[Reading], share_of_window: float) -> bool:
    clocks = [reading.sm_clock_hz for reading in readings if reading.sm_clock_hz]
    powers = [reading.power_w for reading in readings if reading.power_w]
    return _halves_agree(clocks, CLOCK_CHANGE * share_of_window) and _halves_agree(powers, POWER_CHANGE)


def _halves_agree(values: Sequence[float], share: float) -> bool:
    if len(values) < 2:
        return True
    first, second = (statistics.median(half) for half in (values[: len(values) // 2], values[len(values) // 2 :]))
    return abs(first - second) <= share * max(first, second)


def _joules_a_call(history: Sequence[tuple[float, int, Reading]]) -> float | None:
    """Over the second half of the load, whose power is nearest to steady."""
    half = history[len(history) // 2 :]
    (begin_s, begin_calls, first), (end_s, end_calls, last) = half[0], half[-1]
    if first.joules is None or last.joules is None or end_s - begin_s < ENERGY_LEAST_S / 2:
        return None
    return (last.joules - first.joules) / (end_calls - begin_calls) if last.joules > first.joules else None
