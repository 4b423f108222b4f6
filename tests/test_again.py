"""Hints to go on with an earlier call are commands that work as they are printed."""

# ruff: noqa: F811  a fixture is imported and then named by a parameter
from __future__ import annotations

from pathlib import Path

import pytest

from gemmgate.suite.again import go_on, without
from gemmgate.suite.cli import _stored, _terminal
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.judged import _repro
from gemmgate.suite.store import Reading, Store
from tests.program import ID, Invoke, invoke, store  # noqa: F401  fixtures among them
from tests.stored import interrupted, make_row, make_run


@pytest.mark.parametrize(
    ("command", "word", "kept"),
    [
        ("gemmgate run --case 'm32-*' --impl=own --seconds 10", "run", ""),
        ("gemmgate --debug run --shapes s.csv --dtype bf16 --device cpu", "run", "--device cpu "),
        ("gemmgate run --config c.json --tokens 1 --suite 'my kernels'", "run", "--suite 'my kernels' "),
        ("gemmgate run --resume ID --precision 1 --format json", "run", "--precision 1 --format json "),
        ("gemmgate tune --tag quick --tables t --oracle", "tune", "--tables t --oracle "),
        ("gemmgate calibrate --power --blocks 4 --cache hot", "calibrate", "--power --blocks 4 "),
        ("gemmgate gate --base main --suite s --no-wait", "gate", "--no-wait "),
        ("", "run", ""),
    ],
)
def test_what_the_run_holds_is_left_out_and_the_rest_is_kept(command: str, word: str, kept: str) -> None:
    """Selection, shapes, sides and limits of time are not repeated; device, tables and the folder of results are."""
    assert go_on(make_run("ID", command=command), Path("r")) == f"gemmgate {word} --resume ID {kept}--results r"


@pytest.mark.parametrize(
    "command", ["gemmgate try my.py:f --family dense_splitk", "gemmgate timers", "gemmgate run --case 'm32"]
)
def test_what_cannot_be_resumed_has_no_such_command(command: str) -> None:
    """A trial and a comparison of timers are made anew; so is what a damaged file says, here an open quote."""
    assert go_on(make_run(command=command), Path("r")) == ""


def test_the_default_folder_is_not_said() -> None:
    """Where runs lie in the checkout's own folder the next call finds them without being told."""
    assert go_on(make_run("ID"), Path("results")) == "gemmgate run --resume ID"


def test_a_value_that_looks_like_an_option_goes_with_its_option() -> None:
    """What follows an option that takes a value is its value, whatever it looks like."""
    assert without(["--case", "--tag", "--tag=a", "-x"], ["--case", "--tag"]) == ["-x"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CannotMeasureError("Lost.")])
def test_who_is_stopped_is_told_how_to_go_on(
    store: Store, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    """Ctrl-C and a failed measurement end with the rows that are stored and the command that measures the rest."""
    run = make_run(command="gemmgate tune --case x --device cpu")

    def measure() -> None:
        with _terminal.reported(debug=False), store.begin(run) as journal:
            journal.append(make_row())
            raise error

    with pytest.raises(_terminal.typer.Exit):
        measure()
    said = capsys.readouterr().err
    assert f"1 rows are stored: `gemmgate tune --resume {ID} --device cpu --results {store.root}` goes on." in said


def test_who_is_stopped_with_nothing_stored_is_told_nothing(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a row there is nothing to go on with."""
    with pytest.raises(_terminal.typer.Exit), _terminal.reported(debug=False), store.begin(make_run()):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "gemmgate: interrupted.\n"


def test_show_names_the_store_of_an_interrupted_run(store: Store, invoke: Invoke) -> None:
    """The hint has the folder that the run was read from, and a trial, which cannot be resumed, has none."""
    interrupted(store, make_run(command="gemmgate run --case a --device cpu"), make_row())
    said = invoke("show").stderr
    assert f"after 1 rows: `gemmgate run --resume {ID} --device cpu --results {store.root}` goes on." in said
    trial = Reading(make_run(command="gemmgate try f.py:f", rows=(make_row(),)), "interrupted")
    assert _stored.remarks(trial, store.root) == [f"run {ID} was interrupted after 1 rows."]


def test_a_gate_is_repeated_with_its_folder_of_families() -> None:
    """What judges one item again finds the item where the gate found it."""
    sides = {"base": {"revision": "main"}, "head": {"revision": ""}}
    run = make_run(selection={**sides, "suites": ["mine"], "gates_time": True})
    assert _repro(run, make_row()).endswith(" --impl cublas --all --suite mine")
