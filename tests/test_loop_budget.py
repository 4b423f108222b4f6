"""The loop over cases within a budget of seconds, on a clock of its own."""

import math
from types import SimpleNamespace

import pytest

from gemmgate.suite import loop
from gemmgate.suite.cli._measuring import short_of_time, too_short
from gemmgate.suite.records import Limits
from tests.loops import FakeWorker, Quiet, select


def _measure_on_a_fake_clock(monkeypatch, seconds, **worker):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(loop.time, "monotonic", lambda: clock.now)
    fake = FakeWorker(clock, **worker)
    rows = []
    choices = select("n*", ["plain", "twin"])
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


@pytest.mark.parametrize(("enough_s", "said"), [(34.2, "--seconds 35 is enough for one."), (None, "give more time.")])
def test_a_budget_that_was_too_short_says_what_would_do(enough_s, said):
    """Whole seconds, rounded up, where a case was tried; else only that it takes more."""
    assert too_short(SimpleNamespace(enough_s=enough_s), 1.5) == f"No case found time within --seconds 1.5: {said}"
