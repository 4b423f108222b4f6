"""Visits: one implementation of one case, bound and captured once, then timed a little whenever it is asked for."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from typing import Any

import torch

from gemmgate.suite.cases import Call
from gemmgate.suite.measure.bench import Bench
from gemmgate.suite.measure.clock import ClockProbe, EventClock
from gemmgate.suite.measure.graph import capture, launches_hash
from gemmgate.suite.measure.inject import LAUNCH_S, Extra, calibrate, difference_s, first_guess, places
from gemmgate.suite.measure.machine import precision_flags
from gemmgate.suite.measure.sampler import ImpossibleTime, Launch, time_launches
from gemmgate.suite.measure.settle import Settled
from gemmgate.suite.measure.timed import replay_of
from gemmgate.suite.measure.watched import OFTEN
from gemmgate.suite.measure.work import Work
from gemmgate.suite.records import PLACES

_CALLED_S = 5e-3
"""About how long a launch lasts that is no graph."""
_CALIBRATION_PAIRS = 10


@dataclass(frozen=True)
class Visit:
    """Seconds a call of each replay, and what the board said meanwhile.

    `sm_clock_hz` is read on the device itself; `node_s` tells the state of launching.
    """

    samples_s: tuple[float, ...]
    sm_clock_hz: float | None
    power_w: float | None
    marks: tuple[str, ...]
    node_s: float | None


class Visits:
    """Holds the launches of one mounted implementation by level: 0 is itself, 0.01 is slowed down by a hundredth.

    A library's kernels take up to 2 % more or less by where its workspace came to lie, which is by chance, and ours may
    call them: so there are several launches a level, with workspaces in `PLACES`, and replays take turns.

    `passes` is how much a launch holds, the same for two sides that are compared: rounds over the ring in
    a graph, or repeated calls where there is none. None chooses.
    """

    def __init__(self, bench: Bench, work: Work, name: str, cache: str, passes: int | None) -> None:
        self._bench = bench
        self._work = work
        self._timed = bench.mount(work, name, cache, passes)
        launch = self._timed.launch
        if self._timed.captured is None:
            most = passes or max(1, math.ceil(_CALLED_S / self._timed.launch_s))
            self._passes = min(most, self._timed.most_repeats or most)
            launch = self._timed.repeated(self._passes)
        else:
            self._passes = launch.calls // len(self._timed.calls)
        self._clock = bench.clocks[self._timed.timer]
        self._launches = {0.0: [launch]}
        if self._timed.captured is not None:
            # Where memory ends, fewer places: they scatter more, and nothing at all would tell less.
            with suppress(torch.OutOfMemoryError):
                for place in range(1, PLACES):
                    self._launches[0.0].append(bench.mount_elsewhere(work, self._timed, cache, place).launch)
        self._probe = ClockProbe() if bench.device.type == "cuda" else None
        self._node_floor_s = LAUNCH_S

    def facts(self) -> dict[str, Any]:
        """What a parent keeps, and needs to mount the same on the other side."""
        launch, captured = self._launches[0.0][0], self._timed.captured
        return {
            "passes": self._passes,
            "calls": launch.calls,
            "launch_s": self._timed.launch_s * launch.calls / self._timed.launch.calls,
            "timer": self._timed.timer,
            "kernels": len(self._timed.nodes) if self._timed.nodes else None,
            "kernel_names": self._timed.nodes,
            "launches": launches_hash(captured.graph.raw_cuda_graph()) if captured else "",
        }

    def settle(self, least_s: float) -> Settled:
        """Runs the load itself until the board is steady under it."""
        with precision_flags(self._work.case.precision):
            return self._bench.settle(self._timed, least_s)

    def visit(self, level: float, replays: int, warm_s: float) -> Visit:
        """Times `replays` launches, after untimed ones that bring back cache and clock: two, or `warm_s` of them."""
        self._bench.at(self._timed.name, "visit")
        places, launching = self._launches[level], self._bench.launching
        launch = places[0]
        moved = launching.moved if launching else 0
        with precision_flags(self._work.case.precision):
            if launching:
                launching.steady()
            for _ in range(max(1, math.ceil(warm_s / max(self._timed.launch_s, 1e-9)))):
                launch.enqueue()
            before_hz = self._probe.read() if self._probe else None
            launch.enqueue()  # not waited for: what comes first after a pause is slower
            replayed = list(islice(cycle(places), replays))
            samples = (launching.start(self._clock, replayed) if launching else self._clock.start(replayed))()
            after_hz = self._probe.read() if self._probe else None
            launch.enqueue()  # so that there is load while the board is read
            power_w, marks = self._bench.telemetry.power_w, self._bench.telemetry.marks()
            if isinstance(self._clock, EventClock) and OFTEN * sum(self._clock.starved) > replays:
                marks.add("host_bound")
            if self._probe:
                torch.cuda.synchronize()
        for seconds in samples:
            if not (math.isfinite(seconds) and seconds > 0):
                raise ImpossibleTime(0, seconds)
        clock_hz = (before_hz + after_hz) / 2 if before_hz and after_hz else None
        if launching and launching.moved > moved:
            marks.add("launching_moved")
        each_s = tuple(seconds / launch.calls for seconds in samples)
        return Visit(each_s, clock_hz, power_w, tuple(sorted(marks)), launching.node_s if launching else None)

    def inject(self, extras: Mapping[float, Sequence[float] | None]) -> dict[str, Any]:
        """Makes a launch a level. An extra that was calibrated before is used as it is, None is calibrated now."""
        made = {}
        with precision_flags(self._work.case.precision):
            for level, known in extras.items():
                self._bench.at(self._timed.name, f"inject {level:g}")
                extra = self._calibrated(level) if known is None else Extra(int(known[0]), known[1])
                self._launches[level] = self._slowed(extra, len(self._launches[0.0]))
                made[f"{level:g}"] = list(asdict(extra).values())
        return made

    def _calibrated(self, level: float) -> Extra:
        plain = self._launches[0.0][0]
        wanted_s = level * statistics.median(time_launches(self._clock, [plain] * _CALIBRATION_PAIRS))
        if self._probe is None:
            return Extra(1, wanted_s)

        def added_s(extra: Extra) -> float:
            (slowed,) = self._slowed(extra)
            time_launches(self._clock, [plain, slowed])
            times = time_launches(self._clock, [plain, slowed] * _CALIBRATION_PAIRS)
            return difference_s(list(zip(times[::2], times[1::2], strict=True)))

        rate = self._probe.read()
        guess = first_guess(wanted_s, plain.calls, rate, self._node_floor_s)
        extra, seen_s = calibrate(guess, wanted_s, rate, added_s)
        # What a piece takes besides its length is the same at the next level, whose first guess is then right.
        self._node_floor_s = max(seen_s / extra.nodes - extra.amount / rate, 0.0)
        return extra

    def _slowed(self, extra: Extra, count: int = 1) -> list[Launch]:
        """Launches with workspaces in so many places, each with the extra."""
        plain = self._launches[0.0][0]
        if self._probe is None:

            def enqueue() -> None:
                plain.enqueue()
                end = time.perf_counter() + extra.amount
                while time.perf_counter() < end:
                    pass

            return [replace(plain, enqueue=enqueue)]
        follows = places(plain.calls, extra.nodes)
        repeated = self._timed.calls * (plain.calls // len(self._timed.calls))
        calls = [
            _followed(call, int(extra.amount)) if index in follows else call for index, call in enumerate(repeated)
        ]
        if self._timed.captured is None:

            def launch_all() -> None:
                for call in calls:
                    call()

            return [replace(plain, enqueue=launch_all)]
        first = capture(calls)
        others = (capture(calls, stream=place, like=first) for place in range(1, count))
        return [replay_of(graph) for graph in (first, *others)]


def _followed(call: Call, cycles: int) -> Call:
    def both() -> Any:
        output = call()
        torch.cuda._sleep(cycles)
        return output

    return both
