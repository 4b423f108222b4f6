"""Compiles what a run will need before its first case, with several workers at once.

One worker compiles one thing after the other, and nothing is measured meanwhile. Here each takes a case from a
common list, prepares what is asked for there and throws the result away: what stays are the compilers' caches on
disk, in which the worker that measures then finds the code. Choices are not kept there: an autotuner that runs
beside others reads nothing worth keeping, and decides again when it is alone.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import Choice
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.workers import START_DEADLINE_S, Worker, WorkerLost

DEADLINE_S = 300.0
FEWEST = 4
"""With fewer cases to compile for, starting workers takes longer than it saves."""
_MOST_WORKERS = 12
_SPARE_CORES = 2
_MEMORY_BYTES = 4 << 30
"""Of the device, for each worker."""
_LOOK_S = 0.05


@dataclass
class Warmed:
    """What came of it: cases done of so many, by how many workers, and the first thing that went wrong."""

    cases: int = 0
    of: int = 0
    workers: int = 0
    seconds: float = 0.0
    problem: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def tell(self, *, done: int = 0, problem: str = "") -> None:
        """Adds what one of the threads has to say."""
        with self._lock:
            self.cases += done
            self.problem = self.problem or problem


def to_compile(choices: Sequence[Choice]) -> list[Choice]:
    """Cases with what is offered on request alone: that is what takes long to prepare."""
    slow = [
        Choice(choice.family, choice.case, tuple(n for n in choice.implementations if n in _on_request(choice)))
        for choice in choices
    ]
    return [choice for choice in slow if choice.implementations]


def worker_count(target: Target, cores: int, cases: int) -> int:
    """How many are worth starting; 0 where the one that measures does it as well."""
    if not target.is_gpu or cases < FEWEST:
        return 0
    count = min(_MOST_WORKERS, cores - _SPARE_CORES, cases, target.memory_bytes // _MEMORY_BYTES)
    return count if count > 1 else 0


def warm(choices: Sequence[Choice], start: Callable[[], Worker], count: int, most_s: float | None = None) -> Warmed:
    """Prepares `choices` with `count` workers, and ends them; after `most_s` whatever is left is left.

    `start` begins a worker as `Worker(warm=True)` does: it is greeted here, so that it can be ended before it answers.
    What fails here fails again where it has a row, so it is no error; nor is a device that takes no second worker.
    """
    begin = time.monotonic()
    waiting: queue.SimpleQueue[Choice] = queue.SimpleQueue()
    for choice in choices:
        waiting.put(choice)
    warmed = Warmed(of=len(choices), workers=count)
    over = threading.Event()
    workers: list[Worker] = []
    threads = [threading.Thread(target=_serve, args=(waiting, start, workers, warmed, over)) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join(None if most_s is None else max(most_s - (time.monotonic() - begin), 0.0))
    finally:
        over.set()
        while any(thread.is_alive() for thread in threads):
            while workers:  # its thread finds it lost, and cleans up behind it
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(workers.pop().pid, signal.SIGKILL)
            time.sleep(_LOOK_S)
        warmed.seconds = time.monotonic() - begin
    return warmed


def _serve(
    waiting: queue.SimpleQueue[Choice],
    start: Callable[[], Worker],
    workers: list[Worker],
    warmed: Warmed,
    over: threading.Event,
) -> None:
    """One worker after the other, as long as there are cases; a lost one costs the rest of its case."""
    worker: Worker | None = None
    try:
        while not over.is_set():
            try:
                choice = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                if worker is None:
                    worker = start()
                    workers.append(worker)
                    worker.greet()
                    worker.meet()
                _prepare(worker, choice)
                warmed.tell(done=1)
            except WorkerLost as lost:
                warmed.tell(problem="" if over.is_set() else str(lost))
                worker = None
    except CannotMeasureError as error:  # it cannot even start
        warmed.tell(problem="" if over.is_set() else str(error))
    finally:
        if worker is not None:
            worker.kill()


def _prepare(worker: Worker, choice: Choice) -> None:
    names = choice.implementations
    case = choice.case.to_json()
    reply = worker.ask("supports", START_DEADLINE_S, pairs=[[case, names]])
    if not reply.get("ok"):
        return
    for name, refusal, screened in zip(names, reply["refusals"][0], reply["screened"][0], strict=True):
        if refusal is None and not screened:  # a search would time what others disturb
            fields = {"implementation": name, "seed": 0, "data": "normal", "caches": ["hot"]}
            if worker.ask("prepare", DEADLINE_S, case=case, **fields).get("fatal"):
                raise WorkerLost("error", "fatal", f"preparing {name} left the worker unusable", {})
    worker.ask("drop", DEADLINE_S)


def _on_request(choice: Choice) -> set[str]:
    return {entry.name for entry in choice.family.implementations if entry.on_request}
