"""Further looks of the loop at what it measured: other timers, single calls, other data."""

from types import SimpleNamespace

from gemmgate.suite import loop
from gemmgate.suite.records import Limits
from gemmgate.suite.workers import WorkerLost
from tests.loops import FakeWorker, Quiet, select

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
        loop.Plan(select("n64-fp32", ["plain", "twin"]), caches, **plan),
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
