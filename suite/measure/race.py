"""Many tiles of one case, timed against each other: the worker's side of a search over tiles.

A tile's graph holds calls over a part of the case's ring, not over all of it, so that a candidate costs
milliseconds. What makes the state cold is a read of a buffer twice the size of the cache, untimed, before each
sample: it leaves clean lines of other data, as the rest of the ring would. Times so taken serve to choose; finals
run over a longer part on new buffers, and what is reported is measured afresh by the whole method.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from gemmgate.suite.cases import Implementation, Tile
from gemmgate.suite.measure.bench import Bench
from gemmgate.suite.measure.graph import capture
from gemmgate.suite.measure.machine import precision_flags
from gemmgate.suite.measure.refusal import Refused, status_of
from gemmgate.suite.measure.sampler import ImpossibleTime, Launch, balanced_orders, time_launches
from gemmgate.suite.measure.work import Work

WINDOW_S = 2e-4
"""A sample lasts about this long, so that the events around it do not count."""
WINDOW_CALLS = (8, 256)
EVICTED = 2
"""Times the cache that is read to empty it."""
_SLOW = 20
"""A call so many times slower than the fastest so far is not captured: its samples would hold up the others."""
_LOOKS = 3
_SETTLE_S = 0.02
_PAUSE_S = 0.05
"""So long after the last rounds the clock may have sunk."""
_CALL_HOST_S = 1e-4
_EVICTOR_HOST_S = 3e-5
"""About how long the host needs to queue a call, and the read that empties the cache."""


@dataclass
class _Runner:
    """A tile ready to be timed, with all that its launch touches."""

    launch: Launch
    kept: tuple[Any, ...]


class Race:
    """The candidates of one case by key. Keys are names to the `Work` too: checks and samples are as for any other.

    `find` gives implementations by name. The state is cold where the ring is.
    """

    def __init__(self, bench: Bench, work: Work, find: Callable[[str], Implementation]) -> None:
        self._bench = bench
        self._work = work
        self._find = find
        self._slots = work.ring.slots if work.ring.cold else work.ring.slots[:1]
        self._clock = next(iter(bench.clocks.values()))
        self._evict = self._evictor() if work.ring.cold and bench.device.type == "cuda" else None
        self._runners: dict[str, _Runner] = {}
        self._begin = 0
        self._rested_since = -math.inf
        self._call_s: float | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The steps of a race: `begin mount time check drop`."""
        step = request["step"]
        if step == "mount":
            implementation = self._find(request["implementation"])
            return {"outcomes": self.mount(implementation, request["tiles"])}
        if step == "time":
            return {"samples_s": self.time(request["keys"], request["rounds"], fresh=request["fresh"])}
        if step == "check":
            return self._bench.check(self._work, request["key"])
        if step == "drop":
            self.drop(request["keys"])
        return {"cold": self._work.ring.cold, "why": self._work.ring.why}

    def mount(self, implementation: Implementation, tiles: Mapping[str, Tile | None]) -> dict[str, Any]:
        """Prepares, calls once and captures each tile; for each key facts, or a status with its reason.

        Raises what makes this process useless; the step that was told last then names the tile.
        """
        outcomes = {}
        with precision_flags(self._work.case.precision):
            for key, tile in tiles.items():
                try:
                    facts = self._bench.prepare(self._work, replace(implementation, name=key), tile)
                    self._bench.at(key, "mount")
                    self._runners[key] = self._runner(key)
                    if tile is None:  # no candidate, so none is slow beside it
                        self._call_s = None
                    outcomes[key] = {"ok": True, **facts}
                except Exception as error:
                    outcomes[key] = status_of(error)
                    if outcomes[key]["fatal"]:
                        raise
        return outcomes

    def time(self, keys: Sequence[str], rounds: int, *, fresh: bool) -> dict[str, list[float]]:
        """Interleaved rounds; with `fresh`, over new buffers and graphs. Who gives an impossible time is missing."""
        with precision_flags(self._work.case.precision):
            for key in keys if fresh else ():
                self._bench.at(key, "mount")
                self._runners[key] = self._runner(key, is_long=True)
            self._bench.at("", "time tiles")
            if time.perf_counter() - self._rested_since > _PAUSE_S:
                self._settle(self._runners[keys[0]])
                if self._bench.launching:
                    self._bench.launching.steady()
            left = list(keys)
            while left:
                try:
                    samples = self._rounds([self._runners[key].launch for key in left], rounds)
                    self._rested_since = time.perf_counter()
                    return dict(zip(left, samples, strict=True))
                except ImpossibleTime as impossible:
                    del left[impossible.index]
        return {}

    def _rounds(self, launches: Sequence[Launch], rounds: int) -> list[list[float]]:
        """Seconds a call, each sample from an empty cache."""
        samples: list[list[float]] = [[] for _ in launches]
        between = [self._evict] if self._evict else []
        for order in balanced_orders(len(launches), rounds):
            queued = [launch for index in order for launch in (*between, launches[index])]
            seconds = time_launches(self._clock, queued)[len(between) :: len(between) + 1]
            for index, value in zip(order, seconds, strict=True):
                if not (math.isfinite(value) and value > 0):
                    raise ImpossibleTime(index, value)
                samples[index].append(value / launches[index].calls)
        return samples

    def drop(self, keys: Sequence[str]) -> None:
        """Frees graphs and buffers; the compiled tile stays, so that `time` with `fresh` and samples can have it."""
        for key in keys:
            self._runners.pop(key, None)
            self._work.ready[key].workspaces.clear()
            self._work.ready[key].state.clear()

    def _runner(self, key: str, *, is_long: bool = False) -> _Runner:
        """Binds the next part of the ring in turn, or a long one, and captures calls over it."""
        prepared = self._work.ready[key]
        width = min(WINDOW_CALLS[1] if is_long else self._calls(), len(self._slots))
        part = [self._slots[(self._begin + index) % len(self._slots)] for index in range(width)]
        self._begin = (self._begin + width) % len(self._slots)
        prepared.workspaces.clear()
        prepared.state.clear()
        bound = [prepared.bind(inputs) for inputs in part]
        kept = (bound, list(prepared.workspaces))
        self._refuse_slow(bound[0])
        if self._bench.device.type == "cuda" and prepared.capturable:
            graph = capture(bound, passes=max(1, self._calls() // width))
            return _Runner(Launch(graph.graph.replay, graph.calls, graph.host_s), (graph, *kept))
        begin = time.perf_counter()
        _call_all(bound)
        return _Runner(Launch(partial(_call_all, bound), width, time.perf_counter() - begin), kept)

    def _evictor(self) -> Launch:
        """Reads what pushes everything else out of the cache."""
        buffer = torch.zeros(EVICTED * self._work.cache_bytes // 4, dtype=torch.int32, device=self._bench.device)
        out = torch.empty((), dtype=torch.int64, device=self._bench.device)
        return Launch(lambda: torch.sum(buffer, dim=0, out=out), 1, _EVICTOR_HOST_S)

    def _refuse_slow(self, call: Callable[[], Any]) -> None:
        """Raises where a call takes so long that it cannot win, several times over; remembers the shortest."""
        call()
        most_s = math.inf if self._call_s is None else _SLOW * self._call_s
        for _ in range(_LOOKS):
            (seconds,) = time_launches(self._clock, [Launch(call, 1, _CALL_HOST_S)])
            if seconds <= most_s:
                self._call_s = min(seconds, self._call_s or seconds)
                return
        raise Refused("unsupported", "too_slow", f"a call takes {seconds:.2g} s, and others {self._call_s:.2g} s")

    def _calls(self) -> int:
        """Calls that make a sample of the fastest so far."""
        least, most = WINDOW_CALLS
        enough = math.ceil(WINDOW_S / self._call_s) if self._call_s else least
        return min(max(enough, least), most)

    def _settle(self, runner: _Runner) -> None:
        """A little load first: the clock sinks while a search waits for its compilers."""
        if self._bench.device.type != "cuda":
            return
        end = time.perf_counter() + _SETTLE_S
        while time.perf_counter() < end:
            for _ in range(8):
                runner.launch.enqueue()
            torch.cuda.synchronize(self._bench.device)


def _call_all(calls: Sequence[Callable[[], Any]]) -> None:
    for call in calls:
        call()
