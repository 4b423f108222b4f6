"""The loop over cases: faults cost their own row, time is respected, only what was interleaved shares a visit."""

import dataclasses
import math
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmgate.suite import catalog, loop
from gemmgate.suite.case_rows import missing
from gemmgate.suite.cli._measuring import short_of_time, too_short
from gemmgate.suite.records import Limits, Row
from gemmgate.suite.workers import Worker, WorkerLost

SUITES = (Path(__file__).parent / "suites",)


class Quiet:
    """A progress display for nobody."""

    def case(self, choice, index, count): ...
    def step(self, implementation, step): ...
    def row(self, row): ...


def _select(case="n64-fp32", implementations=()):
    return catalog.find(SUITES).select(
        catalog.Selection(families=("faulty",), cases=(case,), implementations=tuple(implementations))
    )


def _measure(choices):
    # One thread: with more, a busy machine makes a product wait for a core, hundreds of times its own time.
    start = partial(Worker, "cpu", suites=SUITES, environment={"OMP_NUM_THREADS": "1"})
    rows = []
    begun = time.monotonic()
    running = loop.Loop(
        loop.Plan(choices, ("hot",)),
        start(),
        Limits(),
        restart=start,
        sink=rows.extend,
        progress=Quiet(),
        begun=begun,
    )
    running.run()
    return {row.implementation: row for row in rows}


