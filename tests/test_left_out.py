"""Stored files that cannot be read: who reads all of a folder takes the others, and says once what is left out."""

# ruff: noqa: F811  a fixture is imported and then named by a parameter
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gemmgate.suite.cli import _foresee, _measuring
from gemmgate.suite.errors import UnreadableError
from gemmgate.suite.records import Limits
from gemmgate.suite.store import Store, left_out
from tests.program import Invoke, invoke, store  # noqa: F401  fixtures
from tests.stored import H200, make_run, stored

OLD, NEW = "20261127T100000Z-aaaaaaaaaa", "20261129T100000Z-cccccccccc"


def torn(store: Store, name: str = "20261128T100000Z-bbbbbbbbbb", kind: str = "runs") -> Path:
    """An empty file where a run should be."""
    path = store.root / kind / H200.key / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def flipped(store: Store, run_id: str) -> Path:
    """A run whose header can be read and whose rows cannot."""
    path = stored(store, make_run(run_id))
    content = bytearray(path.read_bytes())
    for place in range(4, len(content) - 8):
        content[place] ^= 0x10
        path.write_bytes(content)
        if store.runs()[-1].state == "finished" and _is_damaged(store, path):
            return path
        content[place] ^= 0x10
    raise AssertionError("no byte counts")


def _is_damaged(store: Store, path: Path) -> bool:
    try:
        store.load(str(path))
    except UnreadableError:
        return True
    return False


def test_all_others_are_gathered(store: Store) -> None:
    """Of four files an empty one and one with damaged rows are lost, with their names, and two runs are there."""
    stored(store, make_run(OLD))
    empty, damaged = torn(store), flipped(store, "20261128T110000Z-dddddddddd")
    stored(store, make_run(NEW))
    found = store.gather(lambda info: True)
    assert [run.id for run in found.runs] == [OLD, NEW]
    assert all(run.rows for run in found.runs)
    assert [str(path) in said for path, said in zip((empty, damaged), found.lost, strict=True)] == [True, True]
    headers = store.gather(lambda info: True, headers=True)
    assert len(headers.runs) == 3 and not any(run.rows for run in headers.runs)
    assert store.gather(lambda info: info.machine == "another") == type(found)((), ())


def test_how_many_and_what_is_wrong_with_the_first() -> None:
    """Nothing is said of no file, and of several one sentence."""
    assert left_out([]) == ()
    assert left_out(["a is damaged."]) == ("1 file is left out: a is damaged.",)
    assert left_out(["a is damaged.", "b too."], "newer file") == (
        "2 newer files are left out; the first: a is damaged.",
    )


def test_a_history_says_once_what_it_leaves_out(store: Store, invoke: Invoke) -> None:
    """`history` goes on without damaged files, and counts them in one line that names the first."""
    stored(store, make_run(OLD))
    first = torn(store)
    torn(store, NEW)
    result = invoke("history")
    assert result.stderr.count("left out;") == 1
    assert f"2 files are left out; the first: {first}" in result.stderr
    assert "None of the 1 runs" in result.stderr  # its commit is not one of this repository


@pytest.mark.parametrize("command", [["history"], ["history", "--machine", "nvidia*"], ["show"], ["report"]])
def test_nothing_left_to_read(store: Store, invoke: Invoke, command: list[str]) -> None:
    """Where no file can be read, a reader says so, which is not that none is stored, and ends with exit code 2."""
    path = torn(store)
    result = invoke(*command)
    assert result.exit_code == 2
    assert f"run in {store.root} can be read" in result.stderr
    assert f"1 file is left out: {path}" in result.stderr


def test_the_latest_says_how_many_newer_files_are_left_out(store: Store, invoke: Invoke) -> None:
    """`report` shows the latest run that can be read, and one line counts the newer files."""
    stored(store, make_run(OLD))
    first = torn(store)
    torn(store, NEW)
    assert store.read("latest").notes == left_out([store.runs()[1].note, store.runs()[2].note], "newer file")
    for command in (["show"], ["learn"], ["audit", "latest"]):
        assert invoke(*command).stderr.count(f"2 newer files are left out; the first: {first}") == 1


def test_roofs_are_those_of_the_newest_calibration_that_can_be_read(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged calibration is said to be left out, and the roofs are those of the one before it."""
    limits = Limits(bytes_per_s=4e12, source="here")
    stored(store.calibrations, make_run(OLD, limits=limits))
    path = torn(store, NEW, "calibrations")
    worker: Any = SimpleNamespace(machine=H200)
    assert _measuring.known_limits(worker, store).source == OLD
    assert f"1 file is left out: {path}" in capsys.readouterr().err


def test_what_a_gate_foresees_says_what_it_leaves_out(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """Damaged gates and calibrations of the machine are counted together, and those of another not at all."""
    stored(store.calibrations, make_run(OLD))
    first = torn(store, NEW, "calibrations")
    torn(store, NEW, "gates")
    elsewhere = store.root / "gates" / "another" / f"{NEW}.parquet"
    elsewhere.parent.mkdir()
    elsewhere.touch()
    assert [run.id for run in _foresee.blocks_on(store, H200.key)] == [OLD]
    assert f"2 files are left out; the first: {first}" in capsys.readouterr().err


def test_a_folder_that_nobody_may_read_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine's folder without permission is among the runs as unreadable, and its neighbours are read."""
    stored(store, make_run(OLD))
    closed = store.root / "runs" / "closed"
    closed.mkdir()
    listed = Path.iterdir

    def iterdir(path: Path) -> Iterator[Path]:
        if path == closed:  # as the system says it to anybody but root, as which tests may run
            raise PermissionError(13, os.strerror(13), str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert sorted((info.id, info.state) for info in store.runs()) == [(OLD, "finished"), ("closed", "unreadable")]
    (said,) = store.gather(lambda info: True).lost
    assert said.startswith(f"{closed} cannot be read: Permission denied.")
