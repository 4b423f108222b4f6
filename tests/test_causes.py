"""What is said to be behind a step is what the records of its two commits show."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemmgate.suite import causes
from gemmgate.suite.cli import history as command
from gemmgate.suite.duets import Asked
from gemmgate.suite.records import Row, Run
from gemmgate.suite.series import Series, Step, collect
from gemmgate.suite.store import Store
from tests.called import called
from tests.runs import STACK, row, run

OLD, NEW = "a" * 40, "b" * 40
TIMES = {OLD: 1000, NEW: 2000}


def two(old: dict[str, Any], new: dict[str, Any], *, stack: str = "2.11.0", yardstick_s: float = 8e-6) -> Series:
    """The series of `own`, 10 % slower at the newer commit, and of its yardstick; the dicts are fields of its rows."""

    def at(commit: str, own_s: float, cublas_s: float, torch: str, fields: dict[str, Any]) -> Run:
        utc = f"2026-01-0{TIMES[commit] // 1000}T12:00:00Z"
        rows: list[Row] = [row("cublas", cublas_s), row("own", own_s, **fields)]
        rows = [replace(one, commit=commit, utc=utc) for one in rows]
        return run(rows, id=commit[:8], commit=commit, utc=utc, stack=replace(STACK, torch=torch))

    return collect([at(OLD, 10e-6, 8e-6, "2.11.0", old), at(NEW, 11e-6, yardstick_s, stack, new)], TIMES)[0]


def likely(series: Series) -> causes.Cause:
    """The cause of the one step, of `own`, between the two commits."""
    place = next(p for p in series if p.implementation == "own" and p.quantity == "seconds")
    (found,) = causes.found(series, {place: (Step(1, 1.1),)})
    assert (found.before.commit, found.after.commit) == (OLD, NEW)
    return found.cause


@pytest.mark.parametrize(
    ("old", "new", "what", "evidence"),
    [
        ({"board": "b1"}, {"board": "b2", "algorithm": "x"}, "board", "b1 -> b2"),
        ({"marks": ()}, {"marks": ("throttled",)}, "machine", "throttled"),
        ({"sm_clock_hz": 1.98e9}, {"sm_clock_hz": 1.8e9}, "machine", "1980 -> 1800 MHz"),
        ({"tile": {"splits": 8}}, {"tile": {"splits": 16}}, "pick", "splits=8 -> splits=16"),
        ({"kernels": 1}, {"kernels": 2}, "code", "1 -> 2"),
        ({"device_code": "x"}, {"device_code": "y"}, "code", "machine code changed"),
        ({"device_code": "x"}, {"device_code": "x"}, "unknown", "the same"),
        ({}, {}, "unknown", "nothing recorded differs"),
    ],
)
def test_cause_is_what_differs(old: dict[str, Any], new: dict[str, Any], what: str, evidence: str) -> None:
    """The first thing that differs between the rows explains a step, and the evidence names both sides of it."""
    found = likely(two(old, new))
    assert found.what == what
    assert evidence in found.sentence


def test_other_registers_are_other_code() -> None:
    """Registers that change are the code's, although the digest that the rows carry is the same: of another kernel."""
    fields = {"kind": "static", "phase": "add", "unit": "registers", "cache": "", "device_code": "of multiply"}
    runs = [
        run([row("own", value=value, commit=commit, utc=utc, **fields)], id=commit[:8], commit=commit, utc=utc)
        for commit, utc, value in ((OLD, "2026-01-01T12:00:00Z", 96.0), (NEW, "2026-01-02T12:00:00Z", 92.0))
    ]
    series, _ = collect(runs, TIMES)
    (found,) = causes.found(series, dict.fromkeys(series, (Step(1, 92 / 96),)))
    assert found.cause == causes.Cause("code", "the machine code changed: `gemmgate explain` shows how")


def test_versions_explain_before_kernels() -> None:
    """Another torch is blamed before another tile is."""
    found = likely(two({"tile": {"splits": 8}}, {"tile": {"splits": 16}}, stack="2.13.0"))
    assert found == causes.Cause("versions", "torch 2.11.0 -> 2.13.0")


