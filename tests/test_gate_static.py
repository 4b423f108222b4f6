"""Code compiled for GPUs that are not here, in a gate: what is compiled, what it counts as, and where it is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gemmgate.suite import offers, report
from gemmgate.suite.acceptances import read_acceptances
from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.catalog import Selection
from gemmgate.suite.checkouts import Checkouts
from gemmgate.suite.cli import _compiled_sides
from gemmgate.suite.cli._compiled_sides import compile_sides
from gemmgate.suite.cli._gate_sides import Asked, Sides
from gemmgate.suite.compiling.plan import Request
from gemmgate.suite.judged_static import of_side
from gemmgate.suite.judgement import Judgement, judgement
from gemmgate.suite.records import Row, Run
from tests.gate_repository import make_repository
from tests.gate_world import GateWorld, Played, cases
from tests.program import Invoke, invoke, store
from tests.test_static_judge import SOUND, changed

__all__ = ["invoke", "store"]
SPILLS = "static/planted/product/spills-slower"


def gate(old: list[Row], new: list[Row], *, gpu: bool = True) -> Run:
    """A gate of one unchanged item that was compiled too, with these rows a side."""
    run = Played(GateWorld(gpu=gpu), cases("a")).run
    return replace(run, rows=(*run.rows, *of_side(old, BASELINE, "b"), *of_side(new, CANDIDATE, "h")))


def found(old: list[Row], new: list[Row], **fields: bool) -> tuple[Judgement, dict[str, str]]:
    """The judgement, and verdicts of compiled code by path."""
    made = judgement(gate(old, new, **fields))
    return made, {one.path: str(one.comparison.verdict) for one in made.items if one.path.startswith("static/")}


@pytest.mark.parametrize("gpu", [True, False])
def test_spills_fail_wherever_the_gate_runs(gpu: bool) -> None:
    """Spills in two cases on an architecture are one item that fails, on a CPU too, with its command and its cases."""
    old = [SOUND, replace(SOUND, case="m1")]
    new = [changed(spill_bytes=8), replace(changed(spill_bytes=8), case="m1")]
    made, verdicts = found(old, new, gpu=gpu)
    assert verdicts == {SPILLS: "SLOWER"}
    assert made.result.exit_code == 1
    (item,) = [one for one in made.items if one.path == SPILLS]
    assert "Spills 0 -> 8 bytes." in item.comparison.sentence
    assert "_product on sm_90 for m64-n64-k4096-bf16, _product on sm_90 for m1;" in item.comparison.sentence
    assert item.repro.startswith("gemmgate static --family planted --impl product --target sm_90 --case m64-n64")
    assert SPILLS in report.table_gate(made) and SPILLS in report.gate_json(made)["failed"]
    assert "What changed was compiled for sm_90 too: 2 kernels, 0 with the same code." in made.notes


@pytest.mark.parametrize(
    ("new", "verdicts", "code"),
    [
        ([SOUND], {}, 0),
        ([changed()], {}, 0),
        ([changed(resident_warps=20)], {"static/planted/product/occupancy-faster": "FASTER"}, 0),
        (
            [changed(resident_warps=12, tile={"block_k": 128})],
            {"static/planted/product/occupancy-pick_changed": "PICK_CHANGED"},
            0,
        ),
        (
            [replace(SOUND, phase="", status="unsupported", reason="shared_memory", detail="too much.")],
            {"static/planted/product/missing": "INCOMPARABLE"},
            1,
        ),
        ([replace(SOUND, phase="", status="timeout", reason="deadline", detail="too long.")], {}, 0),
        ([replace(SOUND, target="sm_80")], {}, 0),
        ([], {}, 0),
    ],
)
def test_what_compiled_code_counts_as(new: list[Row], verdicts: dict[str, str], code: int) -> None:
    """The same and better code and another pick pass, what no longer fits fails, and other targets say nothing."""
    made, shown = found([SOUND], new)
    assert (shown, made.result.exit_code) == (verdicts, code)


def test_two_launches_that_became_one_are_no_loss() -> None:
    """A kernel that the candidate does not launch any more is no finding where another one is compiled."""
    made, shown = found([SOUND, replace(SOUND, phase="_add", cubin_sha="c")], [SOUND])
    assert (shown, made.result.exit_code) == ({}, 0)


def test_worse_code_can_be_accepted() -> None:
    """An entry for the finding's path passes it, with its reason."""
    entry = f'[[accept]]\ncase = "{SPILLS}"\nbound = 0.0\nreason = "rare GPU"\nexpires = 2026-06-30\n'
    made = judgement(gate([SOUND], [changed(spill_bytes=8)]), read_acceptances(entry, "accepted.toml"))
    assert made.result.exit_code == 0
    assert made.applied.accepted == {SPILLS: "accepted until 2026-06-30: rare GPU"}


