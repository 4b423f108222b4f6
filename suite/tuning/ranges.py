"""Ranges of one dimension with a choice each: few split points, little regret. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise


@dataclass(frozen=True)
class Range:
    """Sizes up to `up_to`, from above the range before, and the candidate for them.

    `measured` are the least and the largest point in it: what lies outside of these is not known, but assumed.
    """

    up_to: int
    candidate: str
    measured: tuple[int, int]


@dataclass(frozen=True)
class Ranges:
    """Ranges in order. `regret` is the mean over the points of log(time of the choice / best time there)."""

    ranges: tuple[Range, ...]
    regret: float


def find_ranges(
    times_s: Mapping[int, Mapping[str, float]],
    most: int,
    weights: Mapping[int, float] | None = None,
    each_costs: float = 0.0,
) -> Ranges:
    """The split of the points into at most `most` ranges, and the candidate for each, with the least mean regret.

    `times_s[point][candidate]` are seconds; a candidate that lacks a time at a point cannot serve a range that
    holds it. `weights` say how much a point counts, by default all alike. A further range is only made where it
    lowers the regret by more than `each_costs`, so that noise makes none. Dynamic programming over the points:
    exact. Ranges meet between their points, where `_meeting` says; the last ends at the last point. Raises ValueError
    where no split serves every point.
    """
    points = sorted(times_s)
    if not points or most < 1:
        raise ValueError(f"Ranges need points and room for at least one range, got {len(points)} and {most}.")
    shares = [(weights or {}).get(point, 1.0) for point in points]
    total = sum(shares)
    losses = _losses(points, times_s, [share / total for share in shares])
    single = [[_cheapest(losses, first, last) for last in range(len(points))] for first in range(len(points))]
    # best[r][i]: the least loss of the first i points in r ranges, with where the last range begins.
    best: list[list[tuple[float, int]]] = [[(0.0, 0)] + [(math.inf, 0)] * len(points)]
    for _ in range(min(most, len(points))):
        before = best[-1]
        row = [(math.inf, 0)] + [
            min((before[first][0] + single[first][last][0], first) for first in range(last + 1))
            for last in range(len(points))
        ]
        best.append(row)
    counts = range(1, len(best))
    count = min(counts, key=lambda ranges: (best[ranges][-1][0] + each_costs * ranges, ranges))
    regret = best[count][-1][0]
    if not math.isfinite(regret):
        raise ValueError(f"No {most} ranges serve all points: at some of {points} each candidate lacks a time.")
    found: list[Range] = []
    end = len(points)
    for ranges in range(count, 0, -1):
        first = best[ranges][end][1]
        found.append(Range(points[end - 1], single[first][end - 1][1], (points[first], points[end - 1])))
        end = first
    joined = _joined(found[::-1])
    met = [replace(one, up_to=_meeting(one, other, times_s)) for one, other in pairwise(joined)]
    return Ranges((*met, joined[-1]), regret)


def _meeting(low: Range, high: Range, times_s: Mapping[int, Mapping[str, float]]) -> int:
    """The largest size of the lower of two neighbours, from its last point to below the other's first.

    Between two points times are taken to be powers of the size: where those of the two candidates cross, the ranges
    meet. Where only one of them has a time at both points, all in between is that one's; otherwise it is the geometric
    middle.
    """
    before, after = low.measured[1], high.measured[0]
    low_s, high_s = ([times_s[point].get(one.candidate) for point in (before, after)] for one in (low, high))
    if None in low_s and None not in high_s:
        return before
    if None in high_s and None not in low_s:
        return after - 1
    share = 0.5
    if None not in low_s:
        ahead, behind = (math.log(other / one) for one, other in zip(low_s, high_s, strict=True) if one and other)
        if ahead >= 0.0 >= behind and ahead > behind:
            share = ahead / (ahead - behind)
    return min(max(math.floor(before * (after / before) ** share), before), after - 1)


def _losses(
    points: Sequence[int], times_s: Mapping[int, Mapping[str, float]], shares: Sequence[float]
) -> dict[str, list[float]]:
    """For each candidate its weighted regret at each point, infinite where it has no time."""
    names = sorted({name for times in times_s.values() for name in times})
    best_s = [min(times_s[point].values(), default=math.nan) for point in points]
    return {
        name: [
            share * math.log(times_s[point][name] / least_s) if name in times_s[point] else math.inf
            for point, least_s, share in zip(points, best_s, shares, strict=True)
        ]
        for name in names
    }


def _cheapest(losses: Mapping[str, Sequence[float]], first: int, last: int) -> tuple[float, str]:
    """Loss and name of the one candidate that serves points `first` to `last` best; by name where they tie."""
    if last < first:
        return math.inf, ""
    return min(((sum(values[first : last + 1]), name) for name, values in losses.items()), default=(math.inf, ""))


def _joined(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """Neighbours with the same candidate are one range."""
    kept: list[Range] = []
    for one in ranges:
        if kept and kept[-1].candidate == one.candidate:
            one = replace(one, measured=(kept.pop().measured[0], one.measured[1]))
        kept.append(one)
    return tuple(kept)