@pytest.fixture(scope="module")
def faulty():
    """Rows of one case with every fault in it, by implementation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "PREPARE_DEADLINE_S", 6.0)
        patch.setattr(loop, "SAMPLE_DEADLINE_S", 6.0)
        return _measure(_select())


EXPECTED = {
    "plain": ("ok", ""),
    "twin": ("ok", ""),
    "prints": ("ok", ""),
    "slow": ("ok", ""),
    "wrong": ("broken", "error_above_bound"),
    "forgets": ("broken", "error_above_bound"),
    "writes_nothing": ("broken", "not_finite"),
    "writes_inputs": ("invalid", "inputs_changed"),
    "refuses": ("unsupported", "too_square"),
    "raises": ("error", "RuntimeError"),
    "cannot_say": ("error", "LookupError"),
    "runs_out_of_memory": ("out_of_memory", "host_memory"),
    "crashes": ("error", "sigsegv"),
    "exits": ("error", "died"),
    "leaves_children": ("error", "died"),
    "hangs": ("timeout", "deadline"),
    "hangs_when_timed": ("timeout", "deadline"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_fault_costs_its_own_row_and_no_other(faulty, name):
    """Among crashes, hangs and wrong results, each implementation has the row that it deserves."""
    assert (faulty[name].status, faulty[name].reason) == EXPECTED[name]


def test_only_what_is_right_has_a_time(faulty):
    """A row has a median and samples if and only if its status is ok."""
    for row in faulty.values():
        assert (row.median_s is not None) == (row.status == "ok")
        assert bool(row.samples_n) == (row.status == "ok")


def test_the_slow_one_is_measured_as_slow(faulty):
    """A call that sleeps 50 ms is measured at 50 ms or more, and its twin without sleep at less than that."""
    assert faulty["slow"].median_s >= 0.05
    assert faulty["twin"].median_s < 0.05


def test_rows_of_a_visit_name_their_yardstick(faulty):
    """All rows of a case in one cache state share a visit and the yardstick that was ok in it."""
    assert {row.yardstick for row in faulty.values()} == {"plain"}
    assert len({row.visit for row in faulty.values()}) == 1


class FakeWorker:
    """Answers at once, on a clock of its own: preparing and checking take 0.1 s each, sampling what it is given."""

    def __init__(self, clock, *, sampling_s=0.05, over_s=0.0):
        self.over_s = over_s
        self.clock = clock
        self.sampling_s = sampling_s
        self.machine = SimpleNamespace(board="a")
        self.target = SimpleNamespace(is_gpu=False)
        self.flags = {"ieee": {}}
        self.sampled = []
        self.steps_s = {"prepare": 0.0}

    def ask(self, op, deadline_s, **fields):
        if op == "sample":
            least_s = 30 * self.sampling_s * len(fields["implementations"])
            if fields["most_s"] is not None and least_s > fields["most_s"]:
                return {"status": "skipped", "reason": "budget", "least_s": least_s, "at": {}}
            taken_s = max(fields["seconds"] or 0.0, least_s) + self.over_s
            self.clock.now += taken_s
            self.sampled.append(fields["seconds"])
            measured = {name: {"samples_s": [1e-3, 1.1e-3] * 20} for name in fields["implementations"]}
            return {"ok": True, "measured": measured, "measure_s": taken_s, "roof_s": None, "at": {}}
        self.clock.now += 0.1 if op in ("prepare", "check") else 0.0
        return {"ok": True, "compile_s": 0.1, "check_s": 0.1, "at": {}}

    def close(self): ...


def _measure_on_a_fake_clock(monkeypatch, seconds, **worker):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(loop.time, "monotonic", lambda: clock.now)
    fake = FakeWorker(clock, **worker)
    rows = []
    choices = _select("n*", ["plain", "twin"])
    plan = loop.Plan(choices, ("hot", "cold"), seconds=seconds)
    running = loop.Loop(plan, fake, Limits(), restart=None, sink=rows.extend, progress=Quiet(), begun=99.0)
    running.run()
    return running, rows


@pytest.mark.parametrize("seconds", [20.0, 60.0, 600.0])
def test_a_budget_is_divided_and_filled(monkeypatch, seconds):
    """All of the time is used, the second before the loop began included, and every case gets some of it."""
    running, rows = _measure_on_a_fake_clock(monkeypatch, seconds, sampling_s=0.02)
    assert running.spent.total == pytest.approx(seconds, rel=0.01)
    assert len(rows) == 3 * 2 * 2
    assert not running.skipped


def test_what_binding_and_proving_take_is_left_out_of_what_is_asked_for(monkeypatch):
    """Where each answer takes 0.8 s longer than asked for, the third case still has its share, and no time is overrun.

    Both states of the last case are asked to fill the same: half of its share, less 0.8 s.
    """
    running, _ = _measure_on_a_fake_clock(monkeypatch, 15.0, sampling_s=0.001, over_s=0.8)
    asked = running._worker.sampled
    assert len(asked) == 6 and not running.skipped
    assert running.spent.total == pytest.approx(15.0, rel=0.01)
    assert asked[-1] == pytest.approx(asked[-2])


def test_seconds_are_divided_by_what_the_workers_were_at(monkeypatch):
    """Steps of half a second or more follow the sums, the longest first; those of a lost worker count too.

    Whatever tile a screening was at, it is one step.
    """
    running, _ = _measure_on_a_fake_clock(monkeypatch, None)
    running._restart = lambda: FakeWorker(running._worker.clock)
    running.spent.steps_s.clear()
    screens = {f"screen {{'heuristic': {place}}}": 0.25 for place in range(3)}
    running._worker.steps_s = {"hello": 7.0, "capture": 2.0, "sample": 0.1, **screens}
    running._worker.kill = lambda: None
    running._replace()
    running.spent.steps_s.update({"capture": 6.0})
    told = running.spent.to_json()
    assert list(told) == ["compiling", "checking", "measuring", "total", "waiting", "capture", "hello", "screen"]
    assert (told["capture"], told["hello"], told["screen"]) == (8.0, 7.0, 0.75)


def test_a_budget_that_is_too_small_is_kept_and_the_rest_is_left(monkeypatch):
    """Where two of three cases fit, the third is skipped, and the time taken is at most a tenth over."""
    running, rows = _measure_on_a_fake_clock(monkeypatch, 14.0)
    assert running.spent.total <= 1.1 * 14.0
    assert [choice.case.name for choice in running.skipped] == ["n256-fp32"]
    assert {row.case for row in rows} == {"n64-fp32", "n128-fp32"}


def test_without_a_budget_the_worker_takes_what_it_needs(monkeypatch):
    """No seconds asked for, none sent."""
    running, rows = _measure_on_a_fake_clock(monkeypatch, None)
    assert running.spent.measuring == pytest.approx(3 * 2 * 2 * 1.5)
    assert {row.status for row in rows} == {"ok"}


def test_a_case_is_not_measured_badly_for_lack_of_time(monkeypatch):
    """Where 30 rounds take longer than all the time, the case has no rows, and how much would do is known."""
    running, rows = _measure_on_a_fake_clock(monkeypatch, 5.0, sampling_s=0.5)
    assert rows == []
    assert len(running.skipped) == 3
    assert running.enough_s == pytest.approx(1 + 0.4 + 1.2 * 30)
    again, rows = _measure_on_a_fake_clock(monkeypatch, math.ceil(running.enough_s), sampling_s=0.5)
    assert {row.case for row in rows} == {"n64-fp32"}
    assert again.enough_s is None


def test_a_start_that_took_all_the_time_leaves_one_number(monkeypatch):
    """A budget that was used up before the loop began still measures its first case, and no other."""
    running, rows = _measure_on_a_fake_clock(monkeypatch, 1.2, sampling_s=0.01)
    assert [(row.case, row.cache) for row in rows] == [("n64-fp32", cache) for cache in ("hot", "hot", "cold", "cold")]
    assert {row.status for row in rows} == {"ok"}
    assert [choice.case.name for choice in running.skipped] == ["n128-fp32", "n256-fp32"]


def test_a_share_that_is_too_small_is_not_divided_further(monkeypatch):
    """Where 3 cases share 2.5 s, the first has the samples of a run without a budget, and what fits after it too."""
    running, rows = _measure_on_a_fake_clock(monkeypatch, 3.5, sampling_s=0.004)
    assert running._worker.sampled == [None] * 4
    assert {row.case for row in rows} == {"n64-fp32", "n128-fp32"}
    assert running.spent.total <= 1.1 * 3.5


def test_the_first_case_is_timed_however_small_the_budget(monkeypatch):
    """With 1 second, all of it gone, a case of 12 s in one cache state has its times, for it is below 15 s."""
    running, rows = _measure_on_a_fake_clock(monkeypatch, 1.0, sampling_s=0.2)
    assert {row.case for row in rows} == {"n64-fp32"}
    assert {row.status for row in rows} == {"ok"}
    assert len(running.skipped) == 2


@pytest.mark.parametrize(
    ("started_s", "seconds", "cases", "said"),
    [
        (2.0, 5.0, 56, ""),
        (
            4.6,
            5.0,
            1,
            "starting took 4.6 s of --seconds 5: the first case is measured in any case, others while time is left.",
        ),
        (4.6, 5.0, 56, "; --seconds 61 leaves about a second for each of 56."),
    ],
)
def test_a_start_that_took_most_of_the_time_is_said_before_the_first_case(started_s, seconds, cases, said):
    """Where less than half is left, what the start took stands there, and how much would do for all cases."""
    remark = short_of_time(started_s, seconds, cases)
    assert remark.endswith(said)
    assert bool(remark) == bool(said)


def test_a_worker_lost_between_cases_is_replaced(monkeypatch):
    """A worker that ends after the rows of its case were handed on costs no row, and the next case has a fresh one."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(loop.time, "monotonic", lambda: clock.now)

    class Mortal(FakeWorker):
        def ask(self, op, deadline_s, **fields):
            if op == "drop":
                raise WorkerLost("error", "sigkill", "the worker ended with signal SIGKILL", {})
            return super().ask(op, deadline_s, **fields)

        def kill(self): ...

    rows, started = [], []
    plan = loop.Plan(_select("n*", ["plain", "twin"]), ("hot",))
    running = loop.Loop(
        plan,
        Mortal(clock),
        Limits(),
        restart=lambda: started.append(Mortal(clock)) or started[-1],
        sink=rows.extend,
        progress=Quiet(),
        begun=99.0,
    )
    running.run()
    assert [row.status for row in rows] == ["ok"] * 6
    assert len(started) == 3


