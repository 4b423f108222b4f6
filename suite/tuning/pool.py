"""Processes that compile without a device, ahead of the search and beside it.

Each is a worker whose Triton has a driver without a device (`measure.compile_only`). They write the compiler cache
that the racing worker reads, and divide kernels among themselves: many tiles of many cases are one binary.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import Item
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.tuning.requests import Requests
from gemmgate.suite.workers import START_DEADLINE_S, Worker, WorkerLost

DEADLINE_S = 120.0
"""For one kernel."""
WITHOUT_DEVICE = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
KEPT_SHARE = 0.25
"""Of the workers, for what somebody waits for: a compiler at work for later is not interrupted."""
_PATIENCE_S = 2 * DEADLINE_S + START_DEADLINE_S


class Pool:
    """`count` workers that answer requests by priority, smallest first. `start` starts one, warm.

    Some workers take only what the case under way needs, so that they are free when a request comes that cannot wait.
    A worker that is lost costs its request, and is replaced. Used by one thread, from `submit` to `close`.
    `target` is what is compiled for, set before anything is asked.
    """

    def __init__(self, start: Callable[[], Worker], count: int) -> None:
        self._start = start
        self.count = count
        self.target = Target("cpu")
        self._claims = tempfile.TemporaryDirectory(prefix="gemmgate-claims-")
        self._requests = Requests()
        self._changed = threading.Condition()
        self._replies: dict[Hashable, dict[str, Any]] = {}
        self._kernels: dict[str, str] = {}  # finished ones, with what is wrong with them
        self._alive: set[Worker] = set()
        self._closed = False
        self.compile_s = 0.0
        self.waited_s = 0.0
        self.compiled = 0
        kept = int(KEPT_SHARE * count)
        self._threads = [
            threading.Thread(target=self._serve, args=(place < kept,), daemon=True, name=f"pool-{place}")
            for place in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, key: Hashable, op: str, item: Item, priority: float, **fields: Any) -> None:
        """Asks for something, once by its key: asked for again, it only comes earlier where that is more urgent."""
        request = {"op": op, "case": item.case.to_json(), "implementation": item.implementation, **fields}
        with self._changed:
            if self._requests.add(key, priority, request):
                self._changed.notify_all()

    def advance(self, index: int) -> None:
        """Keeps workers for the case of this number, and forgets what was asked for earlier ones and not begun.

        Before the first call no worker is kept.
        """
        with self._changed:
            self._requests.advance(index)
            self._changed.notify_all()

    def said(self, key: Hashable) -> dict[str, Any] | None:
        """The reply, where it has come; waits for nothing."""
        with self._changed:
            return self._replies.get(key)

    def wait(self, keys: Iterable[Hashable]) -> dict[Hashable, dict[str, Any]]:
        """The replies, once all the kernels in them are compiled, by whichever process; `failed` where one is not."""
        waiting = list(keys)
        begin = time.monotonic()
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or all(map(self._is_done, waiting)), _PATIENCE_S):
                raise CannotMeasureError(f"The compilers gave no answer within {_PATIENCE_S:.0f} s: begin again.")
            self.waited_s += time.monotonic() - begin
            return {key: self._said(self._replies[key]) for key in waiting if key in self._replies}

    def close(self) -> None:
        """Ends the workers at once, whatever they are at."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in list(self._alive):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(worker.pid, signal.SIGKILL)
        for thread in self._threads:
            thread.join()
        self._claims.cleanup()

    def _is_done(self, key: Hashable) -> bool:
        reply = self._replies.get(key)
        return reply is not None and all(kernel in self._kernels for kernel in reply.get("kernels", ()))

    def _said(self, reply: Mapping[str, Any]) -> dict[str, Any]:
        wrong = [self._kernels[kernel] for kernel in reply.get("kernels", ()) if self._kernels.get(kernel)]
        shared = {"status": "error", "reason": "does_not_compile", "detail": wrong[0]} if wrong else None
        return {**reply, "failed": reply.get("failed") or shared}

    def _next(self, is_kept: bool) -> tuple[Hashable, dict[str, Any]] | None:
        """The first request, once there is one that such a worker takes; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._requests.has(urgent=is_kept))
            return None if self._closed else self._requests.take(urgent=is_kept)

    def _serve(self, is_kept: bool) -> None:
        worker: Worker | None = None
        with suppress(CannotMeasureError):  # said again, and heard, at the first request
            worker = self._begin()
        while came := self._next(is_kept):
            key, request = came
            try:
                worker = worker or self._begin()
                reply = self._ask(worker, request)
            except WorkerLost as lost:
                if worker is not None:
                    self._alive.discard(worker)
                worker = None
                failed = {"status": lost.status, "reason": lost.reason, "detail": str(lost)}
                reply = {"failed": failed, "kernels": dict.fromkeys(lost.step.split(), True)}
            except Exception as error:  # noqa: BLE001  a thread that ends would leave its requests waiting
                reply = {"failed": {"status": "error", "reason": type(error).__name__, "detail": str(error)}}
            self._keep(key, reply)
        if worker is not None:
            self._alive.discard(worker)
            worker.kill()

    def _begin(self) -> Worker:
        worker = self._start()
        self._alive.add(worker)
        return worker

    def _ask(self, worker: Worker, request: dict[str, Any]) -> dict[str, Any]:
        op, fields = request["op"], {name: value for name, value in request.items() if name != "op"}
        begun = {"target": asdict(self.target), "claims": self._claims.name}
        reply = worker.ask(op, START_DEADLINE_S + DEADLINE_S, **begun, **fields)
        if not reply.get("ok"):
            return {"failed": {name: reply[name] for name in ("status", "reason", "detail")}}
        return reply

    def _keep(self, key: Hashable, reply: dict[str, Any]) -> None:
        with self._changed:
            self._replies[key] = reply
            claimed = [kernel for kernel, mine in reply.get("kernels", {}).items() if mine]
            for kernel in claimed:
                # Of those claimed in one request, the last is the one that failed.
                is_wrong = reply.get("failed") and kernel == claimed[-1]
                self._kernels[kernel] = reply["failed"]["detail"] if is_wrong else ""
            self.compile_s += reply.get("compile_s", 0.0)
            self.compiled += len(claimed)
            self._changed.notify_all()
