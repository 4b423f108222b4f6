"""The commands that read the store: show, runs and compare."""

# ruff: noqa: F811  a fixture is imported and then named by a parameter
from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from gemmgate.suite.cli import show
from gemmgate.suite.store import Store
from gemmgate.suite.store.folder import Kind
from tests.program import ID, Invoke, invoke, make_store, store  # noqa: F401  fixtures among them
from tests.stored import H200, STACK, interrupted, make_row, make_run, stored, write_baseline

# show


def test_show_in_every_format(store: Store, invoke: Invoke) -> None:
    """The latest run is shown as a table, Markdown, CSV and JSON, with every row."""
    make_store(store)
    assert "own" in invoke("show").stdout
    assert "| " in invoke("show", "--format", "markdown").stdout
    table = list(csv.DictReader(io.StringIO(invoke("show", "--format", "csv").stdout)))
    assert [row["implementation"] for row in table] == ["cublas", "own", "bad"]
    data = json.loads(invoke("show", ID, "--format", "json").stdout)
    assert data["run"]["id"] == ID
    assert [row["status"] for row in data["rows"]] == ["ok", "ok", "broken"]


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        (["--impl", "own"], ["cublas", "own"]),
        (["--impl", "bad"], ["bad"]),
        (["--status", "broken"], ["bad"]),
        (["--impl", "o*", "--impl", "c*"], ["cublas", "own"]),
        (["--impl", "own,bad", "--family", "dense*", "--case", "m32*"], ["cublas", "own", "bad"]),
    ],
)
def test_show_narrowed(store: Store, invoke: Invoke, options: list[str], rows: list[str]) -> None:
    """Only rows that match are shown, each with the yardstick that its ratio needs."""
    make_store(store)
    result = invoke("show", "--format", "json", *options)
    assert [row["implementation"] for row in json.loads(result.stdout)["rows"]] == rows


def test_the_yardstick_of_another_visit_does_not_stay() -> None:
    """Narrowing keeps the yardstick of the row's own visit and cache state alone."""
    rows = (
        make_row(visit="1", yardstick="cublas"),
        make_row(visit="2", yardstick="cublas", cache="hot"),
        make_row(visit="2", yardstick="cublas"),
        make_row(implementation="own", visit="2", yardstick="cublas"),
    )
    kept = show.narrowed(make_run(rows=rows), {"implementation": ("own",)}).rows
    assert [(row.visit, row.cache, row.implementation) for row in kept] == [
        ("2", "cold", "cublas"),
        ("2", "cold", "own"),
    ]


def test_show_says_that_a_run_is_not_finished(store: Store, invoke: Invoke) -> None:
    """Journals are shown too: stderr says whether the run goes on or how to go on with it, and what was torn."""
    path = interrupted(store, make_run(), make_row(), make_row(implementation="own"))
    path.write_bytes(path.read_bytes()[:-10])
    result = invoke("show", "--format", "json")
    assert len(json.loads(result.stdout)["rows"]) == 1
    assert f"was interrupted after 1 rows: `gemmgate run --resume {ID} --results {store.root}`" in result.stderr
    assert "torn" in result.stderr
    with store.resume("latest", make_run()):
        assert f"run {ID} goes on: 1 rows so far." in invoke("show").stderr


