"""Our clock for other people's programs: `do_bench` in the place of Triton's, and `measure` for a pair.

Both time CUDA graphs where the function can be captured, else launches behind a queue that is held back;
on a CPU they read `perf_counter`.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch

from gemmgate.suite.cases import Prepared
from gemmgate.suite.measure import launching
from gemmgate.suite.measure.clock import EventClock, HostClock
from gemmgate.suite.measure.machine import last_level_cache_bytes
from gemmgate.suite.measure.rotation import CACHE_MULTIPLE, Ring, build_ring, storage_bytes
from gemmgate.suite.measure.sampler import Clock, rounds_and_repeats, sample, time_launches
from gemmgate.suite.measure.timed import Timed, make_timed
from gemmgate.suite.statistics import Interval, Summary, ratio_interval, summarise

ReturnMode = Literal["min", "max", "mean", "median", "all"]
_MODES = ("min", "max", "mean", "median", "all")
_FEWEST_ROUNDS = 5
_ROW = 1024


@dataclass(frozen=True)
class Measured:
    """Two functions sampled in the same rounds. `ratio` is the time of the first over that of the second: above 1
    the second is faster.
    """

    first: Summary
    second: Summary
    ratio: Interval
    timer: str
    cache: str


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[torch.Tensor] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: ReturnMode = "mean",
) -> Any:
    """Milliseconds of one call of `fn`: what `triton.testing.do_bench` accepts, and what it returns.

    As there, `fn` finds nothing of its inputs in the L2 cache; but what empties the cache only reads, so
    that `fn` has no dirty lines to write back, and it is timed in a graph, so that the host has no part.
    With `grad_to_none`, whose gradients are dropped before each call, it is launched call by call. On a
    CPU the inputs are as the last call left them.

    `warmup` and `rep` are milliseconds; `quantiles`, or else `return_mode`, says what is returned.
    """
    if return_mode not in _MODES:
        raise ValueError(f"return_mode '{return_mode}' is none of {', '.join(_MODES)}.")
    call = fn if grad_to_none is None else _dropping_gradients(fn, grad_to_none)
    call()
    samples_s = (
        _on_gpu(call, warmup * 1e-3, rep * 1e-3, capturable=grad_to_none is None)
        if torch.cuda.is_available()
        else _on_cpu(call, warmup * 1e-3, rep * 1e-3)
    )
    return _summarised([1e3 * seconds for seconds in samples_s], quantiles, return_mode)


def measure(
    fn_a: Callable[..., Any],
    fn_b: Callable[..., Any],
    inputs: Sequence[Any] | Callable[[int], Sequence[Any]] = (),
    *,
    seconds: float = 0.5,
    confidence: float = 0.95,
) -> Measured:
    """The paired ratio of two functions of the same arguments, with its interval.

    `inputs` are the arguments, which both then find in the cache; or a function from a number to fresh
    arguments, of which as many sets are made as it takes that neither does. Their results are not compared.
    """
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    ring = _ring(inputs, device)
    state = "cold" if ring.cold else "hot"
    clocks = _clocks(device)
    timed = [
        make_timed(name, _prepared(fn, ring), ring, state, clocks, _ignore)
        for name, fn in (("first", fn_a), ("second", fn_b))
    ]
    timers = {one.timer for one in timed}
    if len(timers) > 1:
        timed = [
            make_timed(one.name, Prepared(bind, capturable=False), ring, state, clocks, _ignore)
            for one, bind in zip(timed, (_bind(fn_a), _bind(fn_b)), strict=True)
        ]
    rounds, repeats = rounds_and_repeats([one.launch_s for one in timed], seconds, 1e-3)
    launches = [one.repeated(min(times, one.most_repeats or times)) for one, times in zip(timed, repeats, strict=True)]
    if device.type == "cuda":
        launching.of_device(torch.cuda.current_device()).steady()
    first, second = sample(clocks[timed[0].timer], launches, rounds)
    return Measured(
        summarise(first, confidence),
        summarise(second, confidence),
        ratio_interval(first, second, paired=True, confidence=confidence),
        timed[0].timer,
        state,
    )


def _ring(inputs: Sequence[Any] | Callable[[int], Sequence[Any]], device: torch.device) -> Ring:
    if not callable(inputs):
        arguments = {"arguments": tuple(inputs)}
        return Ring((arguments,), storage_bytes(arguments), cold=False)
    make = inputs
    ring = build_ring(lambda slot: {"arguments": tuple(make(slot))}, _cache_bytes(device), device)
    if not ring.cold:
        raise ValueError(f"There is no room for fresh arguments: {ring.why}. Give one set of them instead.")
    return ring


def _bind(fn: Callable[..., Any]) -> Callable[[Mapping[str, Any]], Callable[[], Any]]:
    def bind(inputs: Mapping[str, Any]) -> Callable[[], Any]:
        arguments = inputs["arguments"]
        return lambda: fn(*arguments)

    return bind


def _prepared(fn: Callable[..., Any], ring: Ring) -> Prepared:
    bind = _bind(fn)
    call = bind(ring.slots[0])
    call()
    return Prepared(bind, capturable=torch.cuda.is_available() and _can_be_captured(call))


def _can_be_captured(call: Callable[[], Any]) -> bool:
    """Whether a call waits for nothing: told without a capture, for one that fails leaves its traces."""
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this mode is a prototype
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            call()
        except RuntimeError:
            return False
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return True


def _on_cpu(call: Callable[[], Any], warmup_s: float, rep_s: float) -> list[float]:
    clock = HostClock()
    ring = Ring(({},), 0, cold=False)
    timed = make_timed("fn", Prepared(lambda inputs: call), ring, "hot", {"perf_counter": clock}, _ignore)
    return _sampled(clock, [timed.repeated(1)], [timed.launch_s], warmup_s, rep_s)[0]


def _on_gpu(call: Callable[[], Any], warmup_s: float, rep_s: float, *, capturable: bool) -> list[float]:
    """The time of emptying the cache and calling, less that of emptying it alone, from the same rounds."""
    clocks = _clocks(torch.device("cuda", torch.cuda.current_device()))
    ring = Ring(({},), 0, cold=False)
    capturable = capturable and _can_be_captured(call)
    sweep = sweeping(torch.cuda.current_device())

    def both() -> Any:
        sweep()
        return call()

    def made(work: Callable[[], Any]) -> Timed:
        return make_timed("fn", Prepared(lambda inputs: work, capturable=capturable), ring, "hot", clocks, _ignore)

    pair = [made(both), made(sweep)]
    nodes = [len(one.captured.nodes) / one.launch.calls if one.captured else 0.0 for one in pair]
    if nodes[0] and nodes[0] == nodes[1]:
        raise ValueError("do_bench: the function launches nothing on the GPU.")
    clock = clocks[pair[0].timer]
    repeats = [1 if one.captured else one.most_repeats or 1 for one in pair]
    launches = [one.repeated(min(times, 20)) for one, times in zip(pair, repeats, strict=True)]
    taken_s = [one.launch_s * launch.calls / one.launch.calls for one, launch in zip(pair, launches, strict=True)]
    launching.of_device(torch.cuda.current_device()).steady()
    with_call, without = _sampled(clock, launches, taken_s, warmup_s, rep_s)
    differences = [a - b for a, b in zip(with_call, without, strict=True)]
    if statistics.median(differences) <= 0:
        raise RuntimeError("do_bench: the function takes less time than emptying the cache varies by.")
    return differences


def _ignore(step: str) -> None:
    """Nobody is told which step a measurement is at."""


def _sampled(
    clock: Clock, launches: Sequence[Any], launches_s: Sequence[float], warmup_s: float, rep_s: float
) -> list[list[float]]:
    """As many rounds as fill `rep_s`, after `warmup_s` of the same."""
    round_s = max(sum(launches_s), 1e-9)
    end = time.perf_counter() + warmup_s
    while time.perf_counter() < end:
        time_launches(clock, launches)
    return sample(clock, launches, max(_FEWEST_ROUNDS, min(10_000, math.ceil(rep_s / round_s))))


@cache
def sweeping(device: int) -> Callable[[], Any]:
    """Reads more than the L2 cache holds, and writes next to nothing: it leaves clean lines of its own."""
    rows = CACHE_MULTIPLE * _cache_bytes(torch.device("cuda", device)) // (4 * _ROW)
    source = torch.zeros(rows, _ROW, device=torch.device("cuda", device))
    sums = torch.empty(rows, device=source.device)
    return lambda: torch.sum(source, dim=1, out=sums)


def _cache_bytes(device: torch.device) -> int:
    if device.type == "cpu":
        return last_level_cache_bytes()
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def _clocks(device: torch.device) -> dict[str, Clock]:
    if device.type == "cpu":
        return {"perf_counter": HostClock()}
    return {"graph": EventClock("graph"), "events": EventClock("events")}


def _dropping_gradients(fn: Callable[[], Any], tensors: Sequence[torch.Tensor]) -> Callable[[], Any]:
    def call() -> Any:
        for tensor in tensors:
            tensor.grad = None
        return fn()

    return call


def _summarised(times_ms: list[float], quantiles: Sequence[float] | None, return_mode: ReturnMode) -> Any:
    if quantiles is not None:
        found = [_quantile(times_ms, share) for share in quantiles]
        return found[0] if len(found) == 1 else found
    if return_mode == "all":
        return times_ms
    ways: dict[str, Callable[[list[float]], float]] = {"min": min, "max": max, "mean": statistics.mean}
    return ways.get(return_mode, statistics.median)(times_ms)


def _quantile(values: Sequence[float], share: float) -> float:
    if not 0 <= share <= 1:
        raise ValueError(f"Quantile {share} is not between 0 and 1.")
    ordered = sorted(values)
    point = share * (len(ordered) - 1)
    low, high = math.floor(point), math.ceil(point)
    return ordered[low] + (point - low) * (ordered[high] - ordered[low])
