"""One call timed by several benchmark functions, each beside the kernel time that a trace shows in its cache state.

A function of other people is called as its documentation says, with its defaults; what it returns is one reading.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from gemmgate.suite.cases import Call, Prepared
from gemmgate.suite.measure import drop_in
from gemmgate.suite.measure.crosscheck import cut
from gemmgate.suite.measure.refusal import status_of
from gemmgate.suite.measure.rotation import Ring
from gemmgate.suite.measure.sampler import Clock, rounds_and_repeats, sample
from gemmgate.suite.measure.timed import make_timed
from gemmgate.suite.measure.trace import trace

REPEATS = 10
_FLUSH_BYTES = 256 * 2**20
"""What Triton's function writes before each call, and Inductor's much the same."""
_TRACED = 60
_SAMPLE_S = 1e-3


@dataclass(frozen=True)
class Peer:
    """A benchmark function: `read()` gives seconds a call. `cache` is the state that it measures in.

    `hot`: the call before used the same inputs. `flushed`: zeros were written over the L2 before, and their lines are
    dirty. `swept`: other data was read instead. `cold`: inputs go round a ring.
    """

    name: str
    cache: str
    read: Callable[[], float]


def peers(name: str, prepared: Prepared, ring: Ring, clocks: dict[str, Clock]) -> list[Peer]:
    """Triton's two, torch's, Inductor's, and ours in the two states that runs measure and as a drop-in."""
    call = prepared.bind(ring.slots[0])

    def graph(cache: str) -> float:
        timed = make_timed(name, prepared, ring, cache, clocks, lambda step: None)
        rounds, (times,) = rounds_and_repeats([timed.launch_s], None, _SAMPLE_S)
        launch = timed.repeated(min(times, timed.most_repeats or times))
        return statistics.median(sample(clocks[timed.timer], [launch], rounds)[0])

    return [
        Peer("triton do_bench", "flushed", partial(_do_bench, call)),
        Peer("triton do_bench_cudagraph", "hot", partial(_do_bench_cudagraph, call)),
        Peer("torch.utils.benchmark", "hot", partial(_torch_timer, call)),
        Peer("inductor benchmarker", "flushed", partial(_inductor, call)),
        Peer("gemmgate do_bench", "swept", lambda: 1e-3 * float(drop_in.do_bench(call, return_mode="median"))),
        Peer("gemmgate run, hot", "hot", partial(graph, "hot")),
        Peer("gemmgate run, cold", "cold", partial(graph, "cold")),
    ]


def compare(
    name: str, prepared: Prepared, ring: Ring, clocks: dict[str, Clock], repeats: int, at: Callable[[str], None]
) -> dict[str, Any]:
    """`readings` of every peer, and `kernels`: the kernels' own time by cache state."""
    read = readings(peers(name, prepared, ring, clocks), repeats, at)
    at("trace")
    return {"readings": read, "kernels": kernel_times(name, prepared, ring, clocks)}


def readings(
    found: Sequence[Peer],
    repeats: int,
    at: Callable[[str], None],
    now: Callable[[], float] = time.perf_counter,
) -> list[dict[str, Any]]:
    """For each peer its readings in seconds, and the seconds that they took; or a status where it cannot time this.

    Repeats go round, so that what a board does meanwhile falls on all alike. The first reading of each, which
    compiles and allocates, is thrown away.
    """
    taken: list[list[float]] = [[] for _ in found]
    spent_s = [0.0] * len(found)
    failed: dict[int, Mapping[str, Any]] = {}
    for repeat in range(repeats + 1):
        for index, peer in enumerate(found):
            if index in failed:
                continue
            at(peer.name)
            begin = now()
            try:
                seconds = peer.read()
            except Exception as error:
                outcome = status_of(error)
                if outcome["fatal"]:
                    raise
                failed[index] = outcome
                continue
            if repeat:
                taken[index].append(seconds)
                spent_s[index] += now() - begin
    made: list[dict[str, Any]] = []
    for index, peer in enumerate(found):
        facts = failed.get(index) or {"samples_s": taken[index], "measure_s": spent_s[index]}
        made.append({**facts, "timer": peer.name, "cache": peer.cache})
    return made


def kernel_times(name: str, prepared: Prepared, ring: Ring, clocks: dict[str, Clock]) -> dict[str, dict[str, Any]]:
    """By cache state the seconds in kernels of single calls, as the profiler traced them; empty where it may not.

    What empties the cache is traced with the call and left out: it launches first.
    """
    call = prepared.bind(ring.slots[0])
    call()
    alone = cut(trace(lambda: _times(call, 3)), 3)
    if alone is None:
        return {}
    each = len(alone.names)
    flush = torch.empty(_FLUSH_BYTES // 4, dtype=torch.int32, device=ring_device(ring))
    sweep = drop_in.sweeping(torch.cuda.current_device())
    sweep()
    before: dict[str, Callable[[], object]] = {
        "hot": lambda: None,
        "flushed": flush.zero_,
        "swept": sweep,
    }
    found = {}
    for cache, empty in before.items():
        sums = _call_sums(trace(lambda empty=empty: _times(lambda: (empty(), call()), _TRACED)), each)  # type: ignore[misc]
        if sums:
            found[cache] = {"samples_s": sums, "kernels": each}
    timed = make_timed(name, prepared, ring, "cold", clocks, lambda step: None)
    times = max(1, -(-_TRACED // timed.launch.calls))
    cold = cut(trace(timed.repeated(times).enqueue), times * timed.launch.calls)
    if cold is not None:
        found["cold"] = {"samples_s": list(cold.call_s[:: max(1, len(cold.call_s) // _TRACED)]), "kernels": each}
    return found


def ring_device(ring: Ring) -> torch.device:
    """Where a ring lies."""
    return next(tensor.device for tensor in ring.slots[0].values() if isinstance(tensor, torch.Tensor))


def _call_sums(activities: Sequence[Any], each: int) -> list[float]:
    """Seconds in the last `each` activities of every repetition; none where the trace does not divide."""
    if not activities or len(activities) % _TRACED:
        return []
    size = len(activities) // _TRACED
    return [
        sum(one.duration_s for one in activities[end - each : end]) for end in range(size, len(activities) + 1, size)
    ]


def _times(call: Callable[[], object], count: int) -> None:
    for _ in range(count):
        call()


def _do_bench(call: Call) -> float:
    from triton import testing

    return 1e-3 * float(testing.do_bench(call))


def _do_bench_cudagraph(call: Call) -> float:
    from triton import testing

    return 1e-3 * float(testing.do_bench_cudagraph(call))


def _torch_timer(call: Call) -> float:
    from torch.utils.benchmark import Timer

    return float(Timer("call()", globals={"call": call}).blocked_autorange().median)


def _inductor(call: Call) -> float:
    from torch._inductor.runtime.benchmarking import benchmarker

    return 1e-3 * float(benchmarker.benchmark_gpu(call))
