"""Which implementations of a case count as its fastest: what tables mark."""

from __future__ import annotations

from collections.abc import Sequence

from gemmgate.suite.compare import Rated

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
