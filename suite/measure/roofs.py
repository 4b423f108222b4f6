"""Measures what this machine can do: roofs, floors and ceilings, in a short version and a long one.

The short version takes about a second and stands at the head of every run that finds no calibration of
its machine. The long one adds what a calibration stores: reads alone, rates by size, the clock and
the rates that remain once the board is warm and steady, fp8, and how finely the timer counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch

from gemmgate.suite.measure.clock import EventClock, HostClock
from gemmgate.suite.measure.graph import capture
from gemmgate.suite.measure.limits import FLOP_PER_CYCLE_PER_SM, UNKNOWN_MARGIN
from gemmgate.suite.measure.machine import Telemetry, precision_flags
from gemmgate.suite.measure.sampler import Launch, time_launches
from gemmgate.suite.measure.settle import settle
from gemmgate.suite.records import Limits

_SIZE = 8192
_COPY_BYTES = 2**30
_SIZES = tuple(2**power for power in range(20, 31, 2))
"""Bytes read and written together, for the rates by size."""
_SETTLE_S = 0.6
_TOGETHER = 8
_AT_ONCE, _UNCHANGED, _LOWER, _LONGEST_S = 3, 5, 0.99, 0.3
"""On a CPU: so many launches, again until so often none of them was faster by 1 %."""


def measure_limits(device: torch.device, telemetry: Telemetry, *, long: bool = False) -> Limits:
    """About a second; with `long` some ten."""
    if device.type == "cpu":
        return _measure_cpu(long=long)
    rates, settled_rates, settled_clocks_hz = _rates(device, telemetry, long=long)
    properties = torch.cuda.get_device_properties(device)
    clock_hz = telemetry.max_sm_clock_hz or getattr(properties, "clock_rate", 0) * 1e3
    per_cycle = FLOP_PER_CYCLE_PER_SM.get(10 * properties.major + properties.minor, {})
    ceilings = {
        name: per_cycle[name] * properties.multi_processor_count * clock_hz
        if name in per_cycle and clock_hz
        else UNKNOWN_MARGIN * rate
        for name, rate in rates.items()
    }
    memory_hz = telemetry.max_memory_clock_hz or getattr(properties, "memory_clock_rate", 0) * 1e3
    bus_bytes = getattr(properties, "memory_bus_width", 0) / 8
    copied = _copy_bandwidth(device)
    floor_s = _launch_floor(device)
    limits = Limits(
        bytes_per_s=copied,
        flop_per_s=rates,
        ceiling_bytes_per_s=2 * memory_hz * bus_bytes if memory_hz and bus_bytes else UNKNOWN_MARGIN * copied,
        ceiling_flop_per_s=ceilings,
        launch_floor_s=floor_s,
        l2_bytes_per_s=_l2_bandwidth(device, properties.L2_cache_size // 12, floor_s),
        copy_bytes_per_s=copied,
        ceiling_sm_clock_hz=clock_hz,
        source="short",
    )
    if not long:
        return limits
    read = _read_bandwidth(device)
    l2_bytes = properties.L2_cache_size
    return replace(
        limits,
        bytes_per_s=max(copied, read),
        read_bytes_per_s=read,
        bytes_per_s_by_size={str(size): _bandwidth_at(device, size, l2_bytes) for size in _SIZES},
        settled_flop_per_s=settled_rates,
        settled_sm_clock_hz=settled_clocks_hz,
        event_floor_s=_event_floor(),
        timer_resolution_s=_event_resolution(),
        source="long",
    )


def _rates(
    device: torch.device, telemetry: Telemetry, *, long: bool
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """By format: the fastest rate, and with `long` the settled one and its clock. One product in memory at a time."""
    makers: dict[str, Callable[[], tuple[Callable[[], object], int]]] = {
        "bf16": lambda: _matmul(device, torch.bfloat16, "acc32", _SIZE),
        "fp16": lambda: _matmul(device, torch.float16, "acc32", _SIZE),
        "fp32": lambda: _matmul(device, torch.float32, "ieee", _SIZE // 2),
        "fp32.tf32": lambda: _matmul(device, torch.float32, "tf32", _SIZE),
    }
    if long:
        makers["fp8e4m3"] = lambda: _matmul_fp8(device, _SIZE)
    fastest, settled, clocks_hz = {}, {}, {}
    for name, make in makers.items():
        try:
            work, flop = make()
            fastest[name] = flop / _fastest_s(work, 3)
        except (RuntimeError, AttributeError, TypeError, ValueError):
            if name != "fp8e4m3":  # not every device has it, and not every build of torch can use it there
                raise
            continue
        if long:
            seconds, clock_hz = _settled(work, telemetry)
            settled[name] = flop / seconds
            if clock_hz:
                clocks_hz[name] = clock_hz
    return fastest, settled, clocks_hz


def _matmul(device: torch.device, dtype: torch.dtype, precision: str, size: int) -> tuple[Callable[[], object], int]:
    left = torch.randn(size, size, device=device).to(dtype)
    right = torch.randn(size, size, device=device).to(dtype)
    out = torch.empty_like(left)

    def work() -> None:
        with precision_flags(precision):
            torch.mm(left, right, out=out)

    return work, 2 * size**3


def _matmul_fp8(device: torch.device, size: int) -> tuple[Callable[[], object], int]:
    left = torch.randn(size, size, device=device).to(torch.float8_e4m3fn)
    right = torch.randn(size, size, device=device).to(torch.float8_e4m3fn).t()
    one = torch.ones((), device=device)
    return lambda: torch._scaled_mm(left, right, one, one, out_dtype=torch.bfloat16), 2 * size**3


def _settled(work: Callable[[], object], telemetry: Telemetry) -> tuple[float, float | None]:
    """Median seconds of a call, and the clock, once the board is steady under it."""
    clock = EventClock("events")
    launch = _launch(work)

    def load() -> int:
        for _ in range(_TOGETHER):
            work()
        torch.cuda.synchronize()
        return _TOGETHER

    settled = settle(load, telemetry.reading, time.perf_counter, least_s=_SETTLE_S)
    return statistics.median(time_launches(clock, [launch] * 9)), settled.sm_clock_hz


def _copy_bandwidth(device: torch.device) -> float:
    """Bytes a second, read and written, of a copy of 1 GiB."""
    source = torch.empty(_COPY_BYTES // 4, dtype=torch.float32, device=device).normal_()
    copied = torch.empty_like(source)
    return 2 * _COPY_BYTES / _fastest_s(lambda: copied.copy_(source), 5)


def _read_bandwidth(device: torch.device) -> float:
    """Bytes a second of a sum over 1 GiB."""
    source = torch.empty(_COPY_BYTES // 4, dtype=torch.float32, device=device).normal_()
    result = torch.empty((), device=device)
    return _COPY_BYTES / _fastest_s(lambda: torch.sum(source, dim=0, out=result), 5)


def _bandwidth_at(device: torch.device, size: int, l2_bytes: int) -> float:
    """Bytes a second, read and written, of a kernel that moves `size` bytes, none of them in the cache."""
    slots = max(3, -(-3 * l2_bytes // size))
    half = size // 8
    pairs = [(torch.empty(half, device=device).normal_(), torch.empty(half, device=device)) for _ in range(slots)]
    calls = [partial(torch.mul, source, 2.0, out=result) for source, result in pairs]
    return size / _graph_s(calls)


def _l2_bandwidth(device: torch.device, size_bytes: int, floor_s: float) -> float:
    """Bytes a second, read and written, of a kernel whose source and result both stay in the L2."""
    source = torch.empty(size_bytes // 4, dtype=torch.float32, device=device).normal_()
    result = torch.empty_like(source)
    # Not a copy: captured, that becomes a memcpy node, which is slower than a kernel.
    seconds = _graph_s([lambda: torch.mul(source, 2.0, out=result)] * 128)
    return 2 * size_bytes / max(seconds - floor_s, floor_s)


def _launch_floor(device: torch.device) -> float:
    """Seconds of one graph node that does next to nothing: a kernel over one element."""
    one = torch.zeros(1, device=device)
    return _graph_s([lambda: one.add_(1)] * 512)


def _event_floor() -> float:
    """Seconds between two events with nothing in between, behind a blocked queue."""
    return min(time_launches(EventClock("events"), [Launch(lambda: None, 1, 1e-5)] * 50))


def _event_resolution() -> float:
    """The least step between different times of a short kernel."""
    times = time_launches(EventClock("events"), [_launch(lambda: torch.cuda._sleep(2000))] * 200)
    return _least_step(times)


def _least(take: Callable[[], Sequence[float]], now: Callable[[], float] = time.perf_counter) -> float:
    """The least of times that are taken until it has stopped falling, or for three tenths of a second.

    Other programs take cores for some tens of milliseconds at a time: the least of a few times taken within them is
    not what the machine can do, and every share of such a roof is above 100 %.
    """
    end = now() + _LONGEST_S
    least, unchanged = min(take()), 0
    while unchanged < _UNCHANGED and now() < end:
        seconds = min(take())
        unchanged = unchanged + 1 if seconds > _LOWER * least else 0
        least = min(least, seconds)
    return least


def _least_step(times: list[float]) -> float:
    distinct = sorted({round(seconds, 12) for seconds in times})
    steps = [later - earlier for earlier, later in pairwise(distinct)]
    return min(steps, default=0.0)


def _launch(work: Callable[[], object]) -> Launch:
    return Launch(lambda: (work(), None)[1], 1, host_s=1e-4)


def _fastest_s(work: Callable[[], object], repeats: int) -> float:
    clock = EventClock("events")
    time_launches(clock, [_launch(work)])
    return min(time_launches(clock, [_launch(work)] * repeats))


def _graph_s(calls: Sequence[Callable[[], object]]) -> float:
    """Seconds a call, of the fastest of five replays."""
    calls[0]()
    captured = capture(calls)
    launch = Launch(lambda: captured.replay(1), captured.calls, captured.host_s)
    return min(time_launches(EventClock("graph"), [launch] * 5)) / captured.calls


def _measure_cpu(*, long: bool) -> Limits:
    """Copy bandwidths and one matrix rate a dtype, each the best that could be had; ceilings with a wide margin."""
    clock = HostClock()

    def best(work: Callable[[], object]) -> float:
        launch = Launch(lambda: (work(), None)[1], 1)
        time_launches(clock, [launch])
        return _least(lambda: time_launches(clock, [launch] * _AT_ONCE))

    def bandwidth(size_bytes: int) -> float:
        source = torch.ones(size_bytes // 4, dtype=torch.float32)
        copied = torch.empty_like(source)
        return 2 * size_bytes / best(lambda: copied.copy_(source))

    size = 1024
    rates = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        left, right = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
        begin = time.perf_counter()
        torch.mm(left, right)
        if time.perf_counter() - begin < 1.0:
            rates[name] = 2 * size**3 / best(lambda a=left, b=right: torch.mm(a, b))  # type: ignore[misc]
    copied = bandwidth(2**27)
    limits = Limits(
        bytes_per_s=copied,
        # On a busy machine threads of a short copy wait for each other; no cache is slower than the memory behind it.
        l2_bytes_per_s=max(copied, bandwidth(2**20)),
        flop_per_s=rates,
        ceiling_bytes_per_s=0.0,
        ceiling_flop_per_s={name: 8 * rate for name, rate in rates.items()},
        copy_bytes_per_s=copied,
        source="short",
    )
    if not long:
        return limits
    source = torch.empty(2**25, dtype=torch.float32).normal_()
    one = torch.zeros(1)
    return replace(
        limits,
        read_bytes_per_s=4 * source.numel() / best(lambda: torch.sum(source)),
        bytes_per_s_by_size={str(size): bandwidth(size // 2) for size in _SIZES if size <= 2**28},
        settled_flop_per_s=rates,
        launch_floor_s=best(lambda: one.add_(1)),
        event_floor_s=best(lambda: None),
        timer_resolution_s=time.get_clock_info("perf_counter").resolution,
        source="long",
    )
