"""What this machine can do: measured roofs and floors, and the ceilings that no number may beat.

A roof is what a good program reaches here, measured; shares are quoted against it. A ceiling is what
the silicon could do at its highest clock; a time below it is `invalid`. The two differ: zeros run
faster than random data, and a measured roof is no law.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from gemmgate.suite.cases import Case
from gemmgate.suite.measure.clock import EventClock, HostClock
from gemmgate.suite.measure.graph import capture
from gemmgate.suite.measure.machine import Telemetry, precision_flags
from gemmgate.suite.measure.sampler import Launch, time_launches
from gemmgate.suite.records import Limits

_FLOP_PER_CYCLE_PER_SM = {
    # Dense rates from the vendor's architecture whitepapers and the CUDA programming guide's table of
    # arithmetic throughput: matrix units for bf16, fp16, tf32, fp8 and int8, FMA pipes for fp32.
    80: {"bf16": 2048, "fp16": 2048, "fp32.tf32": 1024, "fp32": 128, "int8": 4096},
    86: {"bf16": 1024, "fp16": 1024, "fp32.tf32": 512, "fp32": 256, "int8": 2048},
    87: {"bf16": 2048, "fp16": 2048, "fp32.tf32": 1024, "fp32": 256, "int8": 4096},
    89: {"bf16": 1024, "fp16": 1024, "fp32.tf32": 512, "fp32": 256, "fp8e4m3": 2048, "int8": 2048},
    90: {"bf16": 4096, "fp16": 4096, "fp32.tf32": 2048, "fp32": 256, "fp8e4m3": 8192, "int8": 8192},
    100: {"bf16": 8192, "fp16": 8192, "fp32.tf32": 4096, "fp32": 256, "fp8e4m3": 16384, "int8": 16384},
}
_UNKNOWN_MARGIN = 1.5
"""Where the silicon's rate is not known, no number may beat the measured roof by more than this."""


def rate_key(case: Case) -> str:
    """`bf16`, or `fp32.tf32` where the precision mode is not the dtype's own."""
    return f"{case.dtype}.{case.precision}" if case.precision in ("tf32", "3xtf32") else case.dtype


def roof_s(limits: Limits, case: Case, cache: str, flop: int, bytes_moved: int) -> float | None:
    """The least time that the measured roofs allow: for the arithmetic, or for the bytes from where they are."""
    rate = limits.flop_per_s.get(rate_key(case))
    bandwidth = limits.bytes_per_s if cache == "cold" else limits.l2_bytes_per_s
    if not rate or not bandwidth:
        return None
    return max(bytes_moved / bandwidth, flop / rate)


def impossible(limits: Limits, case: Case, cache: str, median_s: float, flop: int, bytes_moved: int) -> str:
    """Why a time cannot be true, or an empty string. Only a cold ring has to move its bytes through memory."""
    rate = limits.ceiling_flop_per_s.get(rate_key(case))
    if rate and median_s < flop / rate:
        return (
            f"{flop / median_s:.4g} flop/s is above the {rate:.4g} flop/s that this device can do at its highest clock"
        )
    bandwidth = limits.ceiling_bytes_per_s
    if cache == "cold" and bandwidth and median_s < bytes_moved / bandwidth:
        return f"{bytes_moved / median_s:.4g} bytes/s is above the {bandwidth:.4g} bytes/s of this device's memory"
    return ""


