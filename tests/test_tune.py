"""`gemmgate tune` on a CPU, over tiles that take known times: picks, tables, what is kept, and going on."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gemmgate.suite import catalog, cli
from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import Item
from gemmgate.suite.cli import tune as command
from gemmgate.suite.errors import UnreadableError
from gemmgate.suite.records import Run
from gemmgate.suite.store import Store
from gemmgate.suite.tuning.picks import PICK, picks, skipped
from tests.called import called
from tests.program import program

SUITE = Path(__file__).parent / "suites_tuning"


@dataclass(frozen=True)
class Tuned:
    """What a call left behind."""

    exit_code: int
    run: Run
    table: dict[str, Any]
    store: Store
    tables: Path


def tune(folder: Path, *arguments: str) -> int:
    """Calls the program; its exit code."""
    known = ["--suite", str(SUITE), "--jobs", "1", "--results", str(folder / "results")]
    if "--plan" not in arguments:
        known += ["--device", "cpu", "--tables", str(folder / "tables")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["gemmgate", "tune", *known, *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
    return int(end.value.code or 0)


def found(folder: Path, exit_code: int) -> Tuned:
    store = Store(folder / "results").tunings
    (path,) = (folder / "tables" / "tunable").glob("*.json")
    return Tuned(exit_code, store.load("latest"), json.loads(path.read_text()), store, path)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """The first case tuned, of which one tile ends the worker."""
    folder = tmp_path_factory.mktemp("tune")
    return found(folder, tune(folder, "--family", "tunable", "--case", "n8-fp32", "--impl", "tiled"))


def test_the_fastest_right_tile_is_picked(tuned: Tuned) -> None:
    """Faster tiles that are wrong, raise or end the worker do not win: the pick is the fastest that is right."""
    (pick,) = picks(tuned.run.rows)
    assert tuned.exit_code == 0
    assert pick.row.status == "ok" and pick.row.tile == {"kind": "best", "warps": 2}
    assert pick.gain is not None and 2 < pick.gain.estimate < 8  # the tile without a search waits four times as long
    assert pick.ratio is not None and pick.ratio.estimate < 1


def test_the_table_names_it(tuned: Tuned) -> None:
    """The table holds the pick under case and implementation, and the yardstick, which waits for nothing, as best."""
    assert tuned.table["entries"]["n8-fp32/tiled"]["tile"] == {"kind": "best", "warps": 2}
    assert tuned.table["entries"]["n8-fp32/tiled"]["run"] == tuned.run.id
    assert tuned.table["entries"]["n8-fp32"]["implementation"] == "plain"
    assert tuned.table["arch"] == "cpu" and tuned.table["schema"] == tuned.table["method"] == 1


def test_every_candidate_is_kept(tuned: Tuned) -> None:
    """Each of the twelve tiles has a row with its tile: times where it has some, else what was wrong with it."""
    raced = {json.dumps(dict(row.tile)): row for row in tuned.run.rows if row.phase.startswith("race ") and row.tile}
    outcomes = {}
    for text, row in raced.items():
        tile = json.loads(text)
        outcomes[tile["kind"], tile["warps"]] = (row.status, bool(row.samples_s))
    assert outcomes["best", 2] == outcomes["best", 4] == outcomes["good", 2] == outcomes["slow", 4] == ("ok", True)
    assert outcomes["raises", 2] == outcomes["raises", 4] == ("error", False)
    assert outcomes["kills", 2] == ("error", False)
    assert outcomes["wrong", 2] == ("broken", False)
    assert len(outcomes) == 12
    assert len({row.id for row in tuned.run.rows}) == len(tuned.run.rows)


def test_a_stored_tuning_is_shown(tuned: Tuned) -> None:
    """`--show` prints the pick with its tile and searches nothing."""
    result = called("tune", "--show", tuned.run.id, "--format", "markdown", "--results", tuned.store.root)
    assert result.exit_code == 0
    assert "kind=best warps=2" in result.stdout


def test_a_plan_counts_and_searches_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For a GPU that is not here it lists two searches of twelve tiles, at the usual seconds, and stores nothing."""
    assert tune(tmp_path, "--family", "tunable", "--plan", "h200", "--format", "markdown") == 0
    said = capsys.readouterr().out
    assert "| tunable | tiled | 2 | 12 | to 12 | 5 |" in said and "fixed" not in said
    assert "2 searches for nvidia-h200, about 5 s" in said
    assert not list(tmp_path.iterdir())


