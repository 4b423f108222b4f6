"""An implementation bound to the ring and ready for the clock, with its outputs in reach of the check."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gemmgate.suite.cases import Call, Prepared
from gemmgate.suite.measure.check import Errors, poison
from gemmgate.suite.measure.graph import Captured, capture, nodes_per_call
from gemmgate.suite.measure.refusal import Refused
from gemmgate.suite.measure.rotation import Ring, tensors_in
from gemmgate.suite.measure.sampler import Clock, Launch

GRAPH_S = 1e-3
"""A captured graph lasts about this long, so that the gap before it is small beside it."""
_MAX_NODES = 4096

Verify = Callable[[int, Any], Errors]
"""Compares what a call returned with the reference of the ring's slot of that index."""


@dataclass
class Timed:
    """What the sampler needs of one implementation, and what the check needs afterwards."""

    name: str
    timer: str
    launch: Launch
    launch_s: float
    calls: tuple[Call, ...]
    workspaces: list[Any]
    nodes: tuple[str, ...] = ()
    captured: Captured | None = None
    last: dict[int, Any] = field(default_factory=dict)

    def repeated(self, times: int) -> Launch:
        """The launch `times` times over, as one sample."""
        once = self.launch

        def enqueue() -> None:
            for _ in range(times):
                once.enqueue()

        return Launch(enqueue, once.calls * times, once.host_s * times)

    def poison(self) -> None:
        """NaN over every output in reach and every workspace."""
        outputs = self.captured.outputs if self.captured else self.last.values()
        poison(tensors_in(list(outputs)))
        poison(tensors_in(self.workspaces))

    def verify(self, verify: Verify, slots: Sequence[int]) -> Errors | None:
        """The first error among the outputs that the last launches wrote, or None.

        From a graph the outputs of `slots` are compared with their references and all are looked
        through for what was not written; otherwise those of the calls last made.
        """
        if self.captured is None:
            found = [verify(slot, output) for slot, output in self.last.items()]
        else:
            count = len(self.calls)
            found = [verify(slot, self.captured.outputs[slot]) for slot in slots if slot < count]
            written = [
                torch.isfinite(tensor).all()
                for tensor in tensors_in(self.captured.outputs)
                if tensor.is_floating_point()
            ]
            if written and not bool(torch.stack(written).all()):
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

    A graph holds `passes` over the ring, or as many as make it last `GRAPH_S`.

    Raises `Refused` where a captured graph does not hold what the calls launched.
    """
    at("bind")
    slots = ring.slots if cache == "cold" else ring.slots[:1]
    # Only the scratch of these calls is poisoned later: earlier ones are gone with their slots.
    prepared.workspaces.clear()
    calls = tuple(prepared.bind(inputs) for inputs in slots)
    calls[0]()
    if "perf_counter" in clocks:
        return _called(name, "perf_counter", calls, prepared, clocks["perf_counter"])
    torch.cuda.synchronize()
    if not prepared.capturable:
        return _called(name, "events", calls, prepared, clocks["events"])
    at("capture")
    return _captured(name, calls, prepared, clocks["graph"], passes)


def _captured(name: str, calls: tuple[Call, ...], prepared: Prepared, clock: Clock, passes: int | None = None) -> Timed:
    graph = capture(calls, passes=passes or 1)
    one_s = min(clock.time([_replay(graph)] * 2))
    if passes is None:
        passes = min(math.ceil(GRAPH_S / max(one_s, 1e-9)), max(1, _MAX_NODES // max(len(graph.nodes), len(calls))))
        if passes > 1:
            graph = capture(calls, passes=passes)
            one_s = min(clock.time([_replay(graph)] * 2))
    each = nodes_per_call(graph)
    if graph.nodes and each is None:
        raise Refused(
            "invalid", "uneven_launches", f"{len(graph.nodes)} graph nodes do not divide into {graph.calls} equal calls"
        )
    if each is not None and graph.nodes and not any(not node.startswith("(") for node in each):
        raise Refused(
            "invalid", "no_kernel", f"the captured graph holds no kernel, only {', '.join(each) or 'nothing'}"
        )
    return Timed(name, clock.name, _replay(graph), one_s, calls, prepared.workspaces, each or (), graph)


def _replay(graph: Captured) -> Launch:
    return Launch(lambda: graph.replay(1), graph.calls, graph.host_s)


def _called(name: str, timer: str, calls: tuple[Call, ...], prepared: Prepared, clock: Clock) -> Timed:
    """One call after the other, round the ring; `last` keeps the newest output of each slot that was kept."""
    last: dict[int, Any] = {}
    order: Iterator[int] = itertools.cycle(range(len(calls)))

    def enqueue() -> None:
        slot = next(order)
        output = calls[slot]()
        last.clear()
        last[slot] = output

    begin = time.perf_counter()
    enqueue()
    launch = Launch(enqueue, 1, time.perf_counter() - begin)
    one_s = min(clock.time([launch] * 3))
    return Timed(name, timer, launch, one_s, calls, prepared.workspaces, last=last)


def host_and_eager_s(calls: Sequence[Call]) -> tuple[float, float]:
    """Host seconds to queue a call, and seconds a call when called one after the other without a graph."""
    taken = [*calls, *calls, *calls][: max(24, min(len(calls), 64))]
    results = []
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for call in taken:
            call()
        queued = time.perf_counter()
        torch.cuda.synchronize()
        results.append(((queued - begin) / len(taken), (time.perf_counter() - begin) / len(taken)))
    return sorted(results)[1]
