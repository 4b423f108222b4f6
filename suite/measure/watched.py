"""A clock that looks at the device's clocks, power and tenants while it times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from gemmgate.suite.measure.machine import Telemetry
from gemmgate.suite.measure.sampler import Clock, Finish, Launch


class WatchedClock:
    """A clock that reads the telemetry every few rounds."""

    name = "watched"
    _EVERY = 4

    def __init__(self, clock: Clock, telemetry: Telemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._rounds = 0
        self._readings: list[tuple[float | None, float | None, set[str]]] = []

    def start(self, launches: Sequence[Launch]) -> Finish:
        """As the clock it watches; looks while the next round is under way, so that it sees the load."""
        finish = self._clock.start(launches)

        def watched() -> list[float]:
            seconds = finish()
            if self._rounds % self._EVERY == 0:
                self._readings.append((self._telemetry.sm_clock_hz, self._telemetry.power_w, self._telemetry.marks()))
            self._rounds += 1
            return seconds

        return watched

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
