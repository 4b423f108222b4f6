"""Ranges of one dimension with a choice each: few split points, little regret. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Points up to `up_to`, from above the range before, and the candidate for them."""

    up_to: int
    candidate: str


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
    exact. Raises ValueError where no split serves every point.
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
        found.append(Range(points[end - 1], single[first][end - 1][1]))
        end = first
    return Ranges(_joined(found[::-1]), regret)


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
            kept.pop()
        kept.append(one)
    return tuple(kept)
