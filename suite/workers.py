"""The parent's side of a worker: start, ask with a deadline, kill. Never imports torch, never touches CUDA."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

from gemmgate.suite import catalog
from gemmgate.suite.cases import Target
from gemmgate.suite.errors import CannotMeasureError, UsageError
from gemmgate.suite.records import Machine, Stack, machine_key

PROTOCOL = 1
START_DEADLINE_S = 180.0
_TOLD_S = 0.5
"""A worker's step that takes less in all is not worth telling."""
_STDERR_TAIL = 2000
_LOOK_S = 0.5
_SIGNALS = {number.value: number.name for number in signal.Signals}


class WorkerLost(CannotMeasureError):
    """A worker died or passed its deadline. `status` and `reason` are the row's, `implementation` the culprit."""

    def __init__(self, status: str, reason: str, detail: str, at: Mapping[str, str]) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.implementation = at.get("implementation", "")
        self.step = at.get("step", "")


class Worker:
    """One worker process. `hello` has been said when the constructor returns, unless it starts `warm`.

    `overlay` is the folder that holds the `gemmgate` package of the side to measure; by default the
    one this process itself runs from. A `warm` start imports what it can, `modules` of (family,
    implementation) included, but leaves the device alone until `greet` and `meet`. Raises `UsageError`
    where the device does not exist and `CannotMeasureError` where the worker does not start or has
    imported another side's kernels. `steps_s` are seconds by the step that the worker said it was at.
    """

    def __init__(
        self,
        device: str = "auto",
        *,
        overlay: Path | None = None,
        suites: Sequence[Path] = (),
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        warm: bool = False,
        modules: Sequence[tuple[str, str]] = (),
    ) -> None:
        side = (overlay or own_overlay()).resolve()
        self._side = side
        self._kernels_tree = catalog.tree_hash(side / "gemmgate" / "kernels")
        self._hello = {"device": device, "suites": [str(suite) for suite in suites]}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process it belongs to
        self._process = subprocess.Popen(
            [python, "-P", "-m", "gemmgate.suite.measure.worker", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={
                **os.environ,
                **private_caches(),
                **(environment or {}),
                "PYTHONPATH": _path_with(side),
                "PYTHONUNBUFFERED": "1",
            },
            start_new_session=True,
        )
        self._lines: queue.Queue[tuple[float, str | None]] = queue.Queue()
        self.steps_s: defaultdict[str, float] = defaultdict(float)
        self._reader = threading.Thread(target=self._read, daemon=True, name="worker-reader")
        self._reader.start()
        self._next_id = 0
        self._has_ended = False
        if warm:
            self._post_start("warm", modules=[list(module) for module in modules])
        else:
            self.greet()
            self.meet()

    def greet(self, beside: Sequence[int] = ()) -> None:
        """Says hello, upon which the worker takes the device; `meet` waits for the answer.

        `beside` are the other processes on that device which are no strangers.
        """
        self._post_start("hello", beside=list(beside))

    def meet(self) -> None:
        """Learns who answered and on what."""
        try:
            hello = self.collect()
        except WorkerLost as lost:
            raise _not_started(lost) from lost
        if not hello.get("ok"):
            self._refuse(hello)
        if hello["protocol"] != PROTOCOL or hello["kernels_tree"] != self._kernels_tree:
            self.kill()
            raise CannotMeasureError(
                f"The worker imported other kernels ({hello['kernels_path']}) than those of {self._side}. "
                "Another installation of gemmgate comes first on its path, or the files changed while it started."
            )
        self.machine = Machine(**hello["machine"])
        self.stack = Stack(**hello["stack"])
        self.target = Target(**{**hello["target"], "features": tuple(hello["target"]["features"])})
        self.device: str = hello["device"]
        self.flags: dict[str, dict[str, str]] = hello["flags"]
        self.kernels_tree: str = hello["kernels_tree"]

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, op: str, deadline_s: float, **fields: Any) -> dict[str, Any]:
        """The reply to a request.

        Raises `WorkerLost`, with the worker killed, where neither it nor the word of a next step comes in time.
        """
        self.post(op, deadline_s, **fields)
        return self.collect()

    def post(self, op: str, deadline_s: float, **fields: Any) -> None:
        """Sends a request and does not wait: two workers can so be busy at once. `collect` gives the reply."""
        self._next_id += 1
        self._posted = op, deadline_s, time.monotonic() + deadline_s
        self._log_begin = self._log.seek(0, os.SEEK_END)
        request = {"id": self._next_id, "op": op, "deadline_s": deadline_s, **fields}
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, OSError):
            self._lost({})

    def collect(self) -> dict[str, Any]:
        """The reply to the request posted last; replies to earlier ones are passed over."""
        op, deadline_s, end = self._posted
        step, begun = op, end - deadline_s
        at: dict[str, str] = {}
        while True:
            try:
                came, line = self._next_line(end)
            except queue.Empty:
                self.kill()
                raise WorkerLost(
                    "timeout", "deadline", f"no answer to '{op}' within {deadline_s:.0f} s, {_place(at)}", at
                ) from None
            if line is None:
                self._lost(at)
            message = json.loads(line)
            if message["id"] != self._next_id:
                continue
            self.steps_s[step] += came - begun
            if "at" not in message:
                return {**message, "at": at}
            at = message["at"]
            step, begun = at["step"], came
            end = time.monotonic() + deadline_s

    def _next_line(self, end: float) -> tuple[float, str | None]:
        """When a line came, and the line, or None where the worker has ended, though a child may hold the pipe open.

        Raises `queue.Empty` at `end`.
        """
        ended = False
        while True:
            left_s = max(end - time.monotonic(), 0.0)
            try:
                return self._lines.get(timeout=min(left_s, _LOOK_S))
            except queue.Empty:
                if ended:  # and what it had written before has been read meanwhile
                    return time.monotonic(), None
                ended = self._process.poll() is not None
                if left_s == 0.0 and not ended:
                    raise

    def close(self) -> None:
        """Ends the worker, politely first."""
        with suppress(WorkerLost):
            if self._process.poll() is None:
                self.ask("bye", 5.0)
        self.kill()

    def stop(self) -> None:
        """Sends the worker and all that it started the signal to end; `kill` waits until it has."""
        if not self._has_ended:  # else the number may be that of other processes by now
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Ends the worker and all that it started."""
        self.stop()
        self._process.wait()
        self._has_ended = True
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._log.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError, OSError):
            for line in self._process.stdout:
                self._lines.put((time.monotonic(), line))
        self._lines.put((time.monotonic(), None))

    def _post_start(self, op: str, **fields: Any) -> None:
        try:
            self.post(op, START_DEADLINE_S, **self._hello, **fields)
        except WorkerLost as lost:
            raise _not_started(lost) from lost

    def _lost(self, at: Mapping[str, str]) -> NoReturn:
        code = self._process.wait()
        tail = self._tail()
        self.kill()
        how = f"signal {_SIGNALS.get(-code, -code)}" if code < 0 else f"exit code {code}"
        reason = _SIGNALS.get(-code, "died").lower() if code < 0 else "died"
        raise WorkerLost("error", reason, f"the worker ended with {how} {_place(at)}{tail}", at)

    def _refuse(self, hello: Mapping[str, Any]) -> NoReturn:
        self.kill()
        if hello["reason"] == "ValueError":
            raise UsageError(hello["detail"])
        if hello["reason"] == "ModuleNotFoundError":
            raise CannotMeasureError(
                f"{hello['detail']}. Measuring needs torch: `nox -s bench` sets up an environment that has it."
            )
        raise CannotMeasureError(f"The worker cannot begin: {hello['reason']}: {hello['detail']}")

    def _tail(self) -> str:
        """The last line written to standard error since the last request, where there is one."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(self._log_begin, size - _STDERR_TAIL))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""


