"""Runs at two commits, and the series that they make."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gemmgate.suite.records import Row, Run
from gemmgate.suite.series import BESIDE, Series, collect
from tests.runs import row, run

OLD, NEW = "0a1b2c3d" + "0" * 32, "4e5f6071" + "0" * 32
TIMES = {OLD: 1000, NEW: 2000}
BESIDE_HERE = ("error", "error_vs_yardstick")
NAME = "track_gemm.DenseSplitk.track_seconds"


def at(commit: str, *rows: Row, **fields: Any) -> Run:
    """A run at a commit, whose rows carry its day unless they have one of their own."""
    day = f"2026-01-{TIMES[commit] // 1000 if commit in TIMES else 9:02}T12:00:00Z"
    mine = tuple(replace(one, commit=commit, utc=day if one.utc == row().utc else one.utc) for one in rows)
    return run(mine, **{"id": f"run-{commit[:4]}", "commit": commit, "utc": day, **fields})


def series_of(*runs: Run) -> tuple[dict[str, list[float | None]], tuple[str, ...]]:
    """Values by implementation, and what was left out."""
    series, notes = timed(*runs)
    return {place.implementation: [point.value for point in points] for place, points in series.items()}, notes


def timed(*runs: Run) -> tuple[Series, tuple[str, ...]]:
    """The series of times and counts alone, without what a time carries besides."""
    series, notes = collect(runs, TIMES)
    return {place: points for place, points in series.items() if place.quantity not in BESIDE}, notes


def pair_of_runs() -> tuple[Run, Run]:
    """Two commits; at the newer one an implementation failed, and another is new."""
    old = at(OLD, row("cublas", 8e-6, target=""), row("own", 9e-6, target=""))
    failed = row("own", status="broken", reason="wrong", target="")
    return old, at(NEW, row("cublas", 7e-6, target=""), failed, row("new", 6e-6, cache="hot", target=""))
