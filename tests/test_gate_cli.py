"""`gemmgate gate` as a user calls it: a real one on this CPU, stored ones shown, and bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gemmgate.suite import duet, watch
from gemmgate.suite.catalog import Selection
from gemmgate.suite.cli import _foresee, _gating, gate
from gemmgate.suite.cli._compiled_sides import ARCHITECTURES
from gemmgate.suite.cli._gate_sides import Asked
from gemmgate.suite.records import Run
from gemmgate.suite.store import Store
from gemmgate.suite.watch import noise_by_case, watched
from tests.gate_repository import make_repository
from tests.gate_world import GateWorld, Played
from tests.program import Invoke, invoke, store

__all__ = ["invoke", "store"]
WRONG = 'return inputs["x"][:, 1:].sum(1, keepdim=True)'
RIGHT = 'return inputs["x"].sum(1, keepdim=True)'


def unchanged(seed: int = 7, *, block_sd: float = 0.004, change: float = 0.0) -> Run:
    """A gate of a tree with itself; the seed is its day too."""
    run = Played(GateWorld({"a": change}, block_sd=block_sd, seed=seed), everything=True).run
    selection = {**run.selection, "head": {**run.selection["head"], "tree": run.selection["base"]["tree"]}}
    return replace(run, selection=selection, utc=f"2026-01-{seed:02}T12:00:00Z")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer gates are played on recorded blocks."""
    monkeypatch.setattr(watch, "REHEARSED", 10)


def keep(store: Store, run: Run) -> Path:
    """Stores a gate."""
    with store.gates.begin(replace(run, rows=())) as journal:
        for row in run.rows:
            journal.append(row)
        return journal.finish()


