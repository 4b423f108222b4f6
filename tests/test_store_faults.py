"""Kills, full disks, second writers: no row whose `append` returned is lost, and the run goes on."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from gemmgate.suite.errors import CannotMeasureError, UsageError
from gemmgate.suite.records import Machine
from gemmgate.suite.store import Store, UnwritableError
from tests.stored import H200, ROOT, STACK, interrupted, make_row, make_run, stored, write_baseline


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "results")


# going on


def test_an_interrupted_run_goes_on_in_its_journal(store: Store) -> None:
    """Resuming cuts a torn line, keeps id and rows, and new rows name the board and commit of now."""
    path = interrupted(store, make_run(), make_row(), make_row(case="torn"))
    path.write_bytes(path.read_bytes()[:-100])
    now = make_run("20261201T100000Z-ffffffffff", machine=replace(H200, board="second"), commit="f" * 12)
    with store.resume("latest", now) as journal:
        assert [row.case for row in journal.rows] == ["m32-n32-k32768-bf16"]
        assert journal.run.id == "20261129T160312Z-0a1b2c3d4e"
        assert store.read(str(path)).notes == ()
        new = journal.append(make_row(case="x"))
        finished = journal.finish()
    assert (new.run_id, new.board, new.commit) == ("20261129T160312Z-0a1b2c3d4e", "second", "f" * 12)
    assert finished == path.with_suffix(".parquet")
    run = store.load(str(finished))
    assert [row.case for row in run.rows] == ["m32-n32-k32768-bf16", "x"]
    assert run.machine.board == "b0a4d1"


def test_a_finished_run_is_carried_over(store: Store) -> None:
    """Resuming a finished run begins another that holds its rows unchanged and names it; the first stays."""
    first = stored(store, make_run())
    before = first.read_bytes()
    now = make_run("20261201T100000Z-ffffffffff", machine=replace(H200, board="second"), commit="f" * 12)
    with store.resume("20261129T160312Z-0a1b2c3d4e", now) as journal:
        journal.append(make_row(case="x"))
        second = store.load(str(journal.finish()))
    assert first.read_bytes() == before
    assert (second.id, second.resumed) == ("20261201T100000Z-ffffffffff", "20261129T160312Z-0a1b2c3d4e")
    assert second.rows[0] == store.load(str(first)).rows[0]
    assert [row.run_id for row in second.rows] == ["20261129T160312Z-0a1b2c3d4e", "20261201T100000Z-ffffffffff"]
    assert [row.board for row in second.rows] == ["b0a4d1", "second"]


def test_a_carried_run_that_is_interrupted_goes_on(store: Store) -> None:
    """Rows that were carried over are on disk from the first moment, and can be resumed again."""
    stored(store, make_run())
    with store.resume("latest", make_run("20261201T100000Z-ffffffffff")) as journal:
        journal.append(make_row(case="x"))
    with store.resume("latest", make_run("20261202T100000Z-eeeeeeeeee")) as journal:
        assert len(journal.rows) == 2
        assert journal.run.id == "20261201T100000Z-ffffffffff"
        assert journal.run.resumed == "20261129T160312Z-0a1b2c3d4e"


@pytest.mark.parametrize(("first", "second"), [(False, True), (True, False)])
@pytest.mark.parametrize("end", [stored, interrupted])
def test_one_dirty_part_makes_the_run_dirty(store: Store, first: bool, second: bool, end: Callable[..., Path]) -> None:
    """A run of which any part was measured on a changed tree says dirty, after resuming too."""
    end(store, make_run(dirty=first))
    with store.resume("latest", make_run("20261201T100000Z-ffffffffff", dirty=second)) as journal:
        journal.append(make_row(case="x"))
        assert store.load(str(journal.path)).dirty
        assert store.load(str(journal.finish())).dirty


@pytest.mark.parametrize("end", [stored, interrupted])
def test_other_conditions_cannot_resume(store: Store, end: Callable[..., Path]) -> None:
    """Another machine, stack or method is refused with what differs, and nothing changes on disk."""
    path = end(store, make_run())
    before = path.read_bytes()
    now = make_run("20261201T100000Z-ffffffffff")
    for other, said in [
        (replace(now, machine=replace(H200, key="nvidia-h100-80g")), "machine nvidia-h200-141g, now nvidia-h100-80g"),
        (replace(now, stack=replace(STACK, triton="3.8.0")), r"triton 3\.7\.1, now 3\.8\.0"),
        (replace(now, method=now.method + 1), f"method {now.method}, now {now.method + 1}"),
    ]:
        with pytest.raises(UsageError, match=said):
            store.resume("latest", other)
    assert path.read_bytes() == before
    assert len(store.runs()) == 1


@pytest.mark.parametrize("end", [stored, interrupted])
def test_a_gpu_run_of_a_host_with_other_threads_is_resumed(store: Store, end: Callable[..., Path]) -> None:
    """Threads that a run names of its host are no part of what a GPU's times depend on."""
    end(store, make_run(stack=replace(STACK, threads=32)))
    with store.resume("latest", make_run("20261201T100000Z-ffffffffff")) as journal:
        journal.append(make_row(case="x"))
        assert store.load(str(journal.finish())).stack == STACK


