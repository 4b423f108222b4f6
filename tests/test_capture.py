"""`gemmgate capture`: every product of a program is counted, and the program notices nothing."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from gemmgate.suite import recorder
from gemmgate.suite.recorder import Counts, product_of, read_counts
from gemmgate.suite.shapefiles import read_shapes
from tests.called import Result, called

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import ctypes, importlib.util, os, sys, threading
assert importlib.util.find_spec("torch") is not None  # as libraries do that can do without
import torch

print(sys.argv[1:], [path for path in sys.path if "gemmgate-capture" in path], flush=True)
layer = torch.nn.Linear(32, 16)
x = torch.randn(2, 5, 32)
for _ in range(3):
    layer(x)
with torch.inference_mode():
    for _ in range(4):
        layer(x)
torch.mm(torch.randn(3, 7), torch.randn(2, 7).T)
torch.randn(6, 4, 8) @ torch.randn(6, 8, 9)
torch.matmul(torch.randn(0, 4), torch.randn(4, 9))
thread = threading.Thread(target=lambda: torch.mm(torch.randn(11, 7), torch.randn(7, 2)))
thread.start()
thread.join()
if os.fork() == 0:
    torch.mm(torch.randn(17, 7, dtype=torch.bfloat16), torch.randn(7, 2, dtype=torch.bfloat16))
    os._exit(0)
os.wait()
ctypes.string_at(0)
"""


def write(folder: Path, text: str) -> Path:
    """A program."""
    (folder / "program.py").write_text(textwrap.dedent(text))
    return folder / "program.py"


