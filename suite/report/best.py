"""What counts as faster, the same and slower, and which implementations of a case as its fastest."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gemmgate.suite.compare import Rated
from gemmgate.suite.statistics import SIZE_OF_INTEREST, Interval

MEANING = "fastest of the case by this ratio, with all whose interval reaches that of the fastest"


def fastest(rated: Sequence[Rated]) -> list[Rated]:
    """Of the rows of one case in one cache state the fastest, and all that could not be told from it.

    The ratio decides, since it comes from the same rounds, where a median is by itself. Where no row has one, it is
    the least median alone. Nothing is the fastest of one.
    """
    timed = [r for r in rated if r.row.status == "ok" and r.row.median_s is not None]
    if len(timed) < 2:
        return []
    ratios = {id(r): r.ratio for r in timed if r.ratio is not None}
    if not ratios:
        return [min(timed, key=lambda r: r.row.median_s or 0.0)]
    leader = max(ratios.values(), key=lambda ratio: ratio.estimate)
    return [r for r in timed if (ratio := ratios.get(id(r))) is not None and ratio.high >= leader.low]


SAME = f"Same: the interval holds 1, or the ratio is within {SIZE_OF_INTEREST:.0%} of it."


def is_same(ratio: Interval) -> bool:
    """A difference below the size of interest is none, however certain: another process would give another."""
    return 1.0 in ratio or abs(math.log(ratio.estimate)) < math.log1p(SIZE_OF_INTEREST)


def counts(ratios: Sequence[Interval]) -> tuple[int, int, int]:
    """How many are faster, the same, slower."""
    same = sum(map(is_same, ratios))
    faster = sum(not is_same(ratio) and ratio.estimate > 1 for ratio in ratios)
    return faster, same, len(ratios) - same - faster
