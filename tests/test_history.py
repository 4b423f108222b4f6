"""Stored runs become series."""

from __future__ import annotations

import numpy as np
import pytest

from gemmgate.suite import history
from gemmgate.suite.records import METHOD_VERSION
from gemmgate.suite.series import BESIDE, Place, collect
from tests.histories import NEW, OLD, TIMES, at, series_of, timed
from tests.runs import H200, row


def test_points_are_in_the_order_of_commits() -> None:
    """A series has a point a commit, oldest commit first, whatever the order of the runs."""
    runs = at(NEW, row("cublas", 7e-6, target="")), at(OLD, row("cublas", 8e-6, target=""))
    series, notes = timed(*runs)
    (place,) = series
    assert place == Place(
        H200.key, "dense_splitk", "seconds", "seconds", "m32-n32-k32768-bf16", "cublas", "cold", method=METHOD_VERSION
    )
    assert [(point.commit, point.value) for point in series[place]] == [(OLD, 8e-6), (NEW, 7e-6)]
    assert notes == ()


def test_newest_row_of_a_commit_counts() -> None:
    """Of two rows of one place and commit, in one run or in two, the one with the newest time of day counts."""
    first, second = row("cublas", 8e-6, utc="2026-03-01T12:00:00Z"), row("cublas", 7e-6, utc="2026-03-01T13:00:00Z")
    for runs in ((at(OLD, second), at(OLD, first)), (at(OLD, second, first),)):
        assert series_of(*runs)[0] == {"cublas": [7e-6]}


def test_what_does_not_belong_is_left_out_and_named() -> None:
    """Dirty runs, unknown commits and rows of another identity than the newest are left out, with a sentence each."""
    other = row("cublas", 9e-6, flags={"float32_matmul_precision": "high"})
    runs = (
        at(OLD, other),
        at(NEW, row("cublas", 7e-6)),
        at(NEW, row("cublas", 1e-6), dirty=True, id="run-dirty"),
        at("f" * 40, row("cublas", 2e-6)),
    )
    values, notes = series_of(*runs)
    assert values == {"cublas": [7e-6]}
    assert [note.split(":")[0] for note in notes] == [
        "run run-dirty",
        "1 commit of 1 run that this repository does not have",
        "1 row by another timer or library flags than the newest of their series",
    ]
    assert "ffffffffff" in notes[1]


def test_failures_are_gaps_and_refusals_nothing() -> None:
    """A row that failed has no value, an unsupported one and a throughput no point, and other inputs another series."""
    rows = (
        row("bad", status="broken", reason="wrong"),
        row("none", status="unsupported", reason="cpu"),
        row("fast", 1.0, kind="count", value=3.0, unit="flop/s"),
        row("count", kind="count", value=3.0, unit="instructions", status="ok"),
    )
    assert series_of(at(OLD, *rows))[0] == {"bad": [None], "count": [3.0]}
    zeros, _ = timed(at(OLD, row("cublas", data="zeros", seed=2)))
    assert [place.conditions for place in zeros] == ["cold data=zeros seed=2 target=sm_90"]


def test_compiled_code_has_series_by_target_and_tile() -> None:
    """Registers of a kernel are a series for each architecture and each way to choose the tile."""
    rows = [
        row("own", kind="static", phase="multiply", value=value, unit="registers", cache="", target=target, flags=flags)
        for value, target, flags in (
            (32.0, "sm_90", {"tile": "rule"}),
            (40.0, "sm_90", {"tile": "tuned"}),
            (64.0, "sm_120", {}),
        )
    ]
    series, _ = timed(at(OLD, *rows))
    found = {(place.quantity, place.unit, place.conditions): points[0].value for place, points in series.items()}
    assert found == {
        ("static_multiply", "registers", "any target=sm_90 tile=rule"): 32.0,
        ("static_multiply", "registers", "any target=sm_90 tile=tuned"): 40.0,
        ("static_multiply", "registers", "any target=sm_120"): 64.0,
    }


def test_a_failure_does_not_hide_what_was_ok() -> None:
    """Where the newest row failed, and so had no timer of its own, older times stay."""
    runs = at(OLD, row("own", 8e-6, timer="events")), at(NEW, row("own", status="error", reason="died"))
    assert series_of(*runs)[0] == {"own": [8e-6, None]}


def test_what_a_time_carries_besides() -> None:
    """Errors against float64 and against the yardstick and seconds to compile are series, one for all cache states."""
    rows = [row("cublas", cache=c, error=2e-3, compile_s=0.5, target="") for c in ("cold", "hot")]
    rows += [row("own", cache=c, error=3e-3, compile_s=None, target="") for c in ("cold", "hot")]
    series, _ = collect([at(OLD, *rows)], TIMES)
    found = {
        (place.quantity, place.implementation, place.conditions): [point.value for point in points]
        for place, points in series.items()
        if place.quantity in BESIDE
    }
    assert found == {
        ("error", "cublas", "any"): [2e-3],
        ("error", "own", "any"): [3e-3],
        ("error_vs_yardstick", "cublas", "any"): [1.0],
        ("error_vs_yardstick", "own", "any"): [pytest.approx(1.5)],
        ("compile_seconds", "cublas", "any"): [0.5],
    }


def test_another_timer_for_a_check_is_no_point() -> None:
    """A time that another timer took to check a row is in no series."""
    check = row("cublas", 9e-6, timer="events", phase="cross_check", utc="2026-01-02T12:00:00Z")
    assert series_of(at(OLD, row("cublas", 8e-6), check))[0] == {"cublas": [8e-6]}


def test_steps() -> None:
    """A lasting change of 10 % is a step at its first point; noise, a gap, two points and half a percent are none."""
    noise = np.random.default_rng(5).normal(1.0, 0.005, 40)
    level = [float(x) for x in 8e-6 * noise]
    slower = [x * (1.1 if i >= 25 else 1.0) for i, x in enumerate(level)]
    (step,) = history.steps([None, *slower])
    assert step.index == 26
    assert step.ratio == pytest.approx(1.1, abs=0.005)
    assert history.steps(level) == ()
    assert history.steps([1.0] * 20 + [1.005] * 20) == ()
    assert history.steps([1.0] * 10 + [1.2] * 2) == ()
    assert history.steps([]) == history.steps([None]) == ()
