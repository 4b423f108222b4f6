"""Stored rows as points to learn from: a shape, and the time of every implementation that was right on it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gemmgate.suite.compare import newest
from gemmgate.suite.errors import UsageError, unknown
from gemmgate.suite.records import CROSS_CHECK, Row

WORDS = ("dtype", "precision", "layout", "epilogue")
"""What a shape has besides sizes."""
FEWEST_POINTS = 8
FEWEST_GROUPS = 3


@dataclass(frozen=True)
class Point:
    """One case on one machine. `times_s` holds the implementations that were ok, sampled in the same rounds.

    `words` are dtype, precision, layout, epilogue and machine; `yardstick` is what is run where nothing is known.
    `group` is what is held out together when a tree is scored: by default all sizes but the first, which is taken to
    be the one that changes from call to call.
    """

    case: str
    dims: Mapping[str, int] = field(hash=False)
    words: Mapping[str, str] = field(hash=False)
    times_s: Mapping[str, float] = field(hash=False)
    yardstick: str
    group: tuple[object, ...]

    @property
    def best(self) -> str:
        """The fastest implementation; among equals the first by name."""
        return min(sorted(self.times_s), key=self.times_s.__getitem__)

    def regret(self, implementation: str) -> float:
        """Its time over the best one's; infinite where it was not ok here."""
        return self.times_s.get(implementation, math.inf) / self.times_s[self.best]


def collect(
    rows: Sequence[Row],
    family: str,
    cache: str = "",
    among: Sequence[str] = (),
    hold_out: Sequence[str] = (),
    leave_out: Collection[str] = (),
) -> list[Point]:
    """The points of a family in one cache state: by default the one with most rows, of several `serving`.

    Only times of one visit are put beside each other: of several visits of a case the one with most implementations
    counts, then the newest. `among` leaves other implementations out, and so does `leave_out` those that it names;
    `hold_out` names the sizes that make a group.
    Raises `UsageError` where that leaves nothing to learn from.
    """
    timed = [row for row in rows if row.kind == "time" and row.phase != CROSS_CHECK and row.cache]
    timed = [row for row in timed if not row.phase and row.status == "ok" and row.median_s]
    if not any(row.family == family for row in timed):
        raise unknown("family with times", family, {row.family for row in timed})
    timed = [row for row in newest(timed) if row.family == family and row.implementation not in leave_out]
    cache = cache or _usual_cache(timed)
    if cache not in {row.cache for row in timed}:
        raise unknown("cache state", cache, {row.cache for row in timed})
    timed = [row for row in timed if row.cache == cache]
    for name in among:
        if name not in {row.implementation for row in timed}:
            raise unknown("implementation with times", name, {row.implementation for row in timed})
    visits: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in timed:
        visits.setdefault((row.machine, row.case), {}).setdefault(row.visit, []).append(row)
    points = [_point(max(found.values(), key=_worth), among, hold_out) for found in visits.values()]
    kept = [point for point in points if len(point.times_s) > 1]
    if len(kept) < FEWEST_POINTS or len({point.group for point in kept}) < FEWEST_GROUPS:
        raise UsageError(
            f"There are {len(kept)} cases of {family}, {cache}, on which two implementations or more were right, in "
            f"{len({point.group for point in kept})} groups of sizes. Learning takes {FEWEST_POINTS} cases in "
            f"{FEWEST_GROUPS} groups: measure more of them with `gemmgate run --family {family}`."
        )
    return kept


def dispatchers(rows: Sequence[Row], family: str) -> frozenset[str]:
    """Implementations that say in `algorithm` that another one ran: they choose, and are nothing to choose."""
    timed = [row for row in rows if row.family == family and row.kind == "time" and not row.phase]
    known = {row.implementation for row in timed}
    return frozenset(row.implementation for row in timed if said_to_run(row) in known - {row.implementation})


def said_to_run(row: Row) -> str:
    """The first word of what a row says of its algorithm: of a dispatcher, what it chose."""
    return row.algorithm.partition(" ")[0]


def _usual_cache(rows: Sequence[Row]) -> str:
    counts = Counter(row.cache for row in rows)
    return max(counts, key=lambda name: (counts[name], name == "serving", name))


def _worth(visit: Sequence[Row]) -> tuple[int, str]:
    return len(visit), max(row.utc for row in visit)


def _point(visit: Sequence[Row], among: Sequence[str], hold_out: Sequence[str]) -> Point:
    row = visit[0]
    for name in hold_out:
        if name not in row.dims:
            raise unknown("size", name, row.dims)
    held = hold_out or tuple(row.dims)[1:]
    words = {**{name: str(getattr(row, name)) for name in WORDS}, "machine": row.machine}
    times = {one.implementation: one.median_s for one in visit if one.median_s}
    yardstick = next((one.yardstick for one in visit if one.yardstick), "")
    return Point(
        case=row.case,
        dims=dict(row.dims),
        words=words,
        times_s={name: seconds for name, seconds in times.items() if not among or name in (*among, yardstick)},
        yardstick=yardstick,
        group=tuple(row.dims[name] for name in held),
    )
