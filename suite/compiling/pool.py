"""Children that compile, as many as there is work for: each has one job at a time, and its end costs that job alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gemmgate.suite import catalog
from gemmgate.suite.cases import Target
from gemmgate.suite.compiling.instructions import COMPILER_DIED
from gemmgate.suite.errors import CannotMeasureError, UsageError

DEADLINE_S = 120.0
"""For one job; a kernel compiles in a second."""
_JOBS_WORTH_A_START = 8
"""To start a child takes as long as so many jobs."""
_SIGNALS = {number.value: number.name for number in signal.Signals}

_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU)
"""What no compiler does to itself: a lack of memory kills, and people and schedulers end what they no longer want."""

Reply = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One preparation: an item as `list` gave it, for a target, with `rule`, `tuned` or a tile."""

    item: dict[str, Any]
    label: str
    target: Target
    tile: str | dict[str, Any]


class Child:
    """A compiling process on one side's `overlay`. Raises CannotMeasureError where it does not start."""

    def __init__(self, overlay: Path, suites: Sequence[Path], cache: Path) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process it belongs to
        # Not the environment's PYTHONPATH alone: the overlay decides whose kernels are imported.
        path = os.pathsep.join([str(overlay), *filter(None, [os.environ.get("PYTHONPATH", "")])])
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gemmgate.suite.compiling.worker", str(os.getpid()), str(cache)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
        )
        try:
            self.disassembler = self._greet(overlay, suites)
        except BaseException:
            self.close()
            raise

    def _greet(self, overlay: Path, suites: Sequence[Path]) -> Path:
        """Learns whose kernels the process imported, and where it has a disassembler."""
        hello = self.ask("hello", suites=[str(suite) for suite in suites])
        if "kernels_tree" not in hello:
            raise CannotMeasureError(
                f"Kernels cannot be compiled here: {hello['detail']}. It takes torch and Triton; "
                "`nox -s static` sets up an environment that has both."
            )
        if hello["kernels_tree"] != catalog.tree_hash(overlay / "gemmgate" / "kernels"):
            raise CannotMeasureError(
                f"The compiling process imported other kernels than those of {overlay}: another installation of "
                "gemmgate comes first on its path, or the files changed while it started."
            )
        return Path(hello["disassembler"])

    def ask(self, op: str, **fields: Any) -> Reply:
        """The reply; where the process ends or takes too long, the status that says so, and it is gone.

        Raises UsageError where what was asked for does not exist.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._kill()

        timer = threading.Timer(DEADLINE_S, stop)
        timer.start()
        try:
            with suppress(BrokenPipeError):
                stdin.write(json.dumps({"op": op, **fields}) + "\n")
                stdin.flush()
            line = stdout.readline()
        finally:
            timer.cancel()
        if not line:
            return self._ended(late=late.is_set())
        reply: Reply = json.loads(line)
        if "usage" in reply:
            raise UsageError(reply["usage"])
        return reply

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._log.close()

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _ended(self, *, late: bool) -> Reply:
        self._kill()
        code = self._process.wait()
        self._log.seek(0)
        told = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        self.close()
        if late:
            return {"status": "timeout", "reason": "deadline", "detail": f"not compiled within {DEADLINE_S:.0f} s"}
        how = f"signal {_SIGNALS.get(-code, -code)}" if code < 0 else f"exit code {code}"
        tail = f": {told[-1].strip()[:200]}" if told else ""
        # A compiler that aborts refuses the kernel in its own way.
        status = "error" if -code in _FROM_OUTSIDE else "unsupported"
        return {"status": status, "reason": COMPILER_DIED, "detail": f"the compiler ended with {how}{tail}"}


def compile_all(
    jobs: Sequence[Job], start: Callable[[], Child], count: int, told: Callable[[int], None] = lambda done: None
) -> list[Reply]:
    """The replies in the order of the jobs, by up to `count` children; `told` hears how many are done.

    A child goes on with jobs of the target that it had, so that kernels which cases share compile once.
    """
    queues: dict[str, deque[int]] = {}
    for index, job in enumerate(jobs):
        queues.setdefault(job.label, deque()).append(index)
    replies: list[Reply] = [{} for _ in jobs]
    lock = threading.Lock()
    done = 0
    failure: list[BaseException] = []

    def next_job(label: str) -> tuple[str, int] | None:
        with lock:
            if failure:
                return None
            if not queues.get(label):
                label = max(queues, key=lambda name: len(queues[name]), default="")
            return (label, queues[label].popleft()) if queues.get(label) else None

    def serve() -> None:
        nonlocal done
        child: Child | None = None
        label = ""
        try:
            while (found := next_job(label)) is not None:
                label, index = found
                child = child if child is not None and child.is_alive else start()
                job = jobs[index]
                replies[index] = child.ask("compile", item=job.item, target=asdict(job.target), tile=job.tile)
                with lock:
                    done += 1
                    told(done)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asked
            failure.append(error)
        finally:
            if child is not None:
                child.close()

    worth = 1 + (len(jobs) - 1) // _JOBS_WORTH_A_START
    threads = [threading.Thread(target=serve, daemon=True) for _ in range(min(count, worth))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failure:
        raise failure[0]
    return replies