def rows(path: Path) -> dict[tuple[str, ...], int]:
    """(op, m, n, k, batch, dtype, layout) -> calls"""
    names = ("op", "m", "n", "k", "batch", "dtype", "layout")
    with path.open() as file:
        return {tuple(row[name] for name in names): int(row["count"]) for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """What came of a program that multiplies in several ways and then crashes."""
    folder = tmp_path_factory.mktemp("captured")
    out = folder / "shapes.csv"
    program = write(folder, PROGRAM)
    command = [sys.executable, "-m", "gemmgate", "capture", "--out", out, "--", sys.executable, program, "--port", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return Result(done.returncode, done.stdout, done.stderr), out


def test_every_product_is_counted(captured: tuple[Result, Path]) -> None:
    """A layer in two modes, a transposed weight, a batch, a thread and a forked child are there, empty ones not."""
    counts = rows(captured[1])
    layer = sum(counts.pop((op, "10", "16", "32", "1", "fp32", "row-column"), 0) for op in ("addmm", "linear"))
    assert layer == 3 + 4
    assert counts == {
        ("mm", "3", "2", "7", "1", "fp32", "row-column"): 1,
        ("bmm", "4", "9", "8", "6", "fp32", "row-row"): 1,
        ("mm", "11", "2", "7", "1", "fp32", "row-row"): 1,
        ("mm", "17", "2", "7", "1", "bf16", "row-row"): 1,
    }


def test_a_crash_keeps_counts_and_exit_code(captured: tuple[Result, Path]) -> None:
    """A segmentation fault is exit code 128 + 11, as a shell has it, and what was counted is written."""
    assert captured[0].exit_code == 128 + signal.SIGSEGV
    assert "11 calls of" in captured[0].said


def test_the_program_sees_its_own_arguments_and_path(captured: tuple[Result, Path]) -> None:
    """Options behind -- are the program's, and the folder of the recorder is not on its path."""
    assert captured[0].stdout == "['--port', '3'] []\n"


def test_the_file_is_read_as_shapes(captured: tuple[Result, Path]) -> None:
    """`--shapes` reads what was written, most arithmetic first."""
    shapes, _ = read_shapes(captured[1])
    work = [shape.m * shape.n * shape.k * shape.batch * (shape.calls or 0) for shape in shapes]
    assert sum(shape.calls or 0 for shape in shapes) == 11
    assert work == sorted(work, reverse=True)


def test_sigterm_reaches_the_program_and_the_counts_are_written(tmp_path: Path) -> None:
    """Ending `gemmgate capture` ends the program in the way it chose, and its counts are kept."""
    program = write(
        tmp_path,
        """
        import signal, sys, time, torch
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
        torch.mm(torch.ones(5, 6), torch.ones(6, 7))
        print("ready", flush=True)
        time.sleep(600)
        """,
    )
    out = tmp_path / "shapes.csv"
    command = [sys.executable, "-m", "gemmgate", "capture", "--out", out, "--", sys.executable, program]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGTERM)
        running.communicate()
    assert running.returncode == 9
    assert rows(out) == {("mm", "5", "7", "6", "1", "fp32", "row-row"): 1}


def test_a_program_without_torch(tmp_path: Path) -> None:
    """Nothing is recorded and no file written, the exit code is the program's, and a sentence says why."""
    program = write(tmp_path, "import sys; sys.exit(5)")
    result = called("capture", "--out", tmp_path / "shapes.csv", "--", sys.executable, program)
    assert result.exit_code == 5
    assert "no product was recorded, so nothing was written" in result.said
    assert not (tmp_path / "shapes.csv").exists()


def test_another_sitecustomize_still_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sitecustomize of the program's own is run, and is what that name means."""
    (tmp_path / "sitecustomize.py").write_text("MINE = True\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    program = write(tmp_path, "import sitecustomize, sys; sys.exit(3 if sitecustomize.MINE else 4)")
    result = called("capture", "--out", tmp_path / "shapes.csv", "--", sys.executable, program)
    assert result.exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Say which program to run: gemmgate capture -- python"),
        (["--", "no-such-program-here", "x"], "'no-such-program-here' is no program on the PATH"),
        (["--out", "there.csv", "--", sys.executable, "-V"], "there.csv exists already"),
        (["--out", "none/x.csv", "--", sys.executable, "-V"], "none is no folder that can be written"),
    ],
)
def test_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str) -> None:
    """What cannot work is a sentence with exit code 2, before the program is run."""
    (tmp_path / "there.csv").write_text("kept")
    monkeypatch.chdir(tmp_path)
    result = called("capture", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.said
    assert (tmp_path / "there.csv").read_text() == "kept"


# what is recorded


@pytest.mark.parametrize(
    ("name", "sizes", "expected"),
    [
        ("mm", [(3, 5), (5, 7)], (3, 7, 5, 1)),
        ("addmm", [(7,), (3, 5), (5, 7)], (3, 7, 5, 1)),
        ("bmm", [(2, 3, 5), (2, 5, 7)], (3, 7, 5, 2)),
        ("baddbmm", [(2, 3, 7), (2, 3, 5), (2, 5, 7)], (3, 7, 5, 2)),
        ("linear", [(2, 3, 5), (7, 5)], (6, 7, 5, 1)),
        ("matmul", [(2, 3, 5), (5, 7)], (6, 7, 5, 1)),
        ("matmul", [(5,), (5, 7)], (1, 7, 5, 1)),
        ("matmul", [(3, 5), (5,)], (3, 1, 5, 1)),
        ("matmul", [(4, 1, 3, 5), (2, 5, 7)], (3, 7, 5, 8)),
        ("matmul", [(3, 5), (2, 5, 7)], (3, 7, 5, 2)),
    ],
)
def test_sizes_of_each_operator(name: str, sizes: list[tuple[int, ...]], expected: tuple[int, ...]) -> None:
    """M, N, K and batch of a call are those of the product it makes, counted in multiplications."""
    tensors = [torch.ones(size) for size in sizes]
    out = torch.nn.functional.linear(*tensors) if name == "linear" else getattr(torch, name)(*tensors)
    key = product_of(name, tensors, out)
    assert key[1:5] == expected
    m, n, k, batch = expected
    assert m * n * batch == out.numel()
    assert k == tensors[-1].shape[-1 if name == "linear" else 0 if tensors[-1].dim() == 1 else -2]


def test_layouts() -> None:
    """Each operand is row, column or strided as the product sees it; a linear's weight is [n, k] in memory."""
    a = torch.ones(8, 8)
    for b, layout in ((a, "row-row"), (a.T, "row-column"), (torch.ones(16, 16)[::2, ::2], "row-strided")):
        assert product_of("mm", [a, b], a)[6] == layout
    assert product_of("linear", [a, a], a)[6] == "row-column"


@pytest.mark.parametrize("tensor", [torch.ones(4, 4, device="meta"), torch.ones(0, 4), torch.ones(4, 0)])
def test_what_multiplies_nothing_is_not_recorded(tensor: torch.Tensor) -> None:
    """Meta tensors and empty ones are no work."""
    assert product_of("mm", [tensor, torch.ones(4, 4)], tensor) is None


def test_counts_of_several_processes_add_up(tmp_path: Path) -> None:
    """Equal products of two processes are one, and a name that was torn by a kill is left out."""
    for _ in range(2):
        counts = Counts(tmp_path)
        for _ in range(3):
            counts.add(("mm", 1, 2, 3, 1, "bf16", "row-row", "cpu"))
    counts.add(("mm", 9, 9, 9, 1, "bf16", "row-row", "cpu"))
    (torn,) = [path for path in tmp_path.glob("*.names") if "9, 9" in path.read_text()]
    os.truncate(torn, torn.stat().st_size - 5)
    assert read_counts(tmp_path) == ({("mm", 1, 2, 3, 1, "bf16", "row-row", "cpu"): 6}, 0)


def test_products_beyond_the_capacity_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that meets more different products than it can tell apart says how many calls those had."""
    monkeypatch.setattr(recorder, "CAPACITY", 2)
    monkeypatch.setattr(recorder, "_SIZE_BYTES", 3 * 8)
    counts = Counts(tmp_path)
    for m in (1, 2, 3, 4, 3):
        counts.add(("mm", m, 1, 1, 1, "bf16", "row-row", "cpu"))
    known, lost = read_counts(tmp_path)
    assert (sorted(key[1] for key in known), lost) == ([1, 2], 3)


def test_the_recorder_needs_nothing_but_python() -> None:
    """The file runs where gemmgate and torch are not installed: it imports the standard library alone at its top."""
    code = f"import runpy; runpy.run_path({recorder.__file__!r}, run_name='recorder')"
    bare = [sys.executable, "-S", "-E", "-c", code]  # -S: without site-packages
    done = subprocess.run(bare, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
