"""Clocks: device events around work that is already queued, and `perf_counter` on a CPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import torch

from gemmgate.suite.measure.sampler import Finish, Launch, time_launches

_SPIN_MARGIN_S = 20e-6
_SLACK = 1.5
_MORE_SLACK = 12.0
_AGAIN = 20
"""So many launches a clock takes again, where the host was too slow: one that always is would take for ever."""
_LEAD_CYCLES = 200_000
_STEADY = 3
_MOST_SPINS = 60
_PROBE_CYCLES = 400_000


class EventClock:
    """CUDA events around each launch, on the current stream.

    Each launch waits behind a spinning kernel for as long as the host needs to queue it, so that the
    device never waits for the host inside a timed interval. Whether that held is looked at: where the
    interval had begun before all of its work was queued, the launch is taken again behind a longer
    spin, and where that does not help it counts as starved. `name` is `graph` where the launches
    replay CUDA graphs and `events` where they launch kernels one by one.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.starved: list[bool] = []
        """For each launch last timed: whether host time may be part of its seconds."""
        self._cycles_per_s = _spin_rate()
        self._again_left = _AGAIN

    def start(self, launches: Sequence[Launch]) -> Finish:
        queued = [self._queue(launch, _SLACK) for launch in launches]

        def finish() -> list[float]:
            if queued:
                queued[-1][1].synchronize()
            self.starved = []
            seconds = []
            for launch, (begin, end, starved) in zip(launches, queued, strict=True):
                if starved and self._again_left:
                    self._again_left -= 1
                    begin, end, starved = self._queue(launch, _MORE_SLACK)
                    end.synchronize()
                self.starved.append(starved)
                seconds.append(begin.elapsed_time(end) * 1e-3)
            return seconds

        return finish

    def _queue(self, launch: Launch, slack: float) -> tuple[Any, Any, bool]:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(int((slack * launch.host_s + _SPIN_MARGIN_S) * self._cycles_per_s))
        begin.record()
        launch.enqueue()
        end.record()
        # The spin has ended although the host was not done: the device may have waited for it.
        return begin, end, bool(begin.query())


class ClockProbe:
    """The SM clock as the device itself counts it: cycles of a spinning kernel by seconds between two events.

    NVML names a clock in steps of most of a percent, and some time ago; cycles of a kernel need it better.
    """

    def __init__(self) -> None:
        self._clock = EventClock("events")

    def read(self) -> float:
        """Hertz, from two spins of different length, so that what a launch takes cancels."""
        short, long = (
            Launch(partial(torch.cuda._sleep, count), 1, 2e-5) for count in (_PROBE_CYCLES, 3 * _PROBE_CYCLES)
        )
        short_s, long_s = time_launches(self._clock, [short, long])
        return 2 * _PROBE_CYCLES / max(long_s - short_s, 1e-9)


class HostClock:
    """`perf_counter` around each launch, for work that is done when the call returns."""

    name = "perf_counter"

    def start(self, launches: Sequence[Launch]) -> Finish:
        seconds = []
        for launch in launches:
            begin = time.perf_counter()
            launch.enqueue()
            seconds.append(time.perf_counter() - begin)
        return lambda: seconds


@cache
def _spin_rate() -> float:
    """Cycles a second of `torch.cuda._sleep`, by timing two lengths: the launch itself cancels.

    The spin counts cycles of the SM clock, which rises for a while after idling. A rate taken too early
    would make every later spin too short, so it is taken until it stops growing, and the highest counts.
    """
    cycles = 1_000_000
    highest, steady = 0.0, 0
    for _ in range(_MOST_SPINS):
        short_s, long_s = _spin_s(cycles), _spin_s(3 * cycles)
        rate = 2 * cycles / max(long_s - short_s, 1e-6)
        steady = 0 if rate > 1.01 * highest else steady + 1
        highest = max(highest, rate)
        if steady >= _STEADY:
            break
    return highest


def _spin_s(cycles: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(_LEAD_CYCLES)
    begin.record()
    torch.cuda._sleep(cycles)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e-3
