"""A comparison of benchmark functions: a table, JSON, and what the picture shows."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from gemmgate.suite.records import TIMERS, Run
from gemmgate.suite.report import units
from gemmgate.suite.report.layout import Block, Column, Notes, Table, cells
from gemmgate.suite.report.measured import where

REFERENCE = "cupti"


@dataclass(frozen=True)
class Reading:
    """What one function read of one kernel. `kernels_s` is the time in kernels in its cache state, as a trace shows it.

    `spread` is the distance from the least to the largest reading over their median.
    """

    path: str
    timer: str
    cache: str
    median_s: float
    spread: float
    spent_s: float
    kernels_s: float | None

    @property
    def bias(self) -> float | None:
        """How far the reading is above the time in kernels, as a share of that."""
        return self.median_s / self.kernels_s - 1 if self.kernels_s else None


def compared(run: Run) -> list[Reading]:
    """Every function on every kernel, in the order in which they were measured, without those that failed."""
    rows = [row for row in run.rows if row.phase == TIMERS and row.median_s]
    kernels_s = {(row.path, row.cache): row.median_s for row in rows if row.timer == REFERENCE}
    return [
        Reading(
            row.path,
            row.timer,
            row.cache,
            row.median_s or 0.0,
            (max(row.samples_s) - min(row.samples_s)) / (row.median_s or 1.0),
            row.measure_s or 0.0,
            kernels_s.get((row.path, row.cache)),
        )
        for row in rows
        if row.timer != REFERENCE
    ]


def blocks(run: Run) -> list[Block]:
    """Kernels down, functions across."""
    found = compared(run)
    if not found:
        return [Notes(("This run holds no comparison of timers.",), ""), where(run)]
    timers = list(dict.fromkeys(reading.timer for reading in found))
    paths = list(dict.fromkeys(reading.path for reading in found))
    by_place = {(reading.path, reading.timer): reading for reading in found}
    states = {reading.timer: reading.cache for reading in found}
    rows = [
        cells((path, *(_cell(by_place.get((path, timer))) for timer in timers)))
        for path in sorted(paths, key=lambda path: min(r.median_s for r in found if r.path == path))
    ]
    by_timer: dict[str, list[Reading]] = defaultdict(list)
    for reading in found:
        by_timer[reading.timer].append(reading)
    rows.append(cells(("cache state", *(states[timer] for timer in timers))))
    said = [[reading.spread for reading in by_timer[timer]] for timer in timers]
    rows.append(cells(("spread, median", *(f"{statistics.median(spreads):.1%}" for spreads in said))))
    rows.append(cells(("spread, worst", *(f"{max(spreads):.1%}" for spreads in said))))
    seconds = (sum(reading.spent_s for reading in by_timer[timer]) for timer in timers)
    rows.append(cells(("seconds", *(units.significant(spent_s) for spent_s in seconds))))
    columns = (Column("us (over the kernels' own time)"), *(Column(timer, right=True) for timer in timers))
    repeats = run.selection.get("repeats", "?")
    notes = (
        f"Medians of {repeats} readings; in brackets how far above the sum of the kernels' own times in the same cache "
        "state, as CUPTI traces them. spread: from the least to the largest reading, over the median.",
        "hot: the inputs were just used; flushed: zeros were written over the L2 before, whose lines are then dirty; "
        "swept: other data was read instead; cold: inputs go round a ring of three times the L2.",
    )
    failed = [row for row in run.rows if row.phase == TIMERS and row.status != "ok"]
    problems = tuple(f"{row.timer} on {row.path}: {row.detail}" for row in failed)
    return [Table("", columns, tuple(rows)), Notes((*notes, *problems), ""), where(run)]


def timers_json(run: Run) -> str:
    """A list of readings as JSON."""
    plain: list[dict[str, Any]] = [
        {
            "kernel": reading.path,
            "timer": reading.timer,
            "cache": reading.cache,
            "median_s": reading.median_s,
            "spread": reading.spread,
            "spent_s": reading.spent_s,
            "kernels_s": reading.kernels_s,
        }
        for reading in compared(run)
    ]
    return json.dumps({"run": run.id, "machine": run.machine.key, "readings": plain}, indent=1, allow_nan=False) + "\n"


def _cell(reading: Reading | None) -> str:
    if reading is None:
        return units.NONE
    said = units.microseconds(reading.median_s)
    return said if reading.bias is None else f"{said} ({reading.bias:+.0%})"
