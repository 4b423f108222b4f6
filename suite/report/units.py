"""Numbers as people read them: the only place with microseconds, TFLOP/s and TB/s."""

from __future__ import annotations

import math

from gemmgate.suite.records import Limits, Row
from gemmgate.suite.statistics import Interval

NONE = "-"
"""What stands where there is no number."""
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


def significant(value: float, digits: int = 3) -> str:
    """So many significant digits, never an exponent, never fewer digits than stand before the point."""
    if not math.isfinite(value):
        return str(value)
    if value == 0.0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = max(digits - 1 - math.floor(math.log10(abs(rounded))), 0)
    return f"{rounded if decimals else value:.{decimals}f}"


def microseconds(seconds: float | None) -> str:
    """`8.31`, without the unit, for a column that names it."""
    return NONE if seconds is None else significant(seconds * 1e6)


def speedup(ratio: float) -> str:
    """`1.034`: three decimals, so that columns align on the point; four digits from 10 on."""
    return f"{ratio:.3f}" if ratio < 9.9995 else significant(ratio, 4)


def plus_minus(interval: Interval) -> str:
    """`±0.4%`: the wider side of the interval relative to its estimate, rounded up to a tenth."""
    if interval.low <= 0 or not math.isfinite(interval.high):
        return "±?"
    width = max(interval.high / interval.estimate, interval.estimate / interval.low) - 1
    tenths = math.ceil(round(width * 1000, 6))
    return f"±{tenths / 10:.1f}%" if tenths < 100 else f"±{math.ceil(tenths / 10)}%"


def share(value: float | None) -> str:
    """`57%`, and `<1%` rather than nothing."""
    if value is None:
        return NONE
    return f"{value:.0%}" if value >= 0.005 else "<1%"


def plain(value: float | None) -> str:
    """A count as it is, anything else with four digits."""
    if value is None:
        return NONE
    return str(int(value)) if float(value).is_integer() else significant(value, 4)


def multiple(value: float | None) -> str:
    """An error as a multiple of another: `0.98`, `2.31`, `140`."""
    if value is None:
        return NONE
    return f"{value:.2f}" if value < 9.995 else significant(value)


def throughput(row: Row, limits: Limits) -> str:
    """`0.53 TB/s` where the machine's roofs say that bytes bound the case, else `612 TFLOP/s`; G or M where small."""
    if not row.median_s or not (row.flop or row.bytes_moved):
        return NONE
    bytes_bound = _is_bound_by_bytes(row, limits)
    rate = (row.bytes_moved if bytes_bound else row.flop) / row.median_s
    scale, prefix = next(((scale, prefix) for scale, prefix in _PREFIXES if rate >= 0.1 * scale), _PREFIXES[-1])
    return f"{significant(rate / scale)} {prefix}{'B' if bytes_bound else 'FLOP'}/s"


def _is_bound_by_bytes(row: Row, limits: Limits) -> bool:
    if not (row.flop and row.bytes_moved):
        return not row.flop
    peak = limits.flop_per_s.get(f"{row.dtype}.{row.precision}") or limits.flop_per_s.get(row.dtype)
    if not (peak and limits.bytes_per_s):
        return False
    return row.bytes_moved / limits.bytes_per_s > row.flop / peak


def counted(count: int, noun: str) -> str:
    """`1 case`, `2 cases`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
