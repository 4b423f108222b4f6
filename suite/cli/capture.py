"""`gemmgate capture`: which products a program makes, and how often."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from gemmgate.suite import recorder
from gemmgate.suite.cli import _terminal
from gemmgate.suite.errors import UsageError
from gemmgate.suite.shapefiles import write_shapes

ORDER = 60
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def command(
    program: Annotated[
        list[str] | None, typer.Argument(metavar="-- PROGRAM ...", help="The program and its arguments.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The CSV file to write.")] = Path("shapes.csv"),
) -> None:
    """Run a program and record its matrix products, with calls, for `run --shapes`.

    The program's Python processes count every mm, addmm, bmm, linear and matmul that torch dispatches, whatever
    ends them. The exit code is the program's. Compiled functions run uncompiled meanwhile, and a replay of a CUDA
    graph is not seen.
    """
    if not program:
        raise UsageError("Say which program to run: gemmgate capture -- python serve.py --its-own-options")
    found = shutil.which(program[0])
    if found is None:
        raise UsageError(f"'{program[0]}' is no program on the PATH, nor a file that can be executed.")
    if out.exists():
        raise UsageError(f"{out} exists already: remove it, or name another file with --out.")
    if not os.access(out.absolute().parent, os.W_OK):
        raise UsageError(f"{out.absolute().parent} is no folder that can be written: name a file with --out.")
    spool = Path(tempfile.mkdtemp(prefix="gemmgate-capture-"))
    hook = spool / "first"
    hook.mkdir()
    shutil.copy(Path(recorder.__file__), hook / "sitecustomize.py")
    code = _run([found, *program[1:]], hook, spool)
    if _write(out, spool):
        shutil.rmtree(spool)
    raise typer.Exit(code)


def _run(command: list[str], hook: Path, spool: Path) -> int:
    """The program's exit code, or as a shell says it 128 and the signal that ended it."""
    path = os.pathsep.join([str(hook), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    running: list[subprocess.Popen[bytes]] = []

    def forward(number: int, frame: Any) -> None:
        # A terminal sends Ctrl-C to the program too: once is enough.
        if running and not (number == signal.SIGINT and sys.stdin.isatty()):
            running[0].send_signal(number)

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        running.append(subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path, recorder.SPOOL: str(spool)}))
        code = running[0].wait()
    except OSError as error:
        raise UsageError(f"'{command[0]}' cannot be run: {error.strerror}.") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def _write(out: Path, spool: Path) -> bool:
    """Writes the file, the product with the most arithmetic first. False where the counts are still needed."""
    counts, lost = recorder.read_counts(spool)
    if not counts:
        _terminal.say(
            "no product was recorded, so nothing was written: the program multiplied no matrices with torch, "
            "or its Python ignores PYTHONPATH (-I, -E)."
        )
        return True
    ranked = sorted(
        counts.items(), key=lambda item: (-item[1] * item[0][1] * item[0][2] * item[0][3] * item[0][4], item)
    )
    try:
        write_shapes(out, [(*key, calls) for key, calls in ranked])
    except OSError as error:
        _terminal.say(f"cannot write {out}: {error.strerror}. The counts are kept in {spool}.")
        return False
    if lost:
        _terminal.say(f"{lost} calls had shapes beyond the {recorder.CAPACITY} that a process can tell apart.")
    _terminal.say(
        f"{sum(counts.values())} calls of {len(counts)} products: `gemmgate run --shapes {out}` measures them."
    )
    return True
