"""Goals of split-K products: which cases count, what they come to, and when a goal is reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gemmgate.kernels import dense_splitk, dense_splitk_epilogue
from gemmgate.suite import report
from gemmgate.suite.goals import GOALS, Goal, Standing, standings
from gemmgate.suite.records import Row, Run
from tests.runs import LIMITS, row, run

TILE = {"block_m": 16}
PLAIN = GOALS[0]


def pair(k: int, speedup: float, rival: str = "cublas", *, own: bool = True, **fields: Any) -> tuple[Row, Row]:
    """The rival at 12 us and `dispatch` so many times as fast, by a kernel of ours or by the library."""
    sizes = fields.pop("dims", {"m": 32, "n": 32, "k": k})
    case = "-".join(f"{name}{size}" for name, size in sizes.items()) + f"-{fields.get('dtype', 'bf16')}"
    common = {"dims": sizes, "case": case, "visit": case, "roof_s": 3e-6, **fields}
    return row(rival, 12e-6, **common), row("dispatch", 12e-6 / speedup, tile=TILE if own else None, **common)


def of(*pairs: Sequence[Row]) -> Run:
    """A run of these pairs on a machine whose launches take 1 us at least."""
    return run([one for two in pairs for one in two], limits=replace(LIMITS, launch_floor_s=1e-6))


def standing(found: Run, goal: Goal) -> Standing:
    return next(each for each in standings(found) if each.goal == goal)


def test_mean_counts_what_was_left_to_the_library_too() -> None:
    """Of 2.0 by a kernel of ours and 1.0 by the library, the mean is the root of 2 and the mean of ours 2."""
    found = standing(of(pair(8192, 2.0), pair(16384, 1.0, own=False)), PLAIN)
    assert found.mean == pytest.approx(math.sqrt(2), rel=1e-3)
    assert found.mean_of_own == pytest.approx(2, rel=1e-3)
    assert found.own == ("m32-n32-k8192-bf16",)
    # Roof 3 us and a launch of 1 us, of 6 and of 12 us.
    assert found.share == pytest.approx(math.sqrt(4 / 6 * 4 / 12), rel=1e-3)


def test_what_is_slower_is_named() -> None:
    """A kernel of ours that is slower than the rival is named; the library in its place is not."""
    found = standing(of(pair(8192, 0.9), pair(16384, 0.9, own=False), pair(4096, 1.1)), PLAIN)
    assert found.slower == ("m32-n32-k8192-bf16",)


def test_other_rows_do_not_count() -> None:
    """Another dtype, epilogue, tag, cache state or timer, a failure, and a rival of another visit are left out."""
    others = (
        pair(4096, 3.0, dtype="fp16"),
        pair(12288, 3.0, epilogue="relu"),
        pair(16384, 3.0, tags=("drawn",)),
        pair(20480, 3.0, cache="hot"),
        pair(24576, 3.0, timer="events", phase="singly"),
        (row("dispatch", status="broken", case="m32-n32-k28672-bf16", dims={"m": 32, "n": 32, "k": 28672}),),
    )
    rival, mine = pair(32768, 3.0)
    found = standing(of(pair(8192, 1.5), *others, (rival, replace(mine, visit="another"))), PLAIN)
    assert list(found.ratios) == ["m32-n32-k8192-bf16"]


def test_as_many_of_ours_as_asked() -> None:
    """A mean of 1.6 over 28 cases of ours reaches 1.5 with 28; with one of them left to the library it does not."""
    cases = [pair(1024 * i, 1.6) for i in range(1, 28)]
    assert standing(of(*cases, pair(65536, 1.6)), PLAIN).reached
    assert not standing(of(*cases, pair(65536, 1.6, own=False)), PLAIN).reached


def test_floor_instead_of_the_mean() -> None:
    """A large case no faster than the rival reaches its goal at 80 % of its floor, and not at 70 %."""
    goal = next(goal for goal in GOALS if goal.floor)
    size = {"m": 512, "n": 512, "k": 32768}
    near = of(pair(0, 1.0, own=False, dims=size, tags=("large",), roof_s=8.6e-6))
    far = of(pair(0, 1.0, own=False, dims=size, tags=("large",), roof_s=7.4e-6))
    assert (standing(near, goal).reached, standing(far, goal).reached) == (True, False)


def test_against_another_rival() -> None:
    """A fused epilogue is held against the library's fused one by their times in one visit."""
    goal = next(goal for goal in GOALS if goal.against == "cublaslt_fused")
    fused = {"family": "dense_splitk_epilogue", "epilogue": "relu"}
    found = standing(of(pair(8192, 1.25, "cublaslt_fused", **fused)), goal)
    assert found.mean == pytest.approx(1.25, rel=1e-3)


