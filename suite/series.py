"""Stored rows as series: the same measurement, once a commit."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gemmgate.suite.compare import Rated, rate
from gemmgate.suite.records import BESIDE as CHECKS
from gemmgate.suite.records import Row, Run


@dataclass(frozen=True)
class Place:
    """What a series follows. `conditions` are the cache state and whatever else is not the default.

    `quantity` is a word that a program can read: `seconds`, `error`, `static_multiply`.
    """

    machine: str
    family: str
    quantity: str
    unit: str
    case: str
    implementation: str
    conditions: str
    method: int = 1


@dataclass(frozen=True)
class Point:
    """A row of a series, with its run and the time of its commit in seconds since 1970."""

    commit: str
    committed_s: int
    row: Row
    run: Run
    measured: float | None

    @property
    def value(self) -> float | None:
        """What the series follows; None where the row is not ok."""
        return self.measured if self.row.status == "ok" else None


@dataclass(frozen=True)
class Step:
    """A series changes its level at the point of that index, by the factor `ratio`: above 1 is slower."""

    index: int
    ratio: float


Series = Mapping[Place, tuple[Point, ...]]
"""Points in the order of their commits."""


BESIDE: Mapping[str, tuple[str, Callable[[Rated], float | None]]] = {
    "error": ("relative", lambda rated: rated.row.error),
    "error_vs_yardstick": ("of the yardstick's", lambda rated: rated.error_vs_yardstick),
}
"""What a time carries besides: unit and value, by quantity. These do not depend on the cache state.

Seconds to prepare are none of them: whether the compiler's caches held the kernel is not recorded, and that is a
factor of hundreds.
"""


def collect(runs: Iterable[Run], committed_s: Mapping[str, int]) -> tuple[Series, tuple[str, ...]]:
    """The series of all runs, and sentences about what was left out of them.

    Where a commit was measured more than once the newest row counts. A series holds rows of one method and one
    identity, that of its newest row that is ok: rows by another timer or library flag would look like a step.
    Another method is another series. `committed_s` has the commits that the repository knows.
    """
    found: dict[Place, dict[str, Point]] = defaultdict(dict)
    dirty: list[str] = []
    unknown: dict[str, set[str]] = defaultdict(set)
    for run in sorted(runs, key=lambda run: run.utc):
        if run.dirty:
            dirty.append(run.id)
            continue
        for rated in rate(run.rows):
            row = rated.row
            commit = row.commit or run.commit
            if commit not in committed_s:
                unknown[commit].add(run.id)
            elif row.status != "unsupported" and row.phase not in CHECKS and not row.unit.endswith("/s"):
                for place, value in _values(rated, run):
                    held = found[place].get(commit)
                    if held is None or row.utc >= held.row.utc:
                        found[place][commit] = Point(commit, committed_s[commit], row, run, value)
    series: dict[Place, tuple[Point, ...]] = {}
    others = 0
    for place, by_commit in found.items():
        points = sorted(by_commit.values(), key=lambda point: (point.committed_s, point.row.utc))
        kept = _of_one_identity(points, of_any_cache=place.quantity in BESIDE)
        others += len(points) - len(kept) if place.quantity not in BESIDE else 0
        series[place] = kept
    notes = [f"run {name}: measured with uncommitted changes" for name in dirty]
    if unknown:
        names = ", ".join(sorted(name[:10] or "no name" for name in unknown))
        of = len(set().union(*unknown.values()))
        notes.append(
            f"{_counted(len(unknown), 'commit')} of {_counted(of, 'run')} that this repository does not have: {names} "
            "(a shallow clone lacks most: fetch all)"
        )
    if others:
        notes.append(f"{_counted(others, 'row')} by another timer or library flags than the newest of their series")
    return series, tuple(notes)


def method_changes(series: Series) -> tuple[str, ...]:
    """A sentence for each method that began anew, on which machine and at which commit: its times stand apart."""
    first: dict[tuple[str, int], Point] = {}
    for place, points in series.items():
        key = (place.machine, place.method)
        earliest = points[0]
        if key not in first or earliest.committed_s < first[key].committed_s:
            first[key] = earliest
    machines = {machine for machine, _ in first}
    return tuple(
        f"method {method} begins on {machine} at {first[machine, method].commit[:10]}: its series begin anew"
        for machine in sorted(machines)
        for method in sorted(number for name, number in first if name == machine)[1:]
    )


def newest_method(series: Iterable[Place]) -> int:
    """The method whose series have the plain names."""
    return max((place.method for place in series), default=1)


def _values(rated: Rated, run: Run) -> Iterator[tuple[Place, float | None]]:
    """All that a row says, each with the series it belongs to."""
    row = rated.row
    place = place_of(row, run)
    yield place, row.median_s if row.kind == "time" else row.value
    if row.kind == "time" and row.status == "ok":
        words = place.conditions.split()
        for quantity, (unit, value) in BESIDE.items():
            number = value(rated)
            if number is not None and math.isfinite(number):
                beside = replace(place, quantity=quantity, unit=unit, conditions=" ".join(["any", *words[1:]]))
                yield beside, number


def place_of(row: Row, run: Run) -> Place:
    """Where a row belongs."""
    if row.kind == "time":
        quantity, unit = "seconds", "seconds"
    else:
        quantity, unit = re.sub(r"\W+", "_", f"{row.kind}_{row.phase or row.unit}").strip("_"), row.unit
    special = {"data": row.data, "seed": str(row.seed), "target": row.target}
    if row.kind == "static":
        special["tile"] = row.flags.get("tile", "")
    usual = {"data": ("", "normal"), "seed": ("0",), "target": ("",), "tile": ("",)}
    said = [row.cache or "any", *(f"{name}={value}" for name, value in special.items() if value not in usual[name])]
    machine = row.machine or run.machine.key
    return Place(machine, row.family, quantity, unit, row.case, row.implementation, " ".join(said), row.method)


def _of_one_identity(points: list[Point], *, of_any_cache: bool) -> tuple[Point, ...]:
    """Rows that are ok and of the newest such row's identity; what failed has no time to mislead."""

    def identity(row: Row) -> object:
        return sorted(row.flags.items()) if of_any_cache else row.id

    ok = [point.row for point in points if point.row.status == "ok"]
    newest = max(ok, key=lambda row: row.utc) if ok else points[-1].row
    return tuple(point for point in points if point.row.status != "ok" or identity(point.row) == identity(newest))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
