"""What a gate compiles before its survey: each side its own kernels into its own caches, where that pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gemmgate.kernels.dense_splitk.cases import case_of
from gemmgate.suite import warming
from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.cases import Case, Target
from gemmgate.suite.catalog import Selection, tree_hash
from gemmgate.suite.checkouts import Checkouts
from gemmgate.suite.cli import _compiled_ahead
from gemmgate.suite.cli._compiled_ahead import compile_ahead, lacking
from gemmgate.suite.cli._gate_sides import Asked, Probed, Sides, make_sides, side_caches
from gemmgate.suite.offers import Offer
from gemmgate.suite.pairs import SIDES
from tests.runs import H200, STACK

TARGET = Target("sm_90", "NVIDIA H200", sm_count=132, shared_bytes=232448, memory_bytes=140 << 30)
ON_H200 = Probed(H200, dict.fromkeys(SIDES, STACK), dict.fromkeys(SIDES, TARGET))
CASES = [case_of(16, 16, 4096 * i, "bf16", "acc32") for i in (1, 2, 3, 4)]
NAMES = ("w", "x", "y", "z")
Worked = list[tuple[list[warming.Crew], float | None]]


def offered(cases: Sequence[Case], *names: str) -> list[Offer]:
    """Of those names `cublas` can be none of our kernels."""
    return [Offer(case, name, 1, 1, "", "", name != "cublas") for case in cases for name in names]


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sides:
    """Two copies of this tree, whose caches lie in a folder of the test."""
    monkeypatch.setenv("GEMMGATE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "sides").mkdir()
    asked = Asked("", "", Selection(), "auto", None, False, ("", ""), True, "", "", ())
    return make_sides(asked, Checkouts(tmp_path / "sides"))


def edited(sides: Sides) -> Sides:
    """With one more line in a kernel's source of the candidate, and so under caches of its own."""
    tree = sides.trees[CANDIDATE]
    source = (tree.kernels / "dense_splitk" / "triton_split_k.py").resolve()
    source.write_text(source.read_text(encoding="utf-8") + "CHANGED = 1\n", encoding="utf-8")
    tree = replace(tree, tree=tree_hash(tree.kernels))
    launch = sides.launch[CANDIDATE]
    launch = replace(launch, environment=side_caches(tree, launch.python))
    return Sides({**sides.trees, CANDIDATE: tree}, {**sides.launch, CANDIDATE: launch})


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> Worked:
    """Crews that would work on a machine of 16 cores, and their most seconds; nothing is done."""
    found: Worked = []

    def warm(working: list[warming.Crew], most_s: float | None) -> warming.Warmed:
        found.append((working, most_s))
        return warming.Warmed(1, 2, problem="the worker ended")

    monkeypatch.setattr(warming, "warm", warm)
    monkeypatch.setattr(_compiled_ahead.os, "sched_getaffinity", lambda process: set(range(16)))
    return found


def said_of(
    sides: Sides, wanted: Mapping[str, Sequence[Offer]], seconds: float | None = None, on: Probed = ON_H200
) -> str:
    """What is said of compiling beforehand."""
    said: list[str] = []
    compile_ahead(sides, on, wanted, seconds, said.append)
    return " ".join(said)


def test_sides_that_differ_each_have_compilers(sides: Sides, worked: Worked) -> None:
    """They share the workers, leave out the yardstick, have a third of the seconds, and it is all said."""
    wanted = {BASELINE: offered(CASES, "cublas", *NAMES), CANDIDATE: offered(CASES, *NAMES)}
    assert said_of(edited(sides), wanted, 240.0) == (
        "compiling beforehand for 4 cases of the baseline and 4 cases of the candidate, with 4 workers. "
        "compiled for 1 of 2 cases; the worker ended"
    )
    ((working, most_s),) = worked
    assert [(crew.count, len(crew.choices), crew.has_device) for crew in working] == [(2, 4, False), (2, 4, False)]
    assert {choice.implementations for crew in working for choice in crew.choices} == {NAMES}
    assert most_s == 80.0


def test_sides_that_are_the_same_compile_once(sides: Sides, worked: Worked) -> None:
    """Two copies of one tree have one folder of caches, so what both launch is compiled for both together."""
    said = said_of(sides, {BASELINE: offered(CASES, *NAMES), CANDIDATE: offered(CASES, *NAMES)})
    assert said.startswith("compiling beforehand for 4 cases of both sides, which are the same, with 4 workers.")
    (((crew,), most_s),) = worked
    assert (crew.count, most_s) == (4, None)
    assert [choice.implementations for choice in crew.choices] == [NAMES] * 4


@pytest.mark.parametrize(
    ("names", "cores", "seconds", "target"),
    [
        (NAMES[:3], 16, None, TARGET),
        (NAMES, 3, None, TARGET),
        (NAMES, 16, 29.0, TARGET),
        (NAMES, 16, None, Target("cpu", memory_bytes=64 << 30)),
    ],
)
def test_where_it_does_not_pay_nothing_is_compiled(
    sides: Sides,
    worked: Worked,
    monkeypatch: pytest.MonkeyPatch,
    names: Sequence[str],
    cores: int,
    seconds: float | None,
    target: Target,
) -> None:
    """Fifteen pairs or fewer, three cores, less than half a minute, or a CPU: the survey's own workers compile."""
    monkeypatch.setattr(_compiled_ahead.os, "sched_getaffinity", lambda process: set(range(cores)))
    on = Probed(H200, ON_H200.stacks, dict.fromkeys(SIDES, target))
    assert said_of(sides, {side: offered(CASES, *names) for side in SIDES}, seconds, on) == ""
    assert worked == []


def test_the_survey_finds_the_binaries_of_both_sides(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real workers without a device leave each side's kernels in that side's cache, and the next gate lacks nothing."""
    monkeypatch.setattr(_compiled_ahead, "FEWEST", 1)
    monkeypatch.setattr(_compiled_ahead.os, "sched_getaffinity", lambda process: set(range(4)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    both = edited(sides)
    wanted = {side: offered(CASES, "cublas", "triton_split_k") for side in SIDES}
    assert "with 2 workers." in said_of(both, wanted)
    caches = [Path(both.launch[side].environment["TRITON_CACHE_DIR"]) for side in SIDES]
    made = [sorted(path.name for path in cache.rglob("*.cubin")) for cache in caches]
    assert made[0] == made[1] != []
    assert [one.choices for one in lacking(both, ON_H200, wanted)] == [[], []]
    assert [len(one.choices) for one in lacking(sides, ON_H200, wanted)] == [0]
