"""What this machine can do, applied to a case: the least time by its roofs, and times that cannot be.

A roof is what a good program reaches here, measured; shares are quoted against it. A ceiling is what
the silicon could do at the clock that was read; a time below it is `invalid`. The two differ: zeros
run faster than random data, and a measured roof is no law.
"""

from __future__ import annotations

from collections.abc import Mapping

from gemmgate.suite.cases import Case
from gemmgate.suite.records import Limits

FLOP_PER_CYCLE_PER_SM: Mapping[int, Mapping[str, int]] = {
    # Dense rates from the vendor's architecture whitepapers and the CUDA programming guide's table of
    # arithmetic throughput: matrix units for bf16, fp16, tf32, fp8 and int8, FMA pipes for fp32.
    80: {"bf16": 2048, "fp16": 2048, "fp32.tf32": 1024, "fp32": 128, "int8": 4096},
    86: {"bf16": 1024, "fp16": 1024, "fp32.tf32": 512, "fp32": 256, "int8": 2048},
    87: {"bf16": 2048, "fp16": 2048, "fp32.tf32": 1024, "fp32": 256, "int8": 4096},
    89: {"bf16": 1024, "fp16": 1024, "fp32.tf32": 512, "fp32": 256, "fp8e4m3": 2048, "int8": 2048},
    90: {"bf16": 4096, "fp16": 4096, "fp32.tf32": 2048, "fp32": 256, "fp8e4m3": 8192, "int8": 8192},
    100: {"bf16": 8192, "fp16": 8192, "fp32.tf32": 4096, "fp32": 256, "fp8e4m3": 16384, "int8": 16384},
}
UNKNOWN_MARGIN = 1.5
"""Where the silicon's rate is not known, no number may beat the measured roof by more than this. So too
for what the L2 delivers, of which no vendor says the rate."""
_CLOCK_MARGIN = 1.1
"""The clock is read between samples, and may have been a little higher within one."""


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


def impossible(
    limits: Limits, case: Case, cache: str, median_s: float, flop: int, bytes_moved: int, clock_hz: float | None = None
) -> str:
    """Why a time cannot be true, or an empty string.

    Arithmetic is held against what the device could do at `clock_hz`, where that was read, else at its
    highest clock. The bytes of a cold ring have to come through memory, those of a hot one through the L2;
    without a ceiling for the one, as on a CPU, there is none for the other.
    """
    rate = limits.ceiling_flop_per_s.get(rate_key(case), 0.0)
    at = "its highest clock"
    if clock_hz and limits.ceiling_sm_clock_hz > _CLOCK_MARGIN * clock_hz:
        rate *= _CLOCK_MARGIN * clock_hz / limits.ceiling_sm_clock_hz
        at = f"the {clock_hz / 1e6:.0f} MHz that it ran at"
    if rate and median_s < flop / rate:
        return f"{flop / median_s:.4g} flop/s is above the {rate:.4g} flop/s that this device can do at {at}"
    bandwidth, what = limits.ceiling_bytes_per_s, "memory"
    if bandwidth and cache == "hot":
        bandwidth, what = UNKNOWN_MARGIN * limits.l2_bytes_per_s, "L2, with a margin"
    if bandwidth and median_s < bytes_moved / bandwidth:
        return f"{bytes_moved / median_s:.4g} bytes/s is above the {bandwidth:.4g} bytes/s of this device's {what}"
    return ""
