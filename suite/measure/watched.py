"""A clock that looks at the device's clocks, power and tenants, or at who else uses the CPU, while it times."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gemmgate.suite.measure.clock import EventClock
from gemmgate.suite.measure.launching import Launching
from gemmgate.suite.measure.machine import Telemetry
from gemmgate.suite.measure.sampler import Clock, Finish, Launch
from gemmgate.suite.measure.tenancy import Spent

_UNSTEADY = 0.05
"""A clock whose readings lie further apart than this is a mark."""
OFTEN = 5
"""What holds in one reading of so many is a mark."""


class WatchedClock:
    """A clock that reads the telemetry every few rounds, while the device is busy where the clock allows that."""

    name = "watched"
    _EVERY = 4

    def __init__(self, clock: Clock, telemetry: Telemetry, launching: Launching | None = None) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._launching = launching
        self._moved = launching.moved if launching else 0
        self._rounds = 0
        self._readings: list[tuple[float | None, float | None, set[str]]] = []
        self._spent: list[Spent | None] = []
        self._starved: Counter[int] = Counter()

    def start(self, launches: Sequence[Launch]) -> Finish:
        """As the clock it watches; looks while the next round is under way, so that it sees the load."""
        finish = self._launching.start(self._clock, launches) if self._launching else self._clock.start(launches)

        def watched() -> list[float]:
            if self._rounds % self._EVERY == 0:
                self._read()
            seconds = finish()
            starved = self._clock.starved if isinstance(self._clock, EventClock) else [False] * len(launches)
            # A sentinel behind them is none of the launches.
            self._starved.update(id(launch) for launch, is_so in zip(launches, starved, strict=False) if is_so)
            self._rounds += 1
            return seconds

        return watched

    def seen(self, launch: Launch) -> dict[str, Any]:
        """Median clock and power, and marks that held in a fifth of the readings or more, `busy` over all of them."""
        clocks = [clock for clock, _, _ in self._readings if clock]
        powers = [power for _, power, _ in self._readings if power]
        held = Counter(mark for _, _, found in self._readings for mark in found)
        marks = {mark for mark, count in held.items() if count >= math.ceil(len(self._readings) / OFTEN)}
        if self._spent:
            marks |= self._telemetry.busy_marks(self._spent[0], self._spent[-1])
        if clocks and max(clocks) - min(clocks) > _UNSTEADY * max(clocks):
            marks.add("clock_moved")
        if self._starved[id(launch)] * OFTEN > self._rounds:
            marks.add("host_bound")
        if self._launching and self._launching.moved > self._moved:
            marks.add("launching_moved")
        return {
            "node_s": self._launching.node_s if self._launching else None,
            "sm_clock_hz": statistics.median(clocks) if clocks else None,
            "power_w": statistics.median(powers) if powers else None,
            "marks": sorted(marks),
        }

    def _read(self) -> None:
        self._spent.append(self._telemetry.spent())
        self._readings.append((self._telemetry.sm_clock_hz, self._telemetry.power_w, self._telemetry.marks()))