def measure_limits(device: torch.device, telemetry: Telemetry) -> Limits:
    """The short version, about a second: copy bandwidth, matrix rates by dtype, an empty launch."""
    if device.type == "cpu":
        return _measure_cpu()
    bytes_per_s = _copy_bandwidth(device)
    size = 8192
    rates = {
        "bf16": _matmul_rate(device, torch.bfloat16, "acc32", size),
        "fp16": _matmul_rate(device, torch.float16, "acc32", size),
        "fp32": _matmul_rate(device, torch.float32, "ieee", size // 2),
        "fp32.tf32": _matmul_rate(device, torch.float32, "tf32", size),
    }
    floor_s = _launch_floor(device)
    properties = torch.cuda.get_device_properties(device)
    clock_hz = telemetry.max_sm_clock_hz or getattr(properties, "clock_rate", 0) * 1e3
    per_cycle = _FLOP_PER_CYCLE_PER_SM.get(10 * properties.major + properties.minor, {})
    ceilings = {
        name: per_cycle[name] * properties.multi_processor_count * clock_hz
        if name in per_cycle and clock_hz
        else _UNKNOWN_MARGIN * rate
        for name, rate in rates.items()
    }
    memory_hz = telemetry.max_memory_clock_hz or getattr(properties, "memory_clock_rate", 0) * 1e3
    bus_bytes = getattr(properties, "memory_bus_width", 0) / 8
    return Limits(
        bytes_per_s=bytes_per_s,
        flop_per_s=rates,
        ceiling_bytes_per_s=2 * memory_hz * bus_bytes if memory_hz and bus_bytes else _UNKNOWN_MARGIN * bytes_per_s,
        ceiling_flop_per_s=ceilings,
        launch_floor_s=floor_s,
        l2_bytes_per_s=_l2_bandwidth(device, properties.L2_cache_size // 12, floor_s),
    )


def _copy_bandwidth(device: torch.device) -> float:
    """Bytes a second, read and written, of a copy of 1 GiB."""
    source = torch.empty(2**28, dtype=torch.float32, device=device).normal_()
    copied = torch.empty_like(source)
    return 2 * source.numel() * 4 / _fastest_s(lambda: copied.copy_(source), 5)


def _matmul_rate(device: torch.device, dtype: torch.dtype, precision: str, size: int) -> float:
    left = torch.randn(size, size, device=device).to(dtype)
    right = torch.randn(size, size, device=device).to(dtype)
    out = torch.empty_like(left)
    with precision_flags(precision):
        return 2 * size**3 / _fastest_s(lambda: torch.mm(left, right, out=out), 3)


def _fastest_s(work: Callable[[], object], repeats: int) -> float:
    clock = EventClock("events")
    launch = Launch(lambda: (work(), None)[1], 1, host_s=1e-4)
    time_launches(clock, [launch])
    return min(time_launches(clock, [launch] * repeats))


def _launch_floor(device: torch.device) -> float:
    """Seconds of one graph node that does next to nothing: a kernel over one element."""
    one = torch.zeros(1, device=device)
    one.add_(1)
    captured = capture([lambda: one.add_(1)] * 512)
    launch = Launch(lambda: captured.replay(1), captured.calls, captured.host_s)
    clock = EventClock("graph")
    return min(time_launches(clock, [launch] * 5)) / captured.calls


def _l2_bandwidth(device: torch.device, size_bytes: int, floor_s: float) -> float:
    """Bytes a second, read and written, of a kernel whose source and result both stay in the L2."""
    source = torch.empty(size_bytes // 4, dtype=torch.float32, device=device).normal_()
    result = torch.empty_like(source)
    # Not a copy: captured, that becomes a memcpy node, which is slower than a kernel.
    torch.mul(source, 2.0, out=result)
    captured = capture([lambda: torch.mul(source, 2.0, out=result)] * 128)
    launch = Launch(lambda: captured.replay(1), captured.calls, captured.host_s)
    seconds = min(time_launches(EventClock("graph"), [launch] * 5)) / captured.calls
    return 2 * size_bytes / max(seconds - floor_s, floor_s)


def _measure_cpu() -> Limits:
    """Copy bandwidths and one matrix rate a dtype, each the best of eight; ceilings with a wide margin."""
    clock = HostClock()

    def best(work: Callable[[], object]) -> float:
        launch = Launch(lambda: (work(), None)[1], 1)
        time_launches(clock, [launch])
        return min(time_launches(clock, [launch] * 8))

    def bandwidth(size_bytes: int) -> float:
        source = torch.empty(size_bytes // 4, dtype=torch.float32).normal_()
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
    return Limits(
        bytes_per_s=bandwidth(2**27),
        l2_bytes_per_s=bandwidth(2**20),
        flop_per_s=rates,
        ceiling_bytes_per_s=0.0,
        ceiling_flop_per_s={name: 8 * rate for name, rate in rates.items()},
    )