def test_what_is_missing_is_a_whole_case():
    """A case counts as measured when every selected implementation has a finished row in every cache state."""
    choices = _select("n64-fp32", ["plain", "twin"])
    done = [
        Row("faulty", "n64-fp32", name, status="broken", reason="x", cache="hot", data="normal")
        for name in choices[0].implementations
    ]
    assert missing(choices, ("hot",), done) == []
    assert missing(choices, ("hot", "cold"), done) == choices
    assert missing(choices, ("hot",), done[:1]) == choices
    assert missing(choices, ("hot",), done, ("normal", "zeros")) == choices
    other_timer = [dataclasses.replace(row, phase="cross_check") for row in done]
    assert missing(choices, ("hot",), other_timer) == choices
    again = [dataclasses.replace(done[0], status="timeout"), done[1]]
    assert missing(choices, ("hot",), again) == choices


CROSSED = {
    "plain": {"kernels_differ": "", "rows": {"events": {"samples_s": [2e-3] * 30, "reason": "launch_gap"}}},
    "twin": {"kernels_differ": "the graph lacks sum", "rows": {"cupti": {"samples_s": [1e-3] * 30}}},
}


SINGLY = {"plain": {"samples_s": [3e-3] * 30, "timer": "events"}, "twin": {"status": "broken", "reason": "not_finite"}}