def told_steps(steps_s: Mapping[str, float]) -> dict[str, float]:
    """The steps of workers that took long enough to be told, longest first; those of a screening as one."""
    together: defaultdict[str, float] = defaultdict(float)
    for step, seconds in steps_s.items():
        together[step.partition(" {")[0]] += seconds
    longest = sorted(together, key=lambda step: -together[step])
    return {step: together[step] for step in longest if together[step] >= _TOLD_S}


def private_caches() -> dict[str, str]:
    """Compiler caches of our own, a folder for each stack, so that no other program's entries are met.

    Below `GEMMGATE_CACHE`, or the user's cache folder; it should lie on a local disk.
    """
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    base = Path(os.environ.get("GEMMGATE_CACHE") or user / "gemmgate")
    stack = machine_key(
        "py", "{}.{}".format(*sys.version_info), *(f"{name}{_installed(name)}" for name in ("torch", "triton"))
    )
    root = base / stack
    return {"TRITON_CACHE_DIR": str(root / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(root / "inductor")}


def own_overlay() -> Path:
    """The folder that holds the `gemmgate` package this process runs from."""
    import gemmgate

    assert gemmgate.__file__ is not None
    return Path(gemmgate.__file__).parent.parent


def _not_started(lost: WorkerLost) -> CannotMeasureError:
    return CannotMeasureError(f"The worker did not start ({lost.reason}): {lost}")


def _path_with(side: Path) -> str:
    return os.pathsep.join([str(side), *filter(None, [os.environ.get("PYTHONPATH", "")])])


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _place(at: Mapping[str, str]) -> str:
    if not at:
        return "before its first step"
    who = f" of {at['implementation']}" if at.get("implementation") else ""
    return f"at step '{at['step']}'{who}"