def test_goals_are_of_cases_that_exist() -> None:
    """The catalog has as many cases for each goal as the goal says."""
    cases = (*dense_splitk.FAMILY.cases, *dense_splitk_epilogue.FAMILY.cases)
    for goal in GOALS:
        found = [
            case
            for case in cases
            if (case.family, case.epilogue or "none", (case.dtype, case.precision))
            == (goal.family, goal.epilogue, goal.format)
            and goal.tag in case.tags
            and (not goal.sizes or tuple(case.dims[name] for name in "mnk") in goal.sizes)
        ]
        assert len(found) == goal.cases, goal.name


def test_a_part_of_a_set_reaches_nothing() -> None:
    """Eleven of twelve cases are no set; with the twelfth tried and failed there is no more to measure."""
    goal = next(goal for goal in GOALS if goal.tag == "drawn")
    eleven = [pair(0, 1.4, dims={"m": 24, "n": 24, "k": 1024 * i}, tags=("drawn",)) for i in range(1, 12)]
    twelfth = {"dims": {"m": 24, "n": 24, "k": 40756}, "case": "m24-n24-k40756-bf16", "tags": ("drawn",)}
    left = (row("cublas", status="skipped", **twelfth), row("dispatch", status="skipped", **twelfth))
    failed = (row("cublas", status="broken", **twelfth), row("dispatch", 1e-5, **twelfth))
    assert not standing(of(*eleven), goal).is_whole
    assert not standing(of(*eleven, left), goal).is_whole
    whole = standing(of(*eleven, failed), goal)
    assert (whole.is_whole, whole.failed) == (True, ("m24-n24-k40756-bf16",))


def test_table_says_what_was_reached_missed_and_not_run() -> None:
    """A line a goal: its numbers and whether they do, or that the run has a part or none of its cases."""
    drawn = [pair(0, 1.4, dims={"m": 24, "n": 24, "k": 1024 * i}, tags=("drawn",)) for i in range(1, 13)]
    sizes = next(goal.sizes for goal in GOALS if goal.sizes)
    slow = [pair(0, 0.8, dims=dict(zip("mnk", size, strict=True)), tags=("large",)) for size in sizes]
    text = report.show_goals(of(*drawn, *slow, pair(8192, 2.0)), "markdown")
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines() if line.startswith("| ")}
    assert "| 1.400 (12 of 12) | 12 of 12 | 1.400 | 47% | 1.400 | 0 | reached |" in lines["drawn, bf16"]
    assert "| 0.800 (4 of 4) | 4 of 4 | 0.800 | 27% | 0.800 | 4 | missed |" in lines["large, bf16"]
    assert "| 2.000 (1 of 32) | 1 of 1 | 2.000 |" in lines["split-K set, bf16"]
    assert lines["split-K set, bf16"].endswith("| in part |")
    assert lines["split-K set, TF32"].endswith("| not run |")
    assert "large, bf16, slower than cublas: m128-n128-k32768" in text


def test_goals_fit_a_narrow_terminal() -> None:
    """At 80 columns names of implementations stand whole, and what gave way is named."""
    lines = report.show_goals(of(pair(8192, 2.0)), width=80).splitlines()
    assert any("cublaslt_fused" in line for line in lines)
    assert any(line.startswith("No room for: least, of the floor, mean of own, own.") for line in lines)
    assert all(len(line) <= 80 for line in lines)
