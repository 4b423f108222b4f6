"""Stored rows as series: the same measurement, once a commit."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gemmgate.suite.records import BESIDE, Row, Run


@dataclass(frozen=True)
class Place:
    """What a series follows. `conditions` are the cache state and whatever else is not the default."""

    machine: str
    family: str
    quantity: str
    unit: str
    case: str
    implementation: str
    conditions: str


@dataclass(frozen=True)
class Point:
    """A row of a series, with its run and the time of its commit in seconds since 1970."""

    commit: str
    committed_s: int
    row: Row
    run: Run

    @property
    def value(self) -> float | None:
        """Seconds, or the value of a row that is no time; None where the row is not ok."""
        if self.row.status != "ok":
            return None
        return self.row.median_s if self.row.kind == "time" else self.row.value


@dataclass(frozen=True)
class Step:
    """A series changes its level at the point of that index, by the factor `ratio`: above 1 is slower."""

    index: int
    ratio: float


Series = Mapping[Place, tuple[Point, ...]]
"""Points in the order of their commits."""


def collect(runs: Iterable[Run], committed_s: Mapping[str, int]) -> tuple[Series, tuple[str, ...]]:
    """The series of all runs, and sentences about what was left out of them.

    Where a commit was measured more than once the newest row counts. A series holds rows of one
    identity, that of its newest row that is ok: rows by another method, timer or library flag would look
    like a step. `committed_s` has the commits that the repository knows.
    """
    found: dict[Place, dict[str, Point]] = defaultdict(dict)
    left_out: Counter[str] = Counter()
    unknown: set[str] = set()
    for run in sorted(runs, key=lambda run: run.utc):
        if run.dirty:
            left_out[f"run {run.id}: measured with uncommitted changes"] += 1
            continue
        for row in run.rows:
            commit = row.commit or run.commit
            if commit not in committed_s:
                unknown.add(commit)
            elif row.status != "unsupported" and row.phase not in BESIDE and not row.unit.endswith("/s"):
                point = Point(commit, committed_s[commit], row, run)
                held = found[place_of(row, run)].get(commit)
                if held is None or row.utc >= held.row.utc:
                    found[place_of(row, run)][commit] = point
    series: dict[Place, tuple[Point, ...]] = {}
    others = 0
    for place, by_commit in found.items():
        points = sorted(by_commit.values(), key=lambda point: (point.committed_s, point.row.utc))
        kept = _of_one_identity(points)
        others += len(points) - len(kept)
        series[place] = kept
    notes = list(left_out)
    if unknown:
        names = ", ".join(sorted(name[:10] or "no name" for name in unknown))
        notes.append(f"commits that this repository does not have: {names} (a shallow clone lacks most: fetch all)")
    if others:
        notes.append(f"{others} rows by another method, timer or library flags than the newest of their series")
    return series, tuple(notes)


def place_of(row: Row, run: Run) -> Place:
    """Where a row belongs. What a program reads in `quantity` is a word: `seconds`, `count_instructions`."""
    if row.kind == "time":
        quantity, unit = "seconds", "seconds"
    else:
        quantity, unit = re.sub(r"\W+", "_", f"{row.kind}_{row.phase or row.unit}").strip("_"), row.unit
    special = {"data": row.data, "seed": str(row.seed), "target": row.target}
    usual = {"data": ("", "normal"), "seed": ("0",), "target": ("",)}
    said = [row.cache or "any", *(f"{name}={value}" for name, value in special.items() if value not in usual[name])]
    machine = row.machine or run.machine.key
    return Place(machine, row.family, quantity, unit, row.case, row.implementation, " ".join(said))


def _of_one_identity(points: list[Point]) -> tuple[Point, ...]:
    """Rows that are ok and have the newest such row's id; what failed at the same method has no time to mislead."""
    ok = [point.row for point in points if point.row.status == "ok"]
    newest = max(ok, key=lambda row: row.utc) if ok else points[-1].row
    return tuple(
        point
        for point in points
        if (point.row.id == newest.id if point.row.status == "ok" else point.row.method == newest.method)
    )