@pytest.mark.parametrize("end", [stored, interrupted])
def test_a_cpu_run_of_other_threads_is_not_resumed(store: Store, end: Callable[..., Path]) -> None:
    """On a CPU they are what computes."""
    cpu = Machine("cpu-x", "a CPU")
    end(store, make_run(machine=cpu, stack=replace(STACK, threads=32)))
    with pytest.raises(UsageError, match="threads 32, now 16"):
        store.resume("latest", make_run("20261201T100000Z-f", machine=cpu, stack=replace(STACK, threads=16)))


def test_several_runs_cannot_be_resumed(store: Store) -> None:
    """A baseline of two runs is no run to resume."""
    stored(store, make_run("20261127T100000Z-aaaaaaaaaa"))
    stored(store, make_run("20261128T100000Z-bbbbbbbbbb"))
    write_baseline(store, '{"runs": ["20261128T100000Z-bbbbbbbbbb", "20261127T100000Z-aaaaaaaaaa"]}')
    with pytest.raises(UsageError, match="only one can be resumed"):
        store.resume(f"baseline:{H200.key}", make_run("20261201T100000Z-ffffffffff"))


def test_a_journal_has_one_writer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that a live process writes cannot be resumed, and the error names that process."""
    monkeypatch.setattr("gemmgate.suite.store.journal.LOCK_PATIENCE_S", 0.0)
    with store.begin(make_run()) as journal:
        journal.append(make_row())
        with pytest.raises(CannotMeasureError, match=f"process {os.getpid()}"):
            store.resume("latest", make_run("20261201T100000Z-ffffffffff"))
        journal.append(make_row(case="x"))
        assert store.read("latest").state == "running"
    assert store.read("latest").state == "interrupted"


def test_an_exception_keeps_what_was_measured(store: Store) -> None:
    """A journal with rows outlives the exception that ends its run; one without rows is no litter."""

    def measure(rows: int) -> None:
        with store.begin(make_run()) as journal:
            for _ in range(rows):
                journal.append(make_row())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(0)
    assert store.runs() == []
    with pytest.raises(KeyboardInterrupt):
        measure(1)
    assert [(info.state, info.rows) for info in store.runs()] == [("interrupted", 1)]


def test_a_run_that_measured_nothing_is_not_stored(store: Store) -> None:
    """Finishing without a row is an error of exit code 3 that says what to do, and leaves nothing behind."""
    with store.begin(make_run()) as journal, pytest.raises(CannotMeasureError, match="more --seconds") as caught:
        journal.finish()
    assert caught.value.exit_code == 3
    assert store.runs() == []


# disks that do not take it


def refuse(code: int) -> Callable[..., NoReturn]:
    """A system call that fails."""

    def call(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize("function", ["pwrite", "fsync"])
def test_a_full_disk_costs_one_row_at_most(store: Store, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """A row that finds no space is an error that says so; rows before and after it are whole."""
    with store.begin(make_run()) as journal:
        journal.append(make_row(case="a"))
        with monkeypatch.context() as patch:
            patch.setattr(os, function, refuse(errno.ENOSPC))
            with pytest.raises(UnwritableError, match=r"No space left.*Free some space.*its 1 rows are safe") as caught:
                journal.append(make_row(case="b"))
        assert caught.value.exit_code == 2
        assert journal.path.name in str(caught.value)
        journal.append(make_row(case="c"))
        assert [row.case for row in store.load(str(journal.finish())).rows] == ["a", "c"]


def test_half_a_line_is_taken_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that stops halfway for want of space leaves no half line for the next row to be glued to."""
    write = os.pwrite

    def half(file: int, data: bytes, start: int) -> int:
        monkeypatch.setattr(os, "pwrite", refuse(errno.ENOSPC))
        return write(file, data[: len(data) // 2], start)

    with store.begin(make_run()) as journal:
        monkeypatch.setattr(os, "pwrite", half)
        with pytest.raises(UnwritableError):
            journal.append(make_row(case="a"))
        monkeypatch.setattr(os, "pwrite", write)
        assert store.read(str(journal.path)).notes == ()
        journal.append(make_row(case="b"))
    assert [row.case for row in store.load(str(journal.path)).rows] == ["b"]


@pytest.mark.parametrize("call", ["pathlib.Path.rename", "os.pwrite", "os.fsync"])
def test_a_finish_that_fails_keeps_the_journal(store: Store, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """If the Parquet file cannot be written, all rows stay in the journal and resuming finishes the run."""
    with store.begin(make_run()) as journal:
        journal.append(make_row())
        with monkeypatch.context() as patch:
            patch.setattr(call, refuse(errno.ENOSPC))
            with pytest.raises(UnwritableError, match="--resume 20261129T160312Z-0a1b2c3d4e"):
                journal.finish()
    assert list(journal.path.parent.iterdir()) == [journal.path]
    with store.resume("latest", make_run()) as again:
        assert len(store.load(str(again.finish())).rows) == 1


def test_a_carried_run_whose_finish_fails_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal of carried rows alone is kept if its end cannot be written, as the error says."""
    stored(store, make_run())
    with store.resume("latest", make_run("20261201T100000Z-ffffffffff")) as journal:
        monkeypatch.setattr("pathlib.Path.rename", refuse(errno.ENOSPC))
        with pytest.raises(UnwritableError, match="its 1 rows are safe"):
            journal.finish()
    assert len(store.load(str(journal.path)).rows) == 1


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_read_only_folder_is_noticed_before_measuring(
    store: Store, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """`begin` fails with a sentence where results cannot be written."""
    monkeypatch.setattr(Path, "mkdir", refuse(code))
    with pytest.raises(UnwritableError, match=r"Make it writable, or name another folder with --results") as caught:
        store.begin(make_run())
    assert str(store.root) in str(caught.value)


def test_a_file_in_the_way(tmp_path: Path) -> None:
    """A file where the results folder should be is named as what is in the way."""
    (tmp_path / "results").write_text("")
    with pytest.raises(UnwritableError, match="Move what stands there out of the way"):
        Store(tmp_path / "results").begin(make_run())


def test_a_full_disk_at_the_start_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal whose header finds no space is removed again."""
    (store.root / "runs" / H200.key).mkdir(parents=True)
    monkeypatch.setattr(os, "pwrite", refuse(errno.ENOSPC))
    with pytest.raises(UnwritableError, match="No space left"):
        store.begin(make_run())
    assert store.runs() == []


# kills

CHILD = """
import os, sys
from pathlib import Path
from gemmgate.suite.store import Store
from tests.stored import make_row, make_run
with Store(Path(sys.argv[1])).begin(make_run()) as journal:
    for number in range(100_000):
        journal.append(make_row(case=f"c{number}"))
        os.write(1, b"%d\\n" % number)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_loses_no_row(tmp_path: Path, seed: int) -> None:
    """After SIGKILL at a random moment every row whose `append` returned is readable, and the run resumes."""
    with subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        seen = [child.stdout.readline() for _ in range(random.Random(seed).randrange(2, 60))]
        child.send_signal(signal.SIGKILL)
        seen += child.stdout.readlines()
    store = Store(tmp_path)
    (info,) = store.runs()
    assert info.state == "interrupted"
    held = [row.case for row in store.load("latest").rows]
    assert held == [f"c{number}" for number in range(len(held))]
    assert len(held) > int(seen[-1])
    with store.resume("latest", make_run()) as journal:
        journal.append(make_row(case="after"))
        assert len(store.load(str(journal.finish())).rows) == len(held) + 1


@pytest.mark.parametrize("function", ["rename", "unlink"])
def test_a_kill_while_finishing_loses_no_row(store: Store, function: str) -> None:
    """A process that dies before the Parquet file is in place, or before the journal is gone, leaves one whole run."""
    script = f"""
import os, sys
from pathlib import Path
from gemmgate.suite.store import Store
from tests.stored import make_row, make_run
with Store(Path(sys.argv[1])).begin(make_run()) as journal:
    journal.append(make_row())
    setattr(Path, "{function}", lambda *_, **__: os.kill(os.getpid(), 9))
    journal.finish()
"""
    killed = subprocess.run([sys.executable, "-c", script, str(store.root)], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    (info,) = store.runs()
    assert info.rows == 1
    assert info.state == ("interrupted" if function == "rename" else "finished")
    with store.resume("latest", make_run("20261201T100000Z-ffffffffff")) as journal:
        journal.append(make_row(case="x"))
        assert len(store.load(str(journal.finish())).rows) == 2


def test_closing_twice_is_harmless(store: Store) -> None:
    """`close` after `finish` does nothing."""
    with store.begin(make_run()) as journal:
        journal.append(make_row())
        journal.finish()
        journal.close()
    assert [info.state for info in store.runs()] == ["finished"]
