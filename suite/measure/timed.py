"""An implementation bound to the ring and ready for the clock, with its outputs in reach of the check."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gemmgate.suite.cases import Call, Prepared
from gemmgate.suite.measure.check import Errors, all_finite, poison
from gemmgate.suite.measure.graph import Captured, capture, nodes_per_call
from gemmgate.suite.measure.refusal import Refused
from gemmgate.suite.measure.rotation import Ring, storage_bytes, tensors_in
from gemmgate.suite.measure.sampler import Clock, Launch, time_launches
from gemmgate.suite.measure.settings import Settings

GRAPH_S = 1e-3
"""A captured graph lasts about this long, so that the gap before it is small beside it."""
_GAP_S = 4e-6
"""About how long that gap is: what a replay of one short call takes is mostly this."""
_MAX_NODES = 4096
_MOST_QUEUED = 200
"""Calls without a graph in one sample: the stream's queue holds about a thousand launches, and a full one lets the
device catch up with the host."""
_HOST_CALLS = 64
_HOST_S = 20e-3

Verify = Callable[[int, Any], Errors]
"""Compares what a call returned with the reference of the ring's slot of that index."""


@dataclass
class Timed:
    """What the sampler needs of one implementation, and what the check needs afterwards.

    `settings` are the harness's own, which calls may have changed by the time of the check.
    """

    name: str
    timer: str
    launch: Launch
    launch_s: float
    calls: tuple[Call, ...]
    workspaces: list[Any]
    workspace_bytes: int = 0
    nodes: tuple[str, ...] = ()
    captured: Captured | None = None
    last: dict[int, Any] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings.read)

    @property
    def most_repeats(self) -> int | None:
        """How often one sample may hold the launch; None where that does not matter."""
        return _MOST_QUEUED if self.timer == "events" else None

    def repeated(self, times: int) -> Launch:
        """The launch `times` times over, as one sample."""
        once = self.launch

        def enqueue() -> None:
            for _ in range(times):
                once.enqueue()

        return Launch(enqueue, once.calls * times, once.host_s * times)

    def passes_over(self, slots: int) -> int | None:
        """Passes over another ring of so many slots that fill a graph, as far as this one tells; None without a graph.

        That spares the graph of one pass by which it is found out otherwise.
        """
        if self.captured is None:
            return None
        alone_s = _GAP_S + slots / self.launch.calls * (self.launch_s - _GAP_S)
        return _passes_that_fill(alone_s, slots * max(len(self.nodes), 1))

    def captured_elsewhere(self, stream: int) -> Timed:
        """The same calls in another graph, captured on that stream: a library's own workspace is elsewhere in it.

        Raises ValueError without a graph.
        """
        if self.captured is None:
            raise ValueError(f"{self.name} has no graph: what is called one by one is on one stream.")
        passes = self.captured.calls // len(self.calls)
        graph = capture(self.calls, passes=passes, stream=stream, like=self.captured)
        return replace(self, launch=replay_of(graph), captured=graph)

    def poison(self) -> None:
        """NaN over every output in reach and every workspace."""
        outputs = self.captured.outputs if self.captured else self.last.values()
        poison(tensors_in(list(outputs)))
        poison(tensors_in(self.workspaces))

    def verify(self, verify: Verify) -> Errors | None:
        """The first error among the outputs that the last launches wrote, or None.

        From a graph the outputs of the first, the middle and the last call are compared with their
        references and all are looked through for what was not written; otherwise those of the calls
        last made.
        """
        self.settings.put_back()
        if self.captured is None:
            found = [verify(slot, output) for slot, output in self.last.items()]
        else:
            outputs = self.captured.outputs
            picked = sorted({0, len(outputs) // 2, len(outputs) - 1})
            found = [verify(index % len(self.calls), outputs[index]) for index in picked]
            if not all_finite(tensors_in(self.captured.outputs)):
                found.append(
                    Errors(
                        math.inf, math.inf, math.nan, "not_finite", "some output of the timed launches is NaN or Inf"
                    )
                )
        return next((errors for errors in found if errors.reason), None)


def make_timed(
    name: str,
    prepared: Prepared,
    ring: Ring,
    cache: str,
    clocks: dict[str, Clock],
    at: Callable[[str], None],
    passes: int | None = None,
) -> Timed:
    """Binds, warms up, captures. `clocks` has `graph` and `events`, or `perf_counter` alone.

    A graph holds `passes` over the ring, or as many as make it last `GRAPH_S`. Raises `Refused` where a
    captured graph does not hold what the calls launched, or where the clock gives a time that cannot be.
    """
    at("bind")
    settings = Settings.read()
    slots = ring.slots[:1] if cache == "hot" else ring.slots
    # Only the scratch of these calls is poisoned later: earlier ones are gone with their slots.
    prepared.workspaces.clear()
    prepared.state.clear()
    first = prepared.bind(slots[0])
    workspace_bytes = storage_bytes([*prepared.workspaces, *prepared.state])
    calls = (first, *(prepared.bind(inputs) for inputs in slots[1:]))
    calls[0]()
    if "perf_counter" in clocks:
        timed = one_by_one(name, "perf_counter", calls, prepared, clocks["perf_counter"])
    elif prepared.capturable:
        torch.cuda.synchronize()
        at("capture")
        timed = _captured(name, calls, prepared, clocks["graph"], passes)
    else:
        timed = one_by_one(name, "events", calls, prepared, clocks["events"])
    return replace(timed, workspace_bytes=workspace_bytes, settings=settings)


def _captured(name: str, calls: tuple[Call, ...], prepared: Prepared, clock: Clock, passes: int | None) -> Timed:
    graph = capture(calls, passes=passes or 1)
    one_s = _shortest(clock, [replay_of(graph)] * 2)
    if passes is None:
        passes = _passes_that_fill(one_s, max(len(graph.nodes), len(calls)))
        if passes > 1:
            graph = capture(calls, passes=passes)
            one_s = _shortest(clock, [replay_of(graph)] * 2)
    each = nodes_per_call(graph)
    if graph.nodes and each is None:
        raise Refused(
            "invalid", "uneven_launches", f"{len(graph.nodes)} graph nodes do not divide into {graph.calls} equal calls"
        )
    if each is not None and graph.nodes and not any(not node.startswith("(") for node in each):
        raise Refused(
            "invalid", "no_kernel", f"the captured graph holds no kernel, only {', '.join(each) or 'nothing'}"
        )
    launch = replay_of(graph)
    return Timed(name, clock.name, launch, one_s, calls, prepared.workspaces, nodes=each or (), captured=graph)


def _passes_that_fill(one_s: float, nodes: int) -> int:
    """How often a graph of `nodes`, which takes `one_s` alone, is to be repeated within one that lasts `GRAPH_S`."""
    calls_s = max(one_s - _GAP_S, one_s / 4)
    return min(math.ceil(GRAPH_S / calls_s), max(1, _MAX_NODES // nodes))


def replay_of(graph: Captured) -> Launch:
    """A captured graph, once."""
    return Launch(lambda: graph.replay(1), graph.calls, graph.host_s)


def _shortest(clock: Clock, launches: Sequence[Launch]) -> float:
    seconds = time_launches(clock, launches)
    for value in seconds:
        if not (math.isfinite(value) and value > 0):
            raise Refused("invalid", "impossible_time", f"the clock gave {value} s for one launch")
    return min(seconds)


def one_by_one(name: str, timer: str, calls: tuple[Call, ...], prepared: Prepared, clock: Clock) -> Timed:
    """One call after the other, round the ring; `last` keeps the newest output of each slot that was kept."""
    last: dict[int, Any] = {}
    order: Iterator[int] = itertools.cycle(range(len(calls)))

    def enqueue() -> None:
        slot = next(order)
        output = calls[slot]()
        last.clear()
        last[slot] = output

    if timer == "events":
        enqueue()  # so that the next one shows what the host needs from now on
    begin = time.perf_counter()
    enqueue()
    launch = Launch(enqueue, 1, time.perf_counter() - begin)
    one_s = _shortest(clock, [launch] * 3)
    return Timed(name, timer, launch, one_s, calls, prepared.workspaces, last=last)


def host_and_eager_s(timed: Timed) -> tuple[float, float]:
    """Host seconds to queue a call, and seconds a call when called one after the other without a graph.

    Enough calls that the wait for the last one does not count, few enough for the queue.
    """
    one_s = timed.launch_s / timed.launch.calls
    count = max(8, min(_HOST_CALLS, round(_HOST_S / one_s)))
    taken = list(itertools.islice(itertools.cycle(timed.calls), count))
    results = []
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for call in taken:
            call()
        queued = time.perf_counter()
        torch.cuda.synchronize()
        results.append(((queued - begin) / count, (time.perf_counter() - begin) / count))
    return sorted(results)[1]
