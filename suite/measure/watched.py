"""A clock that looks at the device's clocks, power and tenants while it times."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gemmgate.suite.measure.clock import EventClock
from gemmgate.suite.measure.machine import Telemetry
from gemmgate.suite.measure.sampler import Clock, Launch
from gemmgate.suite.measure.timed import Timed

_UNSTEADY = 0.05
"""A clock whose readings lie further apart than this is a mark."""
_OFTEN = 5
"""What holds in one reading of so many is a mark."""


class WatchedClock:
    """A clock that reads the telemetry every few rounds, while the device is busy where the clock allows that."""

    name = "watched"
    _EVERY = 4

    def __init__(
        self, clocks: dict[str, Clock], timed: Sequence[Timed], launches: Sequence[Launch], telemetry: Telemetry
    ) -> None:
        self._clock_of = {id(launch): clocks[one.timer] for one, launch in zip(timed, launches, strict=True)}
        self._telemetry = telemetry
        self._rounds = 0
        self._readings: list[tuple[float | None, float | None, set[str]]] = []
        self._starved: Counter[int] = Counter()

    def time(self, launches: Sequence[Launch]) -> list[float]:
        clocks = {id(self._clock_of[id(launch)]): self._clock_of[id(launch)] for launch in launches}
        is_watched = self._rounds % self._EVERY == 0
        device_clock = next((clock for clock in clocks.values() if isinstance(clock, EventClock)), None)
        if is_watched and device_clock is not None:
            device_clock.while_busy = self._read
        if len(clocks) == 1:
            seconds = self._time(next(iter(clocks.values())), launches)
        else:
            seconds = [self._time(self._clock_of[id(launch)], [launch])[0] for launch in launches]
        if is_watched and device_clock is None:
            self._read()
        self._rounds += 1
        return seconds

    def seen(self, launch: Launch) -> dict[str, Any]:
        """Median clock and power, and marks that held in a fifth of the readings or more."""
        clocks = [clock for clock, _, _ in self._readings if clock]
        powers = [power for _, power, _ in self._readings if power]
        held = Counter(mark for _, _, found in self._readings for mark in found)
        marks = {mark for mark, count in held.items() if count >= math.ceil(len(self._readings) / _OFTEN)}
        if clocks and max(clocks) - min(clocks) > _UNSTEADY * max(clocks):
            marks.add("clock_moved")
        if self._starved[id(launch)] * _OFTEN > self._rounds:
            marks.add("host_bound")
        return {
            "sm_clock_hz": statistics.median(clocks) if clocks else None,
            "power_w": statistics.median(powers) if powers else None,
            "marks": sorted(marks),
        }

    def _time(self, clock: Clock, launches: Sequence[Launch]) -> list[float]:
        seconds = clock.time(launches)
        starved = clock.starved if isinstance(clock, EventClock) else [False] * len(launches)
        self._starved.update(id(launch) for launch, is_so in zip(launches, starved, strict=True) if is_so)
        return seconds

    def _read(self) -> None:
        self._readings.append((self._telemetry.sm_clock_hz, self._telemetry.power_w, self._telemetry.marks()))
