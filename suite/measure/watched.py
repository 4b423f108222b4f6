"""A clock that looks at the device's clocks, power and tenants while it times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from gemmgate.suite.measure.machine import Telemetry
from gemmgate.suite.measure.sampler import Clock, Launch
from gemmgate.suite.measure.timed import Timed


class WatchedClock:
    """A clock that reads the telemetry every few rounds."""

    name = "watched"
    _EVERY = 4

    def __init__(
        self, clocks: dict[str, Clock], timed: Sequence[Timed], launches: Sequence[Launch], telemetry: Telemetry
    ) -> None:
        self._clock_of = {id(launch): clocks[one.timer] for one, launch in zip(timed, launches, strict=True)}
        self._telemetry = telemetry
        self._rounds = 0
        self._readings: list[tuple[float | None, float | None, set[str]]] = []

    def time(self, launches: Sequence[Launch]) -> list[float]:
        clocks = {id(self._clock_of[id(launch)]): self._clock_of[id(launch)] for launch in launches}
        if len(clocks) == 1:
            seconds = next(iter(clocks.values())).time(launches)
        else:
            seconds = [self._clock_of[id(launch)].time([launch])[0] for launch in launches]
        if self._rounds % self._EVERY == 0:
            self._readings.append((self._telemetry.sm_clock_hz, self._telemetry.power_w, self._telemetry.marks()))
        self._rounds += 1
        return seconds

    def seen(self) -> dict[str, Any]:
        """Median clock and power, and marks that held in a fifth of the readings or more."""
        clocks = [clock for clock, _, _ in self._readings if clock]
        powers = [power for _, power, _ in self._readings if power]
        marks = {mark for _, _, found in self._readings for mark in found}
        often = math.ceil(len(self._readings) / 5)
        return {
            "sm_clock_hz": statistics.median(clocks) if clocks else None,
            "power_w": statistics.median(powers) if powers else None,
            "marks": sorted(mark for mark in marks if sum(mark in found for _, _, found in self._readings) >= often),
        }