def test_from_two_commits_to_a_verdict(
    store: Store, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel in another repository is edited so that it drops a column: BROKEN, exit code 1, in every format."""
    monkeypatch.setattr(duet, "SHOWN_BLOCKS", 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GEMMGATE_LOCKS", str(tmp_path))
    monkeypatch.setenv("GEMMGATE_CACHE", str(tmp_path / "cache"))
    summary = tmp_path / "summary.md"
    monkeypatch.setenv(gate.SUMMARY, str(summary))
    repository = make_repository(tmp_path / "theirs")
    kernel = repository / "families" / "row_sums" / "sums.py"
    assert RIGHT in kernel.read_text()
    kernel.write_text(kernel.read_text().replace(RIGHT, WRONG))
    files = [f"--{name}={tmp_path / name}" for name in ("json", "junit", "markdown")]
    asked = ("gate", "--base", "main", "--suite", str(repository / "families"), "--device", "cpu", "--github", *files)
    result = invoke(*asked)
    assert result.exit_code == 1, result.stderr
    data = json.loads((tmp_path / "json").read_text())
    verdicts = {item["implementation"]: (item["verdict"], item["reason"]) for item in data["items"]}
    assert verdicts["torch_sum"] == ("BROKEN", "broken")
    assert verdicts["by_product"] == ("UNCLEAR", "cpu")
    assert data["head"]["dirty"] and not data["base"]["dirty"]
    assert "::error file=families/row_sums/sums.py,title=BROKEN" in result.stdout
    assert ElementTree.parse(tmp_path / "junit").getroot().find(".//failure") is not None
    assert summary.read_text() == (tmp_path / "markdown").read_text()
    assert summary.read_text().startswith("### ❌ Failed: 1 BROKEN of 2 rows gated.")
    shown = invoke("gate", "--show", "latest")
    assert shown.exit_code == 1
    assert "row_sums/torch_sum/m8-k100-fp32: The baseline is 'ok', the candidate is 'broken'" in shown.stdout


@pytest.mark.parametrize(("change", "code"), [(0.0, 0), (0.05, 1)])
def test_a_stored_gate_is_judged_again(store: Store, invoke: Invoke, change: float, code: int) -> None:
    """Shown later, a gate has the exit code that it had, and JSON on standard output alone."""
    keep(store, Played(GateWorld({"a": change})).run)
    result = invoke("gate", "--show", "latest", "--format", "json")
    assert result.exit_code == code
    assert json.loads(result.stdout)["exit_code"] == code


def test_a_summary_that_cannot_be_written_leaves_the_verdict(
    store: Store, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the job summary is a folder, a sentence says so and the exit code is the gate's."""
    keep(store, Played(GateWorld({"a": 0.05})).run)
    monkeypatch.setenv(gate.SUMMARY, str(tmp_path))
    result = invoke("gate", "--show", "latest", "--github")
    assert result.exit_code == 1
    assert f"cannot write the job summary {tmp_path}: Is a directory." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--base origin/main"),
        (("--base", "HEAD", "--device", "tpu"), "No device matches 'tpu'"),
        (("--base", "no-such-commit"), "knows no commit 'no-such-commit'"),
        (("--base", "HEAD", "--cache", "tepid"), "--cache is one of"),
        (("--base", "HEAD", "--base-python", "no-such-python"), "no interpreter no-such-python"),
        (("--resume", "latest"), "measure one with `gemmgate gate`"),
        (("--show", "latest"), "measure one with `gemmgate gate`"),
        (("--base", "HEAD", "--suite", "no-such-folder"), "no such folder"),
    ],
)
def test_bad_input_is_one_sentence(invoke: Invoke, arguments: tuple[str, ...], said: str) -> None:
    """What does not exist is named with what does, with exit code 2 and before any worker starts."""
    result = invoke("gate", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr and result.stderr.count("\n") <= 3


@pytest.mark.parametrize("option", ["--base-python", "--head-python"])
@pytest.mark.parametrize(
    ("script", "printed"),
    [("", "nothing"), ("exit 1", "nothing"), ("echo hello", "hello"), ("echo Python 2", "Python 2")],
)
def test_a_program_that_is_no_python(invoke: Invoke, tmp_path: Path, option: str, script: str, printed: str) -> None:
    """A program that prints nothing, something else or fails is no interpreter: exit code 2 and what it printed."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    result = invoke("gate", "--base", "HEAD", option, str(program))
    assert result.exit_code == 2
    assert result.stderr == (
        f"gemmgate: {program} is no Python 3 interpreter: asked for its version, it printed {printed}.\n"
    )


def test_a_stored_gate_is_not_resumed_with_other_options(store: Store, invoke: Invoke) -> None:
    """`--resume` beside a base, a selection, a cache state or GPUs to compile for is refused."""
    keep(store, unchanged())
    for options in (("--base", "HEAD"), ("--case", "a"), ("--cache", "hot"), ("--static", "none")):
        result = invoke("gate", "--resume", "latest", *options)
        assert result.exit_code == 2
        assert "goes on with what that gate began with" in result.stderr


def test_a_resumed_gate_compiles_for_what_it_began_with() -> None:
    """With `--static none` at its beginning a gate compiles for nothing later; an older one says nothing of it."""
    asked = Asked("", "", Selection(), "auto", None, False, ("", ""), True, "", "latest", (), ARCHITECTURES)
    side = {"revision": "main", "python": ""}
    told = {**Selection().to_json(), "base": side, "head": side, "everything": True, "cache": "cold", "suites": []}
    run = unchanged()
    assert _gating._resumed(asked, replace(run, selection={**told, "static": []})).static == ()
    assert _gating._resumed(asked, replace(run, selection=told)).static == ARCHITECTURES


@pytest.mark.usefixtures("few")
def test_gates_of_unchanged_code_say_how_often_the_gate_rings() -> None:
    """Of three such gates one rang: 1 of 3, with an end of the exact interval at 91 %; others do not count.

    Neither do gates of a change, nor those that left out what is identical.
    """
    partly = unchanged(4)
    partly = replace(partly, selection={**partly.selection, "everything": False})
    gates = [unchanged(1), unchanged(2, change=0.05), unchanged(3), partly, Played(GateWorld({"a": 0.05})).run]
    found = watched(gates)
    assert (found.gates, found.alarms) == (3, 1)
    assert found.alarmed[0][1] == "f/mm/a"
    assert found.share is not None and found.share.high == pytest.approx(0.906, abs=0.001)


@pytest.mark.usefixtures("few")
def test_a_gate_that_was_resumed_counts_once(store: Store, invoke: Invoke) -> None:
    """A finished gate and the one that carries its rows over are one gate to the watch, and blocks count once."""
    first = unchanged(1)
    keep(store, first)
    once = json.loads(invoke("gate", "--watch", "--format", "json").stdout)
    with store.gates.resume(first.id, replace(first, id=f"{first.id}-again", rows=())) as journal:
        journal.finish()
    assert len(store.gates.runs()) == 2
    twice = json.loads(invoke("gate", "--watch", "--format", "json").stdout)
    assert (once["gates"], twice["gates"]) == (1, 1)
    assert twice["noise"] == once["noise"]
    assert [run.resumed for run in _foresee.blocks_on(store, first.machine.key)] == [first.id]


@pytest.mark.usefixtures("few")
def test_a_gate_that_judges_no_times_proves_nothing(store: Store, invoke: Invoke) -> None:
    """Gates of unchanged code on a CPU are counted apart: they could not have rung."""
    on_cpu = unchanged(1)
    on_cpu = replace(on_cpu, selection={**on_cpu.selection, "gates_time": False})
    found = watched([on_cpu, unchanged(2)])
    assert (found.gates, found.untimed) == (1, 1)
    keep(store, on_cpu)
    shown = invoke("gate", "--watch").stdout
    assert "No gate of unchanged code is stored" in shown
    assert "1 gate of unchanged code on a CPU, where times are not judged, says nothing" in shown


def test_an_interrupted_gate_says_so(store: Store, invoke: Invoke, tmp_path: Path) -> None:
    """Shown with half of its rows, a gate says that it was interrupted and how it goes on, and cannot be judged."""
    run = Played(GateWorld({"a": 0.05})).run
    with store.gates.begin(replace(run, rows=())) as journal:
        for row in run.rows[: len(run.rows) // 2]:
            journal.append(row)
    result = invoke("gate", "--show", "latest", "--markdown", str(tmp_path / "gate.md"))
    said = f"It was interrupted: `gemmgate gate --resume {journal.run.id}` goes on."
    assert result.exit_code == 3
    assert said in result.stdout
    assert "It was interrupted" in (tmp_path / "gate.md").read_text()


def test_an_interrupted_gate_has_not_passed(store: Store, invoke: Invoke) -> None:
    """On a CPU, where no time is due, a gate that did not come to its end cannot be judged, whatever it has."""
    run = unchanged(1)
    run = replace(run, selection={**run.selection, "gates_time": False})
    with store.gates.begin(replace(run, rows=())) as journal:
        journal.extend(run.rows)
    result = invoke("gate", "--show", "latest")
    assert result.exit_code == 3 and "Not judged to its end. So far: Passed" in " ".join(result.stdout.split())


@pytest.mark.usefixtures("few")
def test_cases_move_with_their_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the newest six blocks, cases that were quiet and now scatter by 20 % are reported, and said to have moved."""
    monkeypatch.setattr(watch, "NEWEST_BLOCKS", 6)
    monkeypatch.setattr(watch, "FEWEST", 6)
    calm, loud = [unchanged(1, block_sd=0.002), unchanged(2, block_sd=0.002)], unchanged(3, block_sd=0.2)
    assert watched(calm).moves == ()
    found = watched([*calm, loud])
    assert {(move.before, move.after) for move in found.moves} == {("gated", "reported")}
    assert {move.path for move in found.moves} <= set(found.noise)


def test_noise_comes_from_blocks_of_unchanged_code() -> None:
    """The estimate of a case over six gates is the deviation that its launches were drawn with, within a third."""
    noise = noise_by_case([unchanged(seed, block_sd=0.006) for seed in range(1, 7)])
    assert set(noise) == {"f/mm/a", "f/mm/b", "f/mm/c"}
    for one in noise.values():
        assert one.sd == pytest.approx(0.006, rel=0.33)


@pytest.mark.usefixtures("few")
def test_the_watch_is_shown(store: Store, invoke: Invoke) -> None:
    """`--watch` says the bound on false alarms in words and in JSON, and with nothing stored how to begin."""
    nothing = invoke("gate", "--watch")
    assert nothing.exit_code == 2 and "`gemmgate gate --base HEAD --head HEAD` makes one" in nothing.stderr
    keep(store, unchanged())
    assert "0 false alarms in 1 gate of unchanged code: at most 97.5% of gates" in invoke("gate", "--watch").stdout
    data = json.loads(invoke("gate", "--watch", "--format", "json").stdout)
    assert (data["gates"], data["alarms"]) == (1, 0)
