"""Numbers as people read them: the only place with microseconds, TFLOP/s and TB/s."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

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


@dataclass(frozen=True)
class RateColumn:
    """A column of rates in one unit, which is its `header`: `TB/s`, `GFLOP/s`."""

    header: str
    counts_bytes: bool
    scale: float

    def text(self, row: Row, limits: Limits) -> str:
        """The rate of a row that this column is for; nothing where the other one is."""
        found = _rate(row, limits)
        if found is None:
            return NONE
        rate, is_bytes = found
        return significant(rate / self.scale) if is_bytes == self.counts_bytes else ""


def rate_columns(rows: Iterable[Row], limits: Limits) -> list[RateColumn]:
    """Bytes a second for the rows that the machine's roofs say bytes bound, operations for the others.

    All rows of a column share the prefix in which the largest rate is 1 or more.
    """
    rates = list(filter(None, (_rate(row, limits) for row in rows)))
    columns = []
    for counts_bytes, unit in ((True, "B/s"), (False, "FLOP/s")):
        largest = max((rate for rate, is_bytes in rates if is_bytes == counts_bytes), default=None)
        if largest is not None:
            scale, prefix = next((found for found in _PREFIXES if largest >= found[0]), _PREFIXES[-1])
            columns.append(RateColumn(f"{prefix}{unit}", counts_bytes, scale))
    return columns


def _rate(row: Row, limits: Limits) -> tuple[float, bool] | None:
    """Bytes or operations a second, and whether they are bytes."""
    if not row.median_s or not (row.flop or row.bytes_moved):
        return None
    is_bytes = _is_bound_by_bytes(row, limits)
    return (row.bytes_moved if is_bytes else row.flop) / row.median_s, is_bytes


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