def test_a_plan_without_searches_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a family whose implementations have no tiles the plan is no empty list, but a sentence and exit code 3."""
    assert tune(tmp_path, "--family", "router_topk", "--plan", "h200") == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "Of what was selected nothing can be searched for nvidia-h200: nothing has tiles to choose from." in said


def test_a_finished_tuning_has_nothing_to_resume(tuned: Tuned) -> None:
    """Resuming what is complete searches nothing and passes."""
    folder = tuned.store.root.parent
    before = sorted(folder.rglob("*"))
    assert tune(folder, "--resume", tuned.run.id) == 0
    assert sorted(folder.rglob("*")) == before


def test_an_interrupted_tuning_goes_on(tuned: Tuned, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two cases of which one was done before an interrupt, only the other is searched; the table then has both.

    With every tile timed too, the pick, which is the best by far, has no regret.
    """
    selection = {**tuned.run.selection, "cases": ["n8-fp32", "n16-fp32"]}
    now = replace(tuned.run, selection=selection, rows=())
    with Store(tmp_path / "results").tunings.begin(now) as journal:
        journal.extend(tuned.run.rows)
    result = found(tmp_path, tune(tmp_path, "--resume", now.id, "--oracle"))
    assert result.exit_code == 0 and result.run.id == now.id
    assert "[1/1] tunable/tiled/n16-fp32" in capsys.readouterr().err
    assert [row.case for row in result.run.rows if row.phase == PICK] == ["n8-fp32", "n16-fp32"]
    assert {"n8-fp32/tiled", "n16-fp32/tiled"} <= set(result.table["entries"])
    assert result.table["entries"]["n16-fp32/tiled"]["tile"] == {"kind": "best", "warps": 2}
    assert [pick.regret for pick in picks(result.run.rows)] == [None, 0.0]


def test_searches_without_time_are_stored(tuned: Tuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where time ends behind the first of two searches, the second has a row that says so, and no pick."""
    selection = {**tuned.run.selection, "cases": ["n8-fp32", "n16-fp32"]}
    now = replace(tuned.run, selection=selection, rows=())
    with Store(tmp_path / "results").tunings.begin(now) as journal:
        journal.extend(tuned.run.rows)
    monkeypatch.setattr("gemmgate.suite.tuning.tuner.Tuner._left_s", lambda tuner: -1.0)
    result = found(tmp_path, tune(tmp_path, "--resume", now.id, "--seconds", "1"))
    (row,) = (row for row in result.run.rows if row.phase == "skipped")
    assert (row.case, row.implementation, row.status, row.reason) == ("n16-fp32", "tiled", "invalid", "no_time")
    assert [pick.row.case for pick in picks(result.run.rows)] == ["n8-fp32"] and skipped(result.run.rows) == 1
    assert result.exit_code == 0


def test_a_killed_tuning_loses_one_search_at_most(tmp_path: Path) -> None:
    """After kill -9 behind the first of two searches, its rows are all there, and only the other is searched."""
    known = ["--device", "cpu", "--suite", str(SUITE), "--jobs", "1", "--results", str(tmp_path / "results")]
    known += ["--tables", str(tmp_path / "tables"), "--family", "tunable", "--impl", "tiled", "--tag", "n16,n8"]
    with subprocess.Popen(program("tune", *known), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert next(line for line in process.stderr if "tunable/tiled" in line).startswith("[1/2]")
        process.kill()
    store = Store(tmp_path / "results").tunings
    (journal,) = (tmp_path / "results").rglob("*.jsonl")
    before = store.load(journal.stem)
    assert [row.case for row in before.rows if row.phase == PICK] == ["n8-fp32"]
    assert not (tmp_path / "tables").exists()
    result = found(tmp_path, tune(tmp_path, "--resume", journal.stem))
    assert result.run.rows[: len(before.rows)] == before.rows
    assert [row.case for row in result.run.rows if row.phase == PICK] == ["n8-fp32", "n16-fp32"]
    assert {"n8-fp32/tiled", "n16-fp32/tiled"} <= set(result.table["entries"])


def test_tables_that_found_no_space_are_written_on_resuming(
    tuned: Tuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that is full when tables are written is said with exit code 2; resuming then searches nothing, writes them
    and ends the tuning.
    """
    folder, write = tmp_path / "tables", os.pwrite

    def full(file: int, data: bytes, start: int) -> int:
        if str(folder) in str(Path(f"/proc/self/fd/{file}").readlink()):
            write(file, data[:10], start)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data, start)

    with Store(tmp_path / "results").tunings.begin(replace(tuned.run, rows=())) as journal:
        journal.extend(tuned.run.rows)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        assert tune(tmp_path, "--resume", tuned.run.id) == 2
    said = capsys.readouterr().err
    assert f"{tuned.tables.name}: No space left on device. Free some space, then go on with" in said
    assert f"--resume {tuned.run.id}" in said and "Traceback" not in said
    assert not [path for path in folder.rglob("*") if path.is_file()]
    again = found(tmp_path, tune(tmp_path, "--resume", tuned.run.id))
    assert (again.exit_code, again.run.rows) == (0, tuned.run.rows)
    assert again.table["entries"] == tuned.table["entries"]
    assert not list((tmp_path / "results").rglob("*.jsonl"))