@pytest.mark.parametrize(
    "command", [("show",), ("report", "--output", "r.html"), ("learn", "--family", "dense_splitk")]
)
def test_which_of_several_is_not_finished_is_said(
    command: tuple[str, ...], store: Store, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of several runs that are read as one, the interrupted one is named, with its own rows and a command that takes
    it, by whatever shows them or learns from them.
    """
    monkeypatch.chdir(tmp_path)
    make_store(store)
    other = "20261130T100000Z-bbbbbbbbbb"
    interrupted(store, make_run(other), make_row(), make_row(implementation="own"))
    said = invoke(command[0], f"{ID},{other}", *command[1:]).stderr
    assert f"run {other} was interrupted after 2 rows: `gemmgate run --resume {other} --results" in said
    assert f"{ID},{other} was" not in said


def test_compare_says_that_a_side_is_not_finished(store: Store, invoke: Invoke) -> None:
    """A comparison with half a run names it, since the other half is missing from the table."""
    make_store(store)
    other = "20261130T100000Z-bbbbbbbbbb"
    interrupted(store, make_run(other), make_row())
    assert f"run {other} was interrupted after 1 rows" in invoke("compare", ID, other).stderr


def test_a_history_names_what_it_leaves_out(store: Store, invoke: Invoke) -> None:
    """Steps are found in finished runs; one that was interrupted is named, also where there is no other."""
    other = "20261130T100000Z-bbbbbbbbbb"
    interrupted(store, make_run(other), make_row())
    result = invoke("history")
    assert result.exit_code == 2
    assert f"left out: run {other} was interrupted; `gemmgate show {other}`" in result.stderr
    make_store(store)
    assert f"left out: run {other} was interrupted; `gemmgate show {other}`" in invoke("history").stderr


def test_show_a_baseline(store: Store, invoke: Invoke) -> None:
    """`baseline:<machine>` is a run like any other."""
    make_store(store)
    write_baseline(store, json.dumps({"runs": [ID]}))
    assert json.loads(invoke("show", f"baseline:{H200.key}", "--format", "json").stdout)["run"]["id"] == ID


# runs


def test_runs_as_json(store: Store, invoke: Invoke) -> None:
    """The JSON of `runs` is a list of objects with the documented keys."""
    make_store(store)
    (found,) = json.loads(invoke("runs", "--format", "json").stdout)
    assert found == {
        "id": ID,
        "machine": "nvidia-h200-141g",
        "gpu": "NVIDIA H200",
        "utc": "2026-11-29T16:03:12Z",
        "commit": "0a1b2c3d4e5f",
        "families": ["dense_splitk"],
        "rows": 3,
        "state": "finished",
        "path": str(store.root / "runs" / "nvidia-h200-141g" / f"{ID}.parquet"),
        "note": "",
    }


def test_runs_finish_what_was_interrupted(store: Store, invoke: Invoke) -> None:
    """`--finish` makes the file of an interrupted run from its journal, with the same rows; one that goes on, and one
    that is finished, are left as they are.
    """
    path = interrupted(store, make_run(), make_row(), make_row(implementation="own"))
    before = store.load(ID)
    with store.resume(ID, make_run()):
        held = invoke("runs", "--finish", ID)
    assert held.exit_code == 3 and "is being written by process" in held.stderr
    final = path.with_suffix(".parquet")
    assert f"stored as {final}" in invoke("runs", "--finish", ID).stderr
    assert not path.exists() and final.exists()
    assert store.read(ID).state == "finished" and store.load(ID).rows == before.rows
    again = invoke("runs", "--finish", ID)
    assert again.exit_code == 2 and f"{ID} is finished already" in again.stderr


def test_runs_as_a_table(store: Store, invoke: Invoke) -> None:
    """The table has a line a run that `--machine` narrows, and names unreadable files on stderr."""
    make_store(store)
    stored(store, make_run("20261130T100000Z-bbbbbbbbbb", machine=replace(H200, key="cpu-epyc", model="EPYC 9654")))
    (store.root / "runs" / "cpu-epyc" / "junk.parquet").write_text("junk")
    result = invoke("runs")
    assert result.exit_code == 0
    assert [line.split()[-1] for line in result.stdout.splitlines()[-3:]] == ["finished", "finished", "unreadable"]
    assert "junk.parquet is truncated or damaged" in result.stderr
    narrowed = invoke("runs", "--machine", "nvidia*")
    assert "cpu-epyc" not in narrowed.stdout + narrowed.stderr
    assert ID in narrowed.stdout


def test_no_runs(invoke: Invoke) -> None:
    """An empty store is an empty list and a remark, not an error."""
    result = invoke("runs", "--format", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, [])
    result = invoke("runs", "--machine", "nvidia*")
    assert result.exit_code == 0
    assert "`gemmgate run` measures one" in result.stderr


# kinds

SHOWN_BY = {
    "runs": "show",
    "calibrations": "calibrate --show",
    "timers": "timers --show",
    "tunings": "tune --show",
    "gates": "gate --show",
}


@pytest.mark.parametrize(("kind", "asked"), list(permutations(SHOWN_BY, 2)))
def test_what_is_of_another_kind_is_said(store: Store, invoke: Invoke, kind: Kind, asked: Kind) -> None:
    """An id or a path of another kind ends with exit code 2 and the command that shows it, whatever else is stored."""
    path = stored(Store(store.root, kind), make_run())
    for _ in range(2):
        for name in (ID, str(path)):
            result = invoke(*SHOWN_BY[asked].split(), name)
            assert (result.exit_code, result.stdout) == (2, "")
            assert f"{name} is a " in result.stderr
            assert f"`gemmgate {SHOWN_BY[kind]} {name}` shows it" in result.stderr
        stored(Store(store.root, asked), make_run("20261130T100000Z-bbbbbbbbbb"))


def test_a_run_is_of_its_kind_wherever_it_lies(store: Store, invoke: Invoke, tmp_path: Path) -> None:
    """A gate that was copied out of its folder is known as one, finished or not; a run without a command is taken."""
    made = make_run(command="gemmgate --debug gate --base main")
    for path in (
        stored(store.gates, made),
        interrupted(store.gates, make_run("20261130T100000Z-bbbbbbbbbb", command=made.command)),
    ):
        copy = path.replace(tmp_path / path.name)
        assert "is a gate and no run: `gemmgate gate --show" in invoke("show", str(copy)).stderr
    nameless = stored(store, make_run()).replace(tmp_path / "nameless.parquet")
    assert invoke("show", str(nameless)).exit_code == 0


def test_what_several_commands_make_is_a_run(store: Store) -> None:
    """What `try`, `static` and `run` made is read as a run."""
    for number, command in enumerate(("try own.py:f", "static", "run --tag quick")):
        path = stored(store, make_run(f"2026113{number}T100000Z-bbbbbbbbbb", command=f"gemmgate {command}"))
        assert store.load(str(path)).rows


# compare


def test_compare(store: Store, invoke: Invoke) -> None:
    """Two runs are shown side by side with exit code 0, also where a row got slower."""
    make_store(store)
    slow = make_row(median_s=9e-6, low_s=8.9e-6, high_s=9.1e-6, samples_s=tuple(2 * x for x in make_row().samples_s))
    stored(store, make_run("20261130T100000Z-bbbbbbbbbb"), slow)
    for form in ("table", "markdown", "json"):
        result = invoke("compare", ID, "latest", "--format", form)
        assert result.exit_code == 0
        assert "SLOWER" in result.stdout


def test_compare_across_stacks(store: Store, invoke: Invoke) -> None:
    """Runs of two stacks end with exit code 3, unless one asks to compare across stacks."""
    stored(store, make_run())
    stored(store, make_run("20261130T100000Z-bbbbbbbbbb", stack=replace(STACK, torch="2.11.0")))
    result = invoke("compare", ID, "latest")
    assert result.exit_code == 3
    assert "not a single row" in result.stderr
    assert "INCOMPARABLE" in result.stdout
    assert invoke("compare", ID, "latest", "--across-stacks").exit_code == 0


def test_a_row_that_only_one_run_has_is_no_comparison(store: Store, invoke: Invoke) -> None:
    """Beside rows of two stacks a broken one without a counterpart leaves nothing compared: exit code 3."""
    stored(store, make_run())
    broken = make_row(case="m64-n64-k64-bf16", status="broken", median_s=None, samples_s=())
    stored(store, make_run("20261130T100000Z-bbbbbbbbbb", stack=replace(STACK, torch="2.11.0")), make_row(), broken)
    result = invoke("compare", ID, "latest")
    assert "BROKEN" in result.stdout
    assert result.exit_code == 3


def test_runs_with_nothing_in_common(store: Store, invoke: Invoke) -> None:
    """Runs without a common row are a usage error."""
    stored(store, make_run())
    stored(store, make_run("20261130T100000Z-bbbbbbbbbb"), make_row(case="other"))
    assert invoke("compare", ID, "latest").exit_code == 2


def test_a_watch_names_a_gate_that_cannot_be_read(store: Store, invoke: Invoke) -> None:
    """A damaged gate or calibration is named by what reads all of them, instead of being passed over in silence."""
    for folder in ("gates", "calibrations"):
        path = store.root / folder / "somewhere" / "20260101T000000Z-torn.parquet"
        path.parent.mkdir(parents=True)
        path.touch()
    said = invoke("gate", "--watch").stderr
    assert said.count("files are left out") == 1
    assert "2 files are left out; the first: " in said