@pytest.mark.parametrize(("yardstick_s", "what"), [(8.8e-6, "machine"), (8.2e-6, "pick"), (7.2e-6, "pick")])
def test_yardstick_that_moves_too_is_the_machine(yardstick_s: float, what: str) -> None:
    """Where the yardstick makes half of the step or more in the same direction, it is the machine's and no kernel's."""
    series = two({"algorithm": "x"}, {"algorithm": "y"}, yardstick_s=yardstick_s)
    assert likely(series).what == what


def test_error_has_no_clock() -> None:
    """A step of an error is never explained by a clock."""
    series = two({"sm_clock_hz": 1.98e9}, {"sm_clock_hz": 1.8e9})
    place = next(p for p in series if p.implementation == "own" and p.quantity == "error")
    (found,) = causes.found(series, {place: (Step(1, 1.1),)})
    assert found.cause.what == "unknown"


def test_newest_and_largest_come_first() -> None:
    """Steps are listed from the newest commit on, and at one commit from the largest change on."""
    series = two({}, {})
    places = [place for place in series if place.quantity == "seconds"]
    found = causes.found(series, dict(zip(places, ((Step(1, 1.02),), (Step(1, 0.8),)), strict=True)))
    assert [one.ratio for one in found] == [0.8, 1.02]


# the command


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Runs at eight commits of a repository; `own` is 20 % slower, with another tile, from the fifth on."""
    root = tmp_path / "checkout"
    root.mkdir()

    def git(*words: str) -> str:
        who = ["-c", "user.name=Test", "-c", "user.email=test@localhost"]
        done = subprocess.run(["git", *who, *words], cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    store = Store(tmp_path / "results")
    for number in range(8):
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"2026-01-0{number + 1}T12:00:00Z")
        git("commit", "--quiet", "--allow-empty", "--message", f"Commit {number}")
        commit = git("rev-parse", "HEAD")
        utc = f"2026-02-0{number + 1}T12:00:00Z"
        slow = number >= 4
        rows = [row("cublas", 8e-6), row("own", 12e-6 if slow else 10e-6, tile={"splits": 16 if slow else 8})]
        with store.begin(run(id=f"2026020{number + 1}T120000Z-{commit[:10]}", commit=commit, utc=utc)) as journal:
            for one in rows:
                journal.append(replace(one, commit="", run_id="", utc=utc))
            journal.finish()
    monkeypatch.setattr(command, "own_overlay", lambda: root)
    return store


def test_history_command(store: Store) -> None:
    """The step is listed once with its change and cause, and options narrow what is looked at."""
    result = called("history", "--format", "json", "--results", store.root)
    assert result.exit_code == 0, result.stderr
    (step,) = json.loads(result.stdout)["steps"]
    assert step["ratio"] == pytest.approx(1.2, abs=1e-3)
    assert (step["implementation"], step["quantity"], step["likely"]) == ("own", "seconds", "pick")
    assert step["evidence"] == "splits=8 -> splits=16"
    table = called("history", "--results", store.root)
    assert "+20.0%" in table.stdout and "1 step in" in table.stdout
    assert "0 steps in" in called("history", "--impl", "cublas", "--results", store.root).stdout
    assert called("history", "--impl", "nonesuch", "--results", store.root).exit_code == 2


def test_history_confirms(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--confirm` the gate is asked about the two commits and the case of each slow-down, and its answer shown."""
    asked: list[list[str]] = []

    def ask(root: Path, options: list[str]) -> Asked:
        asked.append(options)
        return Asked("yes", "")

    monkeypatch.setattr(command, "ask_gate", ask)
    result = called("history", "--confirm", "--format", "json", "--results", store.root)
    (step,) = json.loads(result.stdout)["steps"]
    assert step["confirmed"] == "slower"
    (options,) = asked
    assert options[:4] == ["--base", step["after_commit"], "--head", step["commit"]]
    assert options[4:] == ["--family", "dense_splitk", "--case", "m32-n32-k32768-bf16", "--impl", "own"]


def test_causes_are_named_in_the_documentation() -> None:
    """The page on histories explains each word for a likely cause."""
    page = (Path(__file__).parents[1] / "docs" / "history.md").read_text(encoding="utf-8")
    assert [what for what in causes.KINDS if f"| `{what}` |" not in page] == []
