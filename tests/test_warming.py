"""Compiling beforehand: several workers share the cases, and nothing that goes wrong there ends a run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gemmgate.kernels.dense_splitk import FAMILY
from gemmgate.kernels.dense_splitk.cases import case_of
from gemmgate.suite import warming
from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import Choice, Selection, find
from gemmgate.suite.cli import run
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.tuning.pool import WITHOUT_DEVICE
from gemmgate.suite.workers import Worker, WorkerLost

H200 = Target("sm_90", "NVIDIA H200", sm_count=132, shared_bytes=232448, memory_bytes=140 << 30)
SMALL = (case_of(16, 16, 4096, "bf16", "acc32"), case_of(16, 16, 8192, "bf16", "acc32"))


def chosen(*names: str, cases: int = 6) -> list[Choice]:
    """Some cases of the audit with these implementations."""
    return find().select(Selection(tags=("audit",), implementations=names))[:cases]


class FakeWorker:
    """Refuses `inductor_decompose_k`, searches in `inductor_best_choice`, and writes down what it prepares."""

    lock = threading.Lock()

    def __init__(self, log: list[tuple[str, str]], dies: str = "") -> None:
        self.log, self.dies = log, dies
        self.pid = -1
        self.ended = False

    def greet(self) -> None: ...

    def meet(self) -> None: ...

    def ask(self, op: str, deadline_s: float, **fields: Any) -> dict[str, Any]:
        if op == "supports":
            ((_, names),) = fields["pairs"]
            refusals = [["no_split_offered", "none"] if name == "inductor_decompose_k" else None for name in names]
            screened = [name == "inductor_best_choice" for name in names]
            return {"ok": True, "refusals": [refusals], "screened": [screened], "own": [[False] * len(names)]}
        if op == "prepare":
            assert fields["caches"] == ["hot"]
            with self.lock:
                self.log.append((fields["case"]["name"], fields["implementation"]))
            if fields["case"]["name"] == self.dies:
                raise WorkerLost("error", "sigsegv", "the worker ended with signal SIGSEGV", {})
        return {"ok": True}

    def kill(self) -> None:
        self.ended = True


def warmed_by(
    choices: list[Choice], start: Callable[[], Any], count: int, most_s: float | None = None
) -> warming.Warmed:
    """What comes of so many workers with a device."""
    return warming.warm([warming.Crew(choices, count, start, warming.prepare, True)], most_s)


def test_what_takes_long_is_compiled_once_and_searches_are_not_made() -> None:
    """Of each case what is offered on request is prepared by one worker, but not what is refused or searches."""
    log: list[tuple[str, str]] = []
    started: list[FakeWorker] = []
    choices = warming.on_device(chosen("inductor_*", "triton_split_k"))

    def start() -> Any:
        started.append(FakeWorker(log))
        return started[-1]

    warmed = warmed_by(choices, start, 3)
    names = ("inductor_default", "inductor_max_autotune", "inductor_no_decompose_k")
    assert sorted(log) == sorted((choice.case.name, name) for choice in choices for name in names)
    assert (warmed.cases, warmed.of, warmed.problem) == (6, 6, "")
    assert 1 <= len(started) <= 3
    assert all(worker.ended for worker in started)


def test_what_is_not_on_request_is_left_alone() -> None:
    """A selection without compilers has nothing to compile beforehand."""
    assert warming.on_device(chosen("triton_split_k", "cublas")) == []


def test_a_lost_worker_costs_its_case_alone() -> None:
    """Where a worker dies on one case a fresh one does the others, and the first problem is told."""
    log: list[tuple[str, str]] = []
    choices = warming.on_device(chosen("inductor_default"))
    warmed = warmed_by(choices, lambda: FakeWorker(log, dies=choices[2].case.name), 1)
    assert (warmed.cases, warmed.of) == (5, 6)
    assert {case for case, _ in log} == {choice.case.name for choice in choices}
    assert "SIGSEGV" in warmed.problem


def test_a_device_that_takes_no_second_worker_is_no_error() -> None:
    """Workers that cannot start compile nothing, which is told and not raised."""

    def refuse() -> Any:
        raise CannotMeasureError("exclusive mode")

    warmed = warmed_by(warming.on_device(chosen("inductor_default")), refuse, 2)
    assert (warmed.cases, warmed.problem) == (0, "exclusive mode")


def test_time_that_is_up_ends_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of its time what is under way is killed, and no further case is begun."""
    killed: list[int] = []
    free = threading.Event()

    class Slow(FakeWorker):
        def ask(self, op: str, deadline_s: float, **fields: Any) -> dict[str, Any]:
            if op == "prepare":
                free.wait(60)
                raise WorkerLost("error", "sigkill", "the worker ended with signal SIGKILL", {})
            return super().ask(op, deadline_s, **fields)

    def killpg(pid: int, number: int) -> None:
        killed.append(pid)
        free.set()

    monkeypatch.setattr(warming.os, "killpg", killpg)
    choices = warming.on_device(chosen("inductor_default"))
    warmed = warmed_by(choices, lambda: Slow([]), 2, most_s=0.1)
    assert killed == [-1, -1]
    assert (warmed.cases, warmed.problem) == (0, "")


