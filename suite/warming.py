"""Compiles what a run will need before its first case, with several workers at once.

One worker compiles one thing after the other, and nothing is measured meanwhile. Here each takes a case from the
list of its crew, prepares what is asked for there and throws the result away: what stays are the compilers' caches on
disk, in which the worker that measures then finds the code. Choices are not kept there: an autotuner that runs
beside others reads nothing worth keeping, and decides again when it is alone.

There are two crews. What is offered on request, such as Inductor's ways, is prepared on the device. Our own kernels
need none: `measure.compile_only` compiles the tile that `prepare` chooses, for tensors without memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import Choice, tree_hash
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.workers import START_DEADLINE_S, Worker, WorkerLost

DEADLINE_S = 300.0
_COMPILE_DEADLINE_S = 120.0
"""For one of our kernels."""
FEWEST = 4
"""With fewer cases to compile for, starting workers takes longer than it saves."""
FEWEST_OWN = 64
"""As `FEWEST`, of pairs of case and own kernel: on an H200 one took 0.07 to 0.14 s in runs of hundreds, a start 7 s."""
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


@dataclass(frozen=True)
class Crew:
    """Workers of one kind: what they share, how many, how one begins and what it does with a case.

    `start` begins a worker as `Worker(warm=True)` does. Those that need the device are greeted here, so that they can
    be ended before they answer.
    """

    choices: Sequence[Choice]
    count: int
    start: Callable[[], Worker]
    do: Callable[[Worker, Choice], None]
    has_device: bool


class Known:
    """What was compiled without a device before, so that the next run begins at once: a line each in a file.

    The file lies in the compiler's cache `folder` and is that of these kernels, with those of `suites`, and this
    target. Where the binaries are gone although it names them, the worker that measures makes them.
    """

    def __init__(self, folder: Path, kernels_tree: str, suites: Sequence[Path], target: Target) -> None:
        told = json.dumps([kernels_tree, [tree_hash(suite) for suite in suites], asdict(target)])
        self._path = folder / f"compiled-{hashlib.sha256(told.encode()).hexdigest()[:16]}.txt"
        try:
            self._lines = set(self._path.read_text(encoding="utf-8").splitlines())
        except OSError:
            self._lines = set()

    def lacking(self, choices: Sequence[Choice]) -> list[Choice]:
        """Cases with the implementations that were not compiled for them."""
        return _narrowed(choices, lambda choice, name: _line(choice, name) not in self._lines)

    def add(self, choice: Choice) -> None:
        """Remembers a case with its implementations; where that cannot be written, the next run compiles again."""
        lines = "".join(f"{_line(choice, name)}\n" for name in choice.implementations)
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(lines)


def on_device(choices: Sequence[Choice]) -> list[Choice]:
    """Cases with what is offered on request alone: that takes long to prepare, and needs the device."""
    return _narrowed(
        choices,
        lambda choice, name: any(entry.on_request and entry.name == name for entry in choice.family.implementations),
    )


def without_device(choices: Sequence[Choice]) -> list[Choice]:
    """Cases with what may be our own kernels: all but yardsticks and what is offered on request."""
    return _narrowed(choices, lambda choice, name: choice.family.runner == "kernel" and name in choice.may_be_own)


def worker_count(target: Target, cores: int, cases: int) -> int:
    """How many are worth starting; 0 where the one that measures does it as well."""
    if not target.is_gpu or cases < FEWEST:
        return 0
    count = min(_MOST_WORKERS, cores - _SPARE_CORES, cases, target.memory_bytes // _MEMORY_BYTES)
    return count if count > 1 else 0


def own_worker_count(target: Target, cores: int, choices: Sequence[Choice], fewest: int = FEWEST_OWN) -> int:
    """As `worker_count`, for what is compiled without a device: from `fewest` pairs of case and kernel on."""
    pairs = sum(len(choice.implementations) for choice in choices)
    return worker_count(target, cores, len(choices)) if pairs >= fewest else 0


def shared(counts: Sequence[int]) -> list[int]:
    """Workers for each crew, together as many as the largest of `counts`, at least one where there is a count."""
    most, total = max(counts, default=0), sum(counts)
    return [max(1, most * count // total) if count else 0 for count in counts]


def warm(crews: Sequence[Crew], most_s: float | None = None) -> Warmed:
    """Lets all crews work at once, and ends them; after `most_s` whatever is left is left.

    What fails here fails again where it has a row, so it is no error; nor is a device that takes no second worker.
    """
    begin = time.monotonic()
    warmed = Warmed(of=sum(len(crew.choices) for crew in crews), workers=sum(crew.count for crew in crews))
    over = threading.Event()
    workers: list[Worker] = []
    threads = []
    for crew in crews:
        waiting: queue.SimpleQueue[Choice] = queue.SimpleQueue()
        for choice in crew.choices:
            waiting.put(choice)
        arguments = (waiting, crew, workers, warmed, over)
        threads += [threading.Thread(target=_serve, args=arguments) for _ in range(crew.count)]
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
    waiting: queue.SimpleQueue[Choice], crew: Crew, workers: list[Worker], warmed: Warmed, over: threading.Event
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
                    worker = crew.start()
                    workers.append(worker)
                    if crew.has_device:
                        worker.greet()
                        worker.meet()
                crew.do(worker, choice)
                warmed.tell(done=1)
            except WorkerLost as lost:
                warmed.tell(problem="" if over.is_set() else str(lost))
                worker = None
    except CannotMeasureError as error:  # it cannot even start
        warmed.tell(problem="" if over.is_set() else str(error))
    finally:
        if worker is not None:
            worker.kill()


def prepare(worker: Worker, choice: Choice) -> None:
    """What a worker with the device does: as the one that measures will."""
    case = choice.case.to_json()
    for name in _supported(worker, choice):
        fields = {"implementation": name, "seed": 0, "data": "normal", "caches": ["hot"]}
        if worker.ask("prepare", DEADLINE_S, case=case, **fields).get("fatal"):
            raise WorkerLost("error", "fatal", f"preparing {name} left the worker unusable", {})
    worker.ask("drop", DEADLINE_S)


def compile_only(target: Target, claims: Path, known: Known, worker: Worker, choice: Choice) -> None:
    """What a worker without a device does: compiles what no other that shares the folder of `claims` does."""
    fields = {"case": choice.case.to_json(), "target": asdict(target), "claims": str(claims), "tile": None}
    for name in _supported(worker, choice, target):
        worker.ask("compile", _COMPILE_DEADLINE_S, implementation=name, **fields)
    known.add(choice)


def _supported(worker: Worker, choice: Choice, target: Target | None = None) -> list[str]:
    """Who takes the case and makes no search, which would time what others disturb; of the own alone for a `target`."""
    case, names = choice.case.to_json(), choice.implementations
    for_target = {"target": asdict(target)} if target else {}
    reply = worker.ask("supports", START_DEADLINE_S, pairs=[[case, names]], **for_target)
    if not reply.get("ok"):
        return []
    answers = zip(names, reply["refusals"][0], reply["screened"][0], reply["own"][0], strict=True)
    return [
        name
        for name, refusal, is_screened, is_own in answers
        if refusal is None and not is_screened and (target is None or is_own)
    ]


def _narrowed(choices: Sequence[Choice], takes: Callable[[Choice, str], bool]) -> list[Choice]:
    """The choices with those of their implementations alone that are taken, as far as there are any."""
    narrowed = [
        replace(choice, implementations=tuple(name for name in choice.implementations if takes(choice, name)))
        for choice in choices
    ]
    return [choice for choice in narrowed if choice.implementations]


def _line(choice: Choice, name: str) -> str:
    return f"{choice.family.name}/{name}/{choice.case.name}"