class CrossedWorker(FakeWorker):
    """One of its implementations launches other kernels in a graph; it may die of a further look instead.

    One that is `wrong` cannot be captured, and its check says that it is wrong.
    """

    def __init__(self, clock, *, dies=False, wrong=""):
        super().__init__(clock)
        self.target = SimpleNamespace(is_gpu=True)
        self.dies = dies
        self.wrong = wrong
        self.prepared = []

    def ask(self, op, deadline_s, **fields):
        if op == "prepare":
            self.prepared.append((fields["implementation"], fields["data"]))
            timer = "events" if fields["implementation"] == self.wrong else "graph"
            return {**super().ask(op, deadline_s, **fields), "timer": timer, "tile": {"splits": 4}}
        if op == "check" and fields["implementation"] == self.wrong:
            return {"status": "broken", "reason": "error_above_bound", "detail": "error 1", "fatal": False, "at": {}}
        if op in ("cross_check", "singly"):
            if self.dies:
                raise WorkerLost("error", "sigsegv", "the worker ended with signal SIGSEGV", {})
            return {"ok": True, "crossed": CROSSED, "timed": SINGLY, "measure_s": 0.1, "at": {}}
        return super().ask(op, deadline_s, **fields)

    def kill(self): ...


def _cross_check(worker, caches=("cold", "hot"), **plan):
    rows = []
    running = loop.Loop(
        loop.Plan(_select("n64-fp32", ["plain", "twin"]), caches, **plan),
        worker,
        Limits(),
        restart=lambda: worker,
        sink=rows.extend,
        progress=Quiet(),
        begun=0.0,
    )
    running.run()
    return rows