def test_a_table_of_another_method_is_refused_beforehand(tuned: Tuned, tmp_path: Path) -> None:
    """A table that may not be updated ends a tuning before its first search; another profile's is left alone."""
    path = tmp_path / "tunable" / "board.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**tuned.table, "method": 99}), encoding="utf-8")
    known = catalog.find([SUITE])
    family = known.family("tunable")
    items = [Item(family, family.cases[0], "tiled")]
    with pytest.raises(UnreadableError, match="method 99"):
        command._Tables(known, items, Target("cpu"), "board", tmp_path)
    command._Tables(known, items, Target("cpu"), "other", tmp_path)


def test_tunings_at_the_same_time_keep_each_others_picks(tuned: Tuned, tmp_path: Path) -> None:
    """What another tuning wrote into the table since this one began stands beside this one's picks at its end."""
    known = catalog.find([SUITE])
    family = known.family("tunable")
    own = command._Tables(known, [Item(family, family.cases[0], "tiled")], Target("cpu"), "board", tmp_path)
    path = tmp_path / "tunable" / "board.json"
    path.parent.mkdir()
    others = {"n16-fp32/tiled": tuned.table["entries"]["n8-fp32/tiled"]}
    path.write_text(json.dumps({**tuned.table, "profile": "board", "entries": others}), encoding="utf-8")
    journal: Any = SimpleNamespace(rows=tuned.run.rows, run=tuned.run, go_on="", path=tmp_path)
    assert own.write(journal) == [path]
    assert set(json.loads(path.read_text())["entries"]) == {"n8-fp32", "n8-fp32/tiled", "n16-fp32/tiled"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--family", "tunable", "--impl", "nothing"], "No implementation matches 'nothing'"),
        (["--resume", "20990101T000000Z-0"], "No tuning is stored"),
        (["--family", "tunable", "--impl", "plain"], "Nothing of what was selected can be tuned"),
    ],
)
def test_what_cannot_be_tuned_is_said(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that nothing has, a tuning that is not stored and a yardstick are usage errors, before anything starts."""
    assert tune(tmp_path, *arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("implementations", "said"),
    [
        (
            "dispatch,dot_product",
            "can be searched here: On a CPU, Triton only interprets: start the process with TRITON_INTERPRET=1. "
            "Tune on a GPU, or list the searches for one with --plan, such as `--plan h200`.",
        ),
        (
            "dispatch",
            "Nothing of what was selected has tiles to choose from: `gemmgate tune --plan h200` lists what has",
        ),
    ],
)
def test_without_a_gpu_the_kernels_reason_is_said(
    implementations: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dispatcher without tiles does not hide why the kernels beside it cannot be searched, nor what to do next."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert tune(tmp_path, "--family", "router", "--case", "deepseek-v3-t1-bf16", "--impl", implementations) == 3
    assert said in " ".join(capsys.readouterr().err.split())