@pytest.mark.parametrize(
    ("target", "cores", "cases", "count"),
    [
        (H200, 16, 40, 12),
        (H200, 8, 40, 6),
        (H200, 16, 5, 5),
        (H200, 16, 3, 0),
        (H200, 3, 40, 0),
        (Target("sm_87", memory_bytes=16 << 30), 12, 40, 4),
        (Target("cpu", memory_bytes=64 << 30), 64, 40, 0),
    ],
)
def test_how_many_workers(target: Target, cores: int, cases: int, count: int) -> None:
    """Two cores stay free, each worker needs 4 GiB of the device, and few cases or a CPU need none."""
    assert warming.worker_count(target, cores, cases) == count


def test_a_module_that_ends_a_worker_costs_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where importing what was chosen ends the worker, the run begins with one that has imported nothing yet."""
    begun: list[tuple[tuple[str, str], ...]] = []

    class Importing(FakeWorker):
        def __init__(self, device: str, *, suites: Any, warm: bool = False, modules: Any = ()) -> None:
            super().__init__([])
            self.modules = modules
            begun.append(tuple(modules))

        def meet(self) -> None:
            raise CannotMeasureError("the worker ended with exit code 3")

    monkeypatch.setattr(run, "Worker", Importing)
    started: Any = run._started("cuda", (), [Choice(FAMILY, SMALL[0], ("cublas", "dispatch"))])
    assert started.modules == ()
    assert begun == [(("dense_splitk", "cublas"), ("dense_splitk", "dispatch")), ()]


def test_seconds_of_compiling_beforehand_are_no_waiting() -> None:
    """Of 100 s of which 60 are explained, 25 of compiling beforehand leave 15 of waiting."""
    spent = run.loop.Spent(compiling=30.0, checking=10.0, measuring=20.0, total=100.0)
    seconds = run._spent(spent, 25.0)
    assert (seconds["warming"], seconds["waiting"], seconds["total"]) == (25.0, 15.0, 100.0)
    assert "warming" not in run._spent(spent, 0.0)


@pytest.mark.parametrize(("cases", "names", "count"), [(64, 1, 12), (32, 2, 12), (63, 1, 0), (8, 8, 8), (3, 30, 0)])
def test_own_kernels_have_workers_where_there_are_many(cases: int, names: int, count: int) -> None:
    """64 pairs of case and kernel are worth a start, of 4 cases at least; 63 are not."""
    choices = [Choice(FAMILY, SMALL[0], ("triton_split_k",) * names)] * cases
    assert warming.own_worker_count(H200, 16, choices) == count


def test_crews_share_the_workers() -> None:
    """Twelve workers at most are divided by what each crew could do with, and nobody who has cases gets none."""
    assert warming.shared([12, 12]) == [6, 6]
    assert warming.shared([12, 4]) == [9, 3]
    assert warming.shared([12, 0]) == [12, 0]
    assert warming.shared([0, 5]) == [0, 5]
    assert warming.shared([1, 1]) == [1, 1]
    assert warming.shared([0, 0]) == [0, 0]


def test_what_needs_no_device_leaves_out_yardsticks_and_what_is_on_request() -> None:
    """Of a selection with all kinds, only what may be our own kernel is left for workers without a device."""
    chosen_of = Choice(FAMILY, SMALL[0], ("cublas", "triton_split_k", "dispatch", "cublaslt_best", "inductor_default"))
    (left,) = warming.without_device([chosen_of])
    assert left.implementations == ("triton_split_k", "dispatch", "cublaslt_best")
    assert warming.without_device([Choice(FAMILY, SMALL[0], ("cublas",))]) == []


def test_what_was_compiled_is_remembered_for_the_same_kernels_and_gpu(tmp_path: Path) -> None:
    """A later run of the same kernels lacks only what is new; one of other kernels, or on another GPU, everything."""
    one = Choice(FAMILY, SMALL[0], ("triton_split_k",))
    both = Choice(FAMILY, SMALL[0], ("triton_split_k", "dispatch"))
    known = warming.Known(tmp_path, "a", (), H200)
    assert known.lacking([both]) == [both]
    known.add(one)
    (left,) = warming.Known(tmp_path, "a", (), H200).lacking([both])
    assert left.implementations == ("dispatch",)
    assert warming.Known(tmp_path, "a", (), H200).lacking([one]) == []
    for other in (warming.Known(tmp_path, "b", (), H200), warming.Known(tmp_path, "a", (), Target("sm_80"))):
        assert other.lacking([both]) == [both]


def test_own_kernels_are_compiled_without_a_device(tmp_path: Path) -> None:
    """Two workers compile the tiles that our kernels choose for a GPU that is not here, each binary once.

    Who searches, though it could not on a machine without a GPU, is not asked.
    """
    caches = {**WITHOUT_DEVICE, "TRITON_CACHE_DIR": str(tmp_path / "triton"), "OMP_NUM_THREADS": "1"}
    claims = tmp_path / "claims"
    claims.mkdir()
    known = warming.Known(tmp_path, "a", (), H200)
    choices = [Choice(FAMILY, case, ("triton_split_k", "dispatch", "cublaslt_best")) for case in SMALL]
    asked: list[tuple[str, str]] = []

    class Spied(Worker):
        def ask(self, op: str, deadline_s: float, **fields: Any) -> dict[str, Any]:
            reply = super().ask(op, deadline_s, **fields)
            if op == "compile":
                asked.append((fields["implementation"], str(reply.get("failed"))))
            return reply

    start = partial(Spied, "cpu", warm=True, environment=caches)
    do = partial(warming.compile_only, H200, claims, known)
    warmed = warming.warm([warming.Crew(choices, 2, start, do, False)])
    assert (warmed.cases, warmed.of, warmed.problem) == (2, 2, "")
    assert sorted(asked) == [("dispatch", "None")] * 2 + [("triton_split_k", "None")] * 2
    made = list((tmp_path / "triton").rglob("*.cubin"))
    assert len(made) == len(list(claims.iterdir())) > 0
    assert warming.Known(tmp_path, "a", (), H200).lacking(choices) == []


@pytest.fixture
def crews(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[list[warming.Crew], float | None]]:
    """What `gemmgate run` lets work, on a machine of 16 cores: crews and their most seconds. They do nothing."""
    found: list[tuple[list[warming.Crew], float | None]] = []

    def warm(working: list[warming.Crew], most_s: float | None) -> warming.Warmed:
        found.append((working, most_s))
        return warming.Warmed(seconds=9.0)

    monkeypatch.setenv("GEMMGATE_CACHE", str(tmp_path))
    monkeypatch.setattr(warming, "warm", warm)
    monkeypatch.setattr(run.os, "sched_getaffinity", lambda process: set(range(16)))
    return found


def worker_of(target: Target) -> Any:
    """What the worker that measures says of itself."""
    return SimpleNamespace(target=target, kernels_tree="a", device="cuda:0")


def many(*names: str) -> list[Choice]:
    """70 cases with these implementations."""
    return [Choice(FAMILY, case, names) for case in FAMILY.cases[:70]]


def test_a_run_of_own_kernels_compiles_for_a_third_of_its_time(
    crews: list[tuple[list[warming.Crew], float | None]],
) -> None:
    """Of 228 s, 76 at most are for twelve workers without a device; the yardstick is nothing to compile."""
    assert run._warm(many("cublas", "triton_split_k"), worker_of(H200), (), None, 228.0) == 9.0
    (((crew,), most_s),) = crews
    assert (crew.count, crew.has_device, most_s) == (12, False, 76.0)
    assert {choice.implementations for choice in crew.choices} == {("triton_split_k",)}


def test_both_crews_work_at_once(crews: list[tuple[list[warming.Crew], float | None]]) -> None:
    """With Inductor's ways and our kernels in each of many cases the twelve workers are halved."""
    run._warm(many("triton_split_k", "inductor_default"), worker_of(H200), (), None, None)
    (((with_device, without), most_s),) = crews
    assert (with_device.count, with_device.has_device, without.count, without.has_device) == (6, True, 6, False)
    assert most_s is None


@pytest.mark.parametrize(
    ("target", "cases", "count", "seconds"),
    [
        (H200, 70, 0, None),
        (H200, 70, None, 29.0),
        (H200, 60, None, 228.0),
        (Target("cpu", memory_bytes=64 << 30), 70, None, None),
        (Target("cpu", memory_bytes=64 << 30), 70, 4, None),
    ],
)
def test_what_does_not_pay_is_not_begun(
    crews: list[tuple[list[warming.Crew], float | None]],
    target: Target,
    cases: int,
    count: int | None,
    seconds: float | None,
) -> None:
    """No workers where none are asked for, with little time, for few kernels, and for a CPU."""
    assert run._warm(many("triton_split_k")[:cases], worker_of(target), (), count, seconds) == 0.0
    assert crews == []


def test_workers_that_are_asked_for_compile_few_kernels_too(
    crews: list[tuple[list[warming.Crew], float | None]],
) -> None:
    """`--compile-workers 4` is heeded for two cases and for 20 seconds, by as many workers as there are cases."""
    run._warm(many("triton_split_k")[:2], worker_of(H200), (), 4, 20.0)
    (((crew,), _),) = crews
    assert crew.count == 2