@pytest.fixture
def compile_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Request]]:
    """Requests that `compile_sides` makes for a repository in which `torch_sum` was edited."""
    repository = make_repository(tmp_path / "theirs")
    kernel = repository / "families" / "row_sums" / "sums.py"
    kernel.write_text(kernel.read_text() + "# in place of triton\nCHANGED = 1\n")
    made = Checkouts(tmp_path / "work", [repository / "families"])
    sides = Sides({BASELINE: made.side("base", "main"), CANDIDATE: made.side("head")}, {})
    head = sides.trees[CANDIDATE]
    both = offers.ask(sys.executable, head.overlay, head.suites, Selection(implementations=("torch_sum",)))
    asked = Asked("main", "", Selection(), "cpu", None, False, ("", ""), True, "", "", (), ("sm_80", "h100-nvl"))

    def requests(sources: tuple[str, str], measured: str = "", **fields: object) -> list[Request]:
        seen: list[Request] = []
        monkeypatch.setattr(_compiled_sides, "installed", lambda name: "3.7.1")
        monkeypatch.setattr(_compiled_sides, "compile_rows", lambda request, *rest: seen.append(request) or (SOUND,))
        told = {
            side: {offer.path: text for offer in both}
            for side, text in zip((BASELINE, CANDIDATE), sources, strict=True)
        }
        rows = compile_sides(replace(asked, **fields), sides, both, told, measured, print)  # type: ignore[arg-type]
        assert len(rows) == len(seen) and {row.flags["side"] for row in rows} <= {BASELINE, CANDIDATE}
        return seen

    return requests


def test_only_what_changed_is_compiled(compile_changed: Callable[..., list[Request]]) -> None:
    """Sources that differ are compiled once a side, of that implementation alone; equal ones are not."""
    old, new = compile_changed(("x", "y"))
    assert old.selection == new.selection == Selection(families=("row_sums",), implementations=("torch_sum",))
    assert list(old.targets) == ["sm_80", "sm_90:h100-nvl"]
    assert old.suites != new.suites
    assert compile_changed(("x", "x")) == []


def test_what_is_measured_is_not_compiled_too(compile_changed: Callable[..., list[Request]]) -> None:
    """The architecture that is timed is left out; so is everything between two interpreters, or where none is asked."""
    assert [list(request.targets) for request in compile_changed(("x", "y"), "sm_90")] == [["sm_80"]] * 2
    assert compile_changed(("x", "y"), pythons=("a", "b")) == []
    assert compile_changed(("x", "y"), static=()) == []


def test_a_gpu_that_does_not_exist_is_bad_input(invoke: Invoke) -> None:
    """Unknown names and CPUs are refused before anything starts."""
    assert invoke("gate", "--base", "HEAD", "--static", "sm_1").exit_code == 2
    result = invoke("gate", "--base", "HEAD", "--static", "cpu")
    assert result.exit_code == 2 and "compiled for GPUs" in result.stderr