def _fake_clock(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(loop.time, "monotonic", lambda: clock.now)
    return clock


def test_a_graph_with_other_kernels_has_no_time(monkeypatch):
    """Under a cross-check a captured call that lacks a kernel is invalid, and its neighbour keeps its time."""
    rows = _cross_check(CrossedWorker(_fake_clock(monkeypatch)), cross_check=True)
    cold = {row.implementation: row for row in rows if row.cache == "cold" and not row.phase}
    assert (cold["twin"].status, cold["twin"].reason) == ("invalid", "other_kernels")
    assert cold["twin"].detail == "the graph lacks sum"
    assert cold["plain"].status == "ok"


def test_other_timers_have_rows_of_their_own(monkeypatch):
    """Each other timer gives a row with the phase `cross_check`, in the first cache state; only events have a ratio."""
    rows = _cross_check(CrossedWorker(_fake_clock(monkeypatch)), cross_check=True)
    crossed = {(row.implementation, row.timer): row for row in rows if row.phase == "cross_check"}
    assert set(crossed) == {("plain", "events"), ("twin", "cupti")}
    assert {row.cache for row in crossed.values()} == {"cold"}
    assert crossed["plain", "events"].median_s == 2e-3
    assert crossed["plain", "events"].reason == "launch_gap"
    assert crossed["plain", "events"].yardstick == "plain"
    assert (crossed["twin", "cupti"].visit, crossed["twin", "cupti"].yardstick) == ("", "")


def test_a_cross_check_that_kills_the_worker_costs_no_time(monkeypatch):
    """Times taken before stay, the other timers' rows say what happened, and the next cache state is measured."""
    rows = _cross_check(CrossedWorker(_fake_clock(monkeypatch), dies=True), cross_check=True)
    counted = [row for row in rows if not row.phase]
    assert [(row.cache, row.status) for row in counted] == [("cold", "ok")] * 2 + [("hot", "ok")] * 2
    assert {(row.status, row.reason) for row in rows if row.phase} == {("error", "sigsegv")}


def test_calls_timed_singly_have_rows_of_their_own(monkeypatch):
    """Each has one with the phase `singly`, cold, beside the rows that count, once a case; what failed has no time."""
    rows = _cross_check(CrossedWorker(_fake_clock(monkeypatch)), ("hot", "cold"), singly=True)
    single = {row.implementation: row for row in rows if row.phase == "singly"}
    assert len(rows) == 4 + 2
    assert {(row.timer, row.cache) for row in single.values()} == {("events", "cold")}
    assert (single["plain"].median_s, single["plain"].yardstick) == (3e-3, "plain")
    assert (single["twin"].status, single["twin"].reason) == ("broken", "not_finite")
    assert {row.status for row in rows if not row.phase} == {"ok"}


def test_timing_singly_that_kills_the_worker_costs_no_time(monkeypatch):
    """The times that count stay, and the rows of the phase `singly` say what happened."""
    rows = _cross_check(CrossedWorker(_fake_clock(monkeypatch), dies=True), ("cold",), singly=True)
    assert [row.status for row in rows if not row.phase] == ["ok", "ok"]
    assert {(row.status, row.reason) for row in rows if row.phase} == {("error", "sigsegv")}


def test_a_wrong_one_keeps_what_it_was(monkeypatch):
    """One that cannot be captured and is wrong has the timer and the tile that it would have been timed with."""
    rows = _cross_check(CrossedWorker(_fake_clock(monkeypatch), wrong="twin"), ("cold",))
    (wrong,) = (row for row in rows if row.status == "broken")
    assert (wrong.implementation, wrong.timer, wrong.tile) == ("twin", "events", {"splits": 4})
    assert wrong.reason == "error_above_bound"
    assert {row.timer for row in rows if row.status == "ok"} == {"graph"}


def test_every_distribution_is_measured_in_its_turn(monkeypatch):
    """A sweep prepares and samples each case once for every distribution, and rows say which."""
    worker = CrossedWorker(_fake_clock(monkeypatch))
    rows = _cross_check(worker, ("hot",), data=("normal", "zeros"))
    assert worker.prepared == [(name, data) for data in ("normal", "zeros") for name in ("plain", "twin")]
    assert [(row.implementation, row.data) for row in rows] == worker.prepared
    assert len({row.visit for row in rows}) == 2


class DyingWorker(FakeWorker):
    """Dies whenever two are sampled together, and names nobody."""

    def ask(self, op, deadline_s, **fields):
        if op == "sample" and len(fields["implementations"]) > 1:
            raise WorkerLost("error", "sigkill", "the worker ended with signal SIGKILL", {})
        return super().ask(op, deadline_s, **fields)

    def kill(self): ...


def test_a_worker_that_dies_for_ever_ends_the_case_not_the_run(monkeypatch):
    """Where every worker dies and nobody can be blamed, all have failed, no row has a time, and the loop ends."""
    rows = _cross_check(DyingWorker(_fake_clock(monkeypatch)))
    assert {(row.status, row.reason, row.median_s) for row in rows} == {("error", "sigkill", None)}
    assert len(rows) == 4


@pytest.mark.parametrize(("enough_s", "said"), [(34.2, "--seconds 35 is enough for one."), (None, "give more time.")])
def test_a_budget_that_was_too_short_says_what_would_do(enough_s, said):
    """Whole seconds, rounded up, where a case was tried; else only that it takes more."""
    assert too_short(SimpleNamespace(enough_s=enough_s), 1.5) == f"No case found time within --seconds 1.5: {said}"
