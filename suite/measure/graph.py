"""CUDA graphs: capture, and what a captured graph really holds.

A graph may hold something else than the stream ran: a copy becomes a memcpy node, a kernel may be
missing. So the nodes are read back through the driver, and so are edges by which a kernel may begin
before its predecessor has ended.
"""

from __future__ import annotations

import ctypes
import hashlib
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from gemmgate.suite.cases import Call

_NODE_TYPES = {0: "kernel", 1: "memcpy", 2: "memset", 3: "host", 4: "graph", 5: "empty"}
_PROGRAMMATIC = 1
_HOST_REPLAYS = 3


@dataclass(frozen=True)
class Captured:
    """A graph of `calls` calls. `outputs[i]` is what the i-th call returned and each replay fills again.

    `nodes` are the graph's nodes in order, as `kernel` names or, in parentheses, what else they are;
    empty where the driver could not be asked. `host_s` is how long the host needs to queue a replay.
    `programmatic` is how many calls a programmatic launch lets begin before the one before them has ended.

    Calls over one slot reuse the memory of their outputs, as they would in a program, and `outputs`
    has the last call's alone: fresh memory for each would push the slot out of the cache.
    """

    graph: torch.cuda.CUDAGraph
    outputs: tuple[Any, ...]
    calls: int
    nodes: tuple[str, ...]
    host_s: float
    programmatic: int = 0

    def replay(self, times: int) -> None:
        for _ in range(times):
            self.graph.replay()


def capture(calls: Sequence[Call], *, passes: int = 1, stream: int = 0, like: Captured | None = None) -> Captured:
    """Captures `passes` rounds over the calls. Each call has run before, so that nothing compiles here.

    `stream` is the number of the capturing stream: what a library keeps for each is elsewhere with another one.
    What was found out of a graph of the same calls, `like`, is not found out again; but it is replayed once, since the
    first time is slower.
    """
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    outputs: list[Any] = []
    torch.cuda.synchronize()
    # Not `with torch.cuda.graph(...)`: that collects garbage and empties the allocator's cache each time.
    with torch.cuda.stream(capture_stream(torch.cuda.current_device(), stream)):
        # What a library allocates once for a stream, such as cuBLAS its workspace, must not land in a graph's pool.
        calls[0]()
        torch.cuda.synchronize()
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for _ in range(passes):
                for call in calls:
                    output = call()
                    if len(calls) == 1:
                        outputs.clear()
                    outputs.append(output)
        except BaseException:
            with suppress(Exception):  # it would say that capturing failed, not why
                graph.capture_end()
            raise
        graph.capture_end()
    torch.cuda.synchronize()
    if like is not None:
        graph.instantiate()
        graph.replay()
        torch.cuda.synchronize()
        return replace(like, graph=graph, outputs=tuple(outputs))
    nodes = _nodes(graph.raw_cuda_graph())
    programmatic = overlapping_calls(_edges(graph.raw_cuda_graph()), passes * len(calls))
    graph.instantiate()
    return Captured(graph, tuple(outputs), passes * len(calls), nodes, queueing_s(graph.replay), programmatic)


def queueing_s(
    replay: Callable[[], None],
    wait: Callable[[], None] = torch.cuda.synchronize,
    now: Callable[[], float] = time.perf_counter,
) -> float:
    """How long the host needs to queue a replay: of several the median, for all later timing waits that long each time.

    The first of all is slower, and one that the host was kept from is no measure either.
    """
    seconds = []
    for _ in range(1 + _HOST_REPLAYS):
        begin = now()
        replay()
        seconds.append(now() - begin)
        wait()
    return statistics.median(seconds[1:])


@cache
def capture_stream(device: int, number: int = 0) -> Any:
    """One of the few streams that capture: what libraries keep for a stream, they then keep once for each number."""
    return torch.cuda.Stream(device)


def nodes_per_call(captured: Captured) -> tuple[str, ...] | None:
    """The nodes of one call where all calls have the same, else None.

    Nodes of a linear capture come in order of launch; the calls are compared as multisets, since the
    driver does not promise that order.
    """
    if captured.calls == 0 or len(captured.nodes) % captured.calls:
        return None
    each = len(captured.nodes) // captured.calls
    counts = {name: captured.nodes.count(name) for name in set(captured.nodes)}
    if any(count % captured.calls for count in counts.values()):
        return None
    return captured.nodes[:each]


class _EdgeData(ctypes.Structure):
    """CUgraphEdgeData of the driver's interface."""

    _fields_ = (
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    )


Edge = tuple[int, int, bool]
"""From which node to which, and whether by a programmatic launch."""


