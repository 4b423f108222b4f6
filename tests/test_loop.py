"""The loop over cases: faults cost their own row, and only what was interleaved shares a visit."""

import dataclasses
import time
from functools import partial
from types import SimpleNamespace

import pytest

from gemmgate.suite import loop
from gemmgate.suite.case_rows import missing
from gemmgate.suite.records import Limits, Row
from gemmgate.suite.workers import Worker, WorkerLost
from tests.loops import SUITES, FakeWorker, Quiet, select


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
        return _measure(select())


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
    plan = loop.Plan(select("n*", ["plain", "twin"]), ("hot",))
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
    choices = select("n64-fp32", ["plain", "twin"])
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
