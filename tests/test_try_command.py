"""`gemmgate try`, the command: a function is checked, timed and compared, and what cannot be is said."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gemmgate.suite import catalog
from gemmgate.suite.catalog import Choice
from gemmgate.suite.cli import _trial, try_
from gemmgate.suite.records import Limits
from gemmgate.suite.report.trial import outcome as outcome_of
from gemmgate.suite.store import Store
from tests.called import called
from tests.trials import CASE, ROOT, kernels

__all__ = ["kernels"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kernels.py"], "write FILE.py:FUNCTION"),
        (["kernel.py:right", "--family", "dense_splitk"], "No file in . matches 'kernel.py'. Did you mean kernels.py"),
        (["kernels.py:right"], "Say with --family what the function computes: dense_splitk"),
        (["kernels.py:right", "--family", "dense_splitc"], "Did you mean dense_splitk"),
        (["kernels.py:right", "--family", "dense_splitk", "--against", "cubla"], "Did you mean cublas"),
        (["kernels.py:right", "--family", "dense_splitk", "--tag", "quik"], "No tag matches 'quik'"),
        (["kernels.py:right", "--family", "dense_splitk", "--case", "m8"], "No case matches 'm8'"),
        (["kernels.py:right", "--family", "dense_splitk", "--device", "gpu"], "No device matches 'gpu'"),
    ],
)
def test_bad_input(kernels: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str) -> None:
    """What does not exist is a sentence with exit code 2, before anything is imported or measured."""
    monkeypatch.chdir(kernels.parent)
    result = called("try", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.said


def test_a_right_function_is_checked_timed_and_compared(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0 and a sentence with the interval, or 3 where others used the CPU; JSON rows, and no new file."""
    monkeypatch.setattr(_trial, "measure_limits", lambda worker: Limits())
    monkeypatch.chdir(tmp_path)
    before = _state()
    options = ["--family", "dense_splitk", "--case", CASE, "--seconds", 2, "--device", "cpu", "--format", "json"]
    result = called("try", f"{kernels}:right", *options)
    rows = {row["implementation"]: row for row in json.loads(result.stdout)["rows"]}
    busy = "busy" in rows["right"]["marks"]
    assert result.exit_code == (3 if busy else 0), result.stderr
    assert list(rows) == ["cublas", "right"]
    assert rows["right"]["ratio_low"] < rows["right"]["ratio"] < rows["right"]["ratio_high"]
    assert rows["right"]["algorithm"] == "kernels.py:right"
    assert "Right: right agrees with the float64 reference on 1 case" in result.said
    assert ("Not judged: other processes used the CPU" in result.said) == busy
    assert ("95% interval" in result.said) != busy
    assert ("one case of dense_splitk (fp32), hot" in result.said) != busy
    assert _state() == before
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_function_has_exit_code_1_and_no_time(kernels: Path, tmp_path: Path) -> None:
    """The case and the error are named, nothing is timed, and what was asked to be stored says the same afterwards."""
    options = ["--family", "dense_splitk", "--case", CASE, "--device", "cpu", "--results", tmp_path / "r"]
    result = called("try", f"{kernels}:sloppy", *options)
    assert result.exit_code == 1
    first, second = result.stdout.splitlines()
    assert first == "Wrong: sloppy failed on 1 of 1 case, so nothing was timed."
    assert second.startswith(f"  {CASE}: sloppy is wrong: error 0.01")
    stored = Store(tmp_path / "r").load("latest")
    assert [(row.status, row.median_s) for row in stored.rows] == [("broken", None)]
    assert "\n".join(outcome_of(stored).lines) == result.stdout.rstrip()
    assert outcome_of(stored).exit_code == 1


def test_a_case_beyond_the_memory_is_not_tried(kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3 where that is the only case; where another fits, that one is timed and its outcome counts."""
    monkeypatch.setattr(_trial, "measure_limits", lambda worker: Limits())
    options = ["--family", "dense_splitk", "--seconds", 2, "--device", "cpu"]
    alone = called("try", f"{kernels}:right", *options, "--case", "m300000-n300000-k300000-fp32")
    assert alone.exit_code == 3
    assert alone.stdout.startswith("Not tried: m300000-n300000-k300000-fp32: its inputs and results do not fit into")
    assert "Wrong" not in alone.stdout
    options += ["--case", f"{CASE},m300000-n300000-k300000-fp32", "--results", tmp_path]
    beside = called("try", f"{kernels}:right", *options)
    rows = Store(tmp_path).load("latest").rows
    assert beside.exit_code == (3 if "busy" in rows[-1].marks else 0), beside.stdout
    assert "Right: right agrees with the float64 reference on 1 case" in beside.stdout
    assert [(row.implementation, row.status, row.reason) for row in rows] == [
        ("right", "unsupported", "does_not_fit"),
        ("cublas", "ok", ""),
        ("right", "ok", ""),
    ]


@pytest.mark.parametrize(
    ("second", "timed"),
    [
        ({"ok": True}, ["m1", "m2"]),
        ({"status": "out_of_memory", "reason": "device_memory", "detail": "", "fatal": False}, ["m1"]),
        ({"status": "unsupported", "reason": "does_not_fit", "detail": "", "fatal": False}, ["m1"]),
        ({"status": "broken", "reason": "not_finite", "detail": "", "fatal": False}, []),
        ({"status": "error", "reason": "sigkill", "detail": "", "fatal": True}, []),
    ],
)
def test_what_can_be_timed(second: dict[str, Any], timed: list[str]) -> None:
    """What passed, unless another case is wrong or cost the worker."""
    family = catalog.find().family("dense_splitk")
    cases = [case for name in ("m1", "m2") if (case := catalog.case_named(family, f"{name}-n8-k256-fp32"))]
    choices = [Choice(family, case, ()) for case in cases]
    found = _trial.timeable(choices, [{"ok": True}, second])
    assert [choice.case.name.partition("-")[0] for choice in found] == timed


def _state() -> str:
    """What git sees of this checkout."""
    return subprocess.run(
        ["git", "status", "--porcelain", "--ignored=no"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


# which cases


def test_a_handful_is_spread_over_the_first_dtype() -> None:
    """Of eleven bf16 cases every second is tried, of two both, and none in another dtype."""
    family = catalog.find().family("dense_splitk")
    names = [f"m{m}-n8-k256-{dtype}" for dtype in ("bf16", "fp32") for m in range(1, 12)]
    choices = [Choice(family, case, ()) for name in names if (case := catalog.case_named(family, name))]
    assert [choice.case.name for choice in _trial._handful(choices)] == names[:11:2]
    assert _trial._handful(choices[9:15]) == choices[9:11]


def test_a_name_that_is_taken_gets_a_suffix() -> None:
    """A function called as an implementation of the family is is not taken for it."""
    family = catalog.find().family("dense_splitk")
    assert try_._free_name(family, "cublas") == "cublas_tried"
    assert try_._free_name(family, "Mine.forward") == "forward"