def overlapping_calls(edges: Sequence[Edge], calls: int) -> int:
    """How many programmatic edges lead from one call into the next: within a call its own kernels may overlap.

    The calls of a linear capture have equally many nodes. Where the graph is no line, every such edge counts.
    """
    programmatic = sum(is_programmatic for _, _, is_programmatic in edges)
    after = {start: (end, is_programmatic) for start, end, is_programmatic in edges}
    first = {start for start, _, _ in edges} - {end for _, end, _ in edges}
    if not programmatic or len(after) != len(edges) or len(first) != 1 or (len(edges) + 1) % calls:
        return programmatic
    each, node, count = (len(edges) + 1) // calls, first.pop(), 0
    for place in range(1, len(edges) + 1):
        if node not in after:
            return programmatic
        node, is_programmatic = after[node]
        count += is_programmatic and place % each == 0
    return count


def _edges(raw: int) -> list[Edge]:
    """Those of a graph; none where the driver cannot tell of programmatic ones."""
    ask = getattr(_driver(), "cuGraphGetEdges_v2", None)
    graph, count = ctypes.c_void_p(raw), ctypes.c_size_t()
    if ask is None or ask(graph, None, None, None, ctypes.byref(count)) or not count.value:
        return []
    ends = [(ctypes.c_void_p * count.value)() for _ in range(2)]
    data = (_EdgeData * count.value)()
    if ask(graph, *ends, data, ctypes.byref(count)):
        return []
    return [(start, end, edge.type == _PROGRAMMATIC) for start, end, edge in zip(*ends, data, strict=True)]


def _nodes(raw: int) -> tuple[str, ...]:
    driver = _driver()
    handles = _handles(driver, raw) if driver else None
    return tuple(_node_name(driver, ctypes.c_void_p(handle)) for handle in handles or ()) if driver else ()


def _handles(driver: ctypes.CDLL, raw: int) -> Any:
    """A graph's nodes, None where the driver does not say."""
    graph = ctypes.c_void_p(raw)
    count = ctypes.c_size_t()
    if driver.cuGraphGetNodes(graph, None, ctypes.byref(count)):
        return None
    handles = (ctypes.c_void_p * count.value)()
    return None if driver.cuGraphGetNodes(graph, handles, ctypes.byref(count)) else handles


def launches_hash(raw: int) -> str:
    """sha256 over kind, name, grid, block and shared memory of a graph's nodes in order; empty where not all are known.

    Graphs over the same inputs with the same hash launch the same things, as far as their names tell them apart.
    """
    driver = _driver()
    handles = _handles(driver, raw) if driver else None
    if driver is None or not handles:
        return ""
    digest = hashlib.sha256()
    for handle in handles:
        node, params = ctypes.c_void_p(handle), _KernelParams()
        name = _node_name(driver, node)
        if name in ("kernel", "(unknown)"):
            return ""
        if not name.startswith("(") and driver.cuGraphKernelNodeGetParams_v2(node, ctypes.byref(params)):
            return ""
        shape = (name, *params.grid, *params.block, params.shared_bytes)
        digest.update(repr(shape).encode())
    return digest.hexdigest()


class _KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2 of the driver's interface."""

    _fields_ = (
        ("func", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("params", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


def _node_name(driver: ctypes.CDLL, node: ctypes.c_void_p) -> str:
    kind = ctypes.c_int()
    if driver.cuGraphNodeGetType(node, ctypes.byref(kind)):
        return "(unknown)"
    if kind.value != 0:
        return f"({_NODE_TYPES.get(kind.value, f'type {kind.value}')})"
    params = _KernelParams()
    name = ctypes.c_char_p()
    if driver.cuGraphKernelNodeGetParams_v2(node, ctypes.byref(params)):
        return "kernel"
    if params.func and not driver.cuFuncGetName(ctypes.byref(name), ctypes.c_void_p(params.func)) and name.value:
        return name.value.decode()
    if params.kernel and not driver.cuKernelGetName(ctypes.byref(name), ctypes.c_void_p(params.kernel)) and name.value:
        return name.value.decode()
    return "kernel"


@cache
def _driver() -> ctypes.CDLL | None:
    """libcuda with the functions used here, or None: an old driver, or a GPU of another maker."""
    if torch.version.hip:
        return None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        for name in (
            "cuGraphGetNodes",
            "cuGraphNodeGetType",
            "cuGraphKernelNodeGetParams_v2",
            "cuFuncGetName",
            "cuKernelGetName",
        ):
            getattr(driver, name)
    except (OSError, AttributeError):
        return None
    return driver
