"""Ranges of the first size with an implementation each, for a family's tuned table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gemmgate.suite.errors import UsageError
from gemmgate.suite.learning.points import Point
from gemmgate.suite.learning.score import Scored, score
from gemmgate.suite.tuning.ranges import Range, find_ranges

MOST_RANGES = 5
EACH_COSTS = 0.0005
"""A further range has to lower the mean regret by more than this: times are not known better."""


@dataclass(frozen=True)
class Found:
    """The ranges of one group of sizes and words, and what they cost on each of its points."""

    key: str
    ranges: tuple[Range, ...]
    scored: tuple[Scored, ...]

    def entries(self) -> list[dict[str, Any]]:
        """As a tuned table has them. The tile is left to the implementation, which has one for each case."""
        return [
            {"up_to": r.up_to, "implementation": r.candidate, "tile": None, "measured": list(r.measured)}
            for r in self.ranges
        ]

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Neighbouring first sizes, one more than twice the other, between which an end of a range was put."""
        sizes = [one.measured for one in self.ranges]
        return [(low, high) for (_, low), (high, _) in pairwise(sizes) if high > 2 * low]


def key_of(point: Point) -> str:
    """All sizes but the first and what else makes the shape: `n256-k7168-bf16-acc32-row-out_fp32`."""
    sizes = [f"{name}{size}" for name, size in list(point.dims.items())[1:]]
    return "-".join([*sizes, *(point.words[name] for name in ("dtype", "precision", "layout", "epilogue"))])


def ranges_of(points: Sequence[Point], most: int = MOST_RANGES) -> list[Found]:
    """For each group the ranges that cost least. Raises `UsageError` where the points are of several machines."""
    machines = sorted({point.words["machine"] for point in points})
    if len(machines) > 1:
        raise UsageError(f"Ranges are one machine's; these runs are of {', '.join(machines)}. Name runs of one.")
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(key_of(point), []).append(point)
    return [_found(key, members, most) for key, members in groups.items()]


def _found(key: str, points: Sequence[Point], most: int) -> Found:
    times = {next(iter(point.dims.values())): point.times_s for point in points}
    try:
        ranges = find_ranges(times, most, each_costs=EACH_COSTS).ranges
    except ValueError as error:
        raise UsageError(f"{key}: {error} Measure the same implementations at all of them.") from error

    def choose(point: Point) -> tuple[str, bool]:
        size = next(iter(point.dims.values()))
        return next(one.candidate for one in ranges if size <= one.up_to), False

    return Found(key, ranges, tuple(score(points, choose)))


def into_table(table: Mapping[str, Any], found: Sequence[Found]) -> dict[str, Any]:
    """A tuned table with these ranges in place of those of the same keys."""
    return {**table, "ranges": {**table.get("ranges", {}), **{one.key: one.entries() for one in found}}}
