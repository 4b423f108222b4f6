"""Clocks: device events around work that is already queued, and `perf_counter` on a CPU."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from gemmgate.suite.measure.sampler import Finish, Launch

_SPIN_MARGIN_S = 20e-6


class EventClock:
    """CUDA events around each launch, on the current stream.

    Each launch waits behind a spinning kernel for as long as the host needs to queue it, so that the
    device never waits for the host inside a timed interval. `name` is `graph` where the launches
    replay CUDA graphs and `events` where they launch kernels one by one.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._cycles_per_s = _spin_rate()

    def start(self, launches: Sequence[Launch]) -> Finish:
        pairs = []
        for launch in launches:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(int((1.5 * launch.host_s + _SPIN_MARGIN_S) * self._cycles_per_s))
            begin.record()
            launch.enqueue()
            end.record()
            pairs.append((begin, end))

        def finish() -> list[float]:
            if pairs:
                pairs[-1][1].synchronize()
            return [begin.elapsed_time(end) * 1e-3 for begin, end in pairs]

        return finish


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


def _spin_rate() -> float:
    """Cycles a second of `torch.cuda._sleep`, by timing two lengths: the launch itself cancels."""
    cycles = 2_000_000
    stamps = []
    for count in (cycles, cycles, 3 * cycles):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        torch.cuda._sleep(count)
        end.record()
        torch.cuda.synchronize()
        stamps.append(begin.elapsed_time(end) * 1e-3)
    return 2 * cycles / max(stamps[2] - stamps[1], 1e-6)
