"""Interleaved rounds on a fake clock."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from gemmgate.suite.measure.precise import Precise
from gemmgate.suite.measure.sampler import (
    MOST_ROUNDS,
    ImpossibleTime,
    Launch,
    balanced_orders,
    looks,
    rounds_and_repeats,
    sample,
    sequential_rounds,
)
from gemmgate.suite.statistics import ratio_interval


class FakeClock:
    """Gives each launch a time of its own, and remembers what was started and waited for."""

    name = "fake"

    def __init__(self, times):
        self.times = times
        self.events = []

    def start(self, launches):
        self.events.append("start")
        for launch in launches:
            launch.enqueue()

        def finish():
            self.events.append("finish")
            return [self.times[int(launch.host_s)] for launch in launches]

        return finish


def _launches(count, calls=1):
    return [Launch(lambda: None, calls, host_s=index) for index in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 13])
def test_each_stands_equally_often_in_each_place(count):
    """Over 2n rounds of n each takes each place twice."""
    orders = balanced_orders(count, 2 * count)
    for place in range(count):
        assert Counter(order[place] for order in orders) == dict.fromkeys(range(count), 2)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 13])
def test_each_follows_each_other_equally_often(count):
    """Over 2n rounds of n every ordered pair of neighbours comes up twice."""
    pairs = Counter(pair for order in balanced_orders(count, 2 * count) for pair in itertools.pairwise(order))
    assert pairs == {(a, b): 2 for a in range(count) for b in range(count) if a != b}


def test_samples_are_seconds_a_call_of_the_right_launch():
    """Whatever the order of a round, each time lands with its own launch, divided by its calls."""
    samples = sample(FakeClock([8.0, 16.0, 24.0]), _launches(3, calls=8), 7)
    assert samples == [[1.0] * 7, [2.0] * 7, [3.0] * 7]


@pytest.mark.parametrize("impossible", [0.0, -1e-9, math.nan, math.inf])
def test_an_impossible_time_is_no_sample(impossible):
    """Zero, negative and endless times raise, with the index of the launch."""
    with pytest.raises(ImpossibleTime) as raised:
        sample(FakeClock([1.0, impossible, 1.0]), _launches(3), 4)
    assert raised.value.index == 1


def test_without_a_budget_a_sample_lasts_the_default():
    """A launch of 0.1 ms is repeated ten times for a sample of 1 ms, one of 5 ms once."""
    assert rounds_and_repeats([1e-4, 5e-3], None, 1e-3) == (40, [10, 1])


def test_a_budget_is_filled():
    """Rounds times repeats times launch comes to the budget within a repeat."""
    rounds, repeats = rounds_and_repeats([1e-4, 2e-4], 8.0, 1e-3)
    assert rounds * (repeats[0] * 1e-4 + repeats[1] * 2e-4) == pytest.approx(8.0, rel=1e-3)


def test_a_budget_too_small_still_gives_an_interval():
    """Where 40 rounds do not fit, rounds fall, but never below the 30 that an interval takes."""
    assert rounds_and_repeats([1.0], 35.0, 1e-3) == (35, [1])
    assert rounds_and_repeats([1.0], 3.0, 1e-3) == (30, [1])


def test_rounds_end_when_time_is_out_but_not_before_they_give_an_interval():
    """With no time at all 30 rounds are taken, with enough all of them."""
    assert len(sample(FakeClock([1.0]), _launches(1), 40, lambda: True)[0]) == 30
    assert len(sample(FakeClock([1.0]), _launches(1), 40, lambda: False)[0]) == 40


def test_the_next_round_is_started_before_the_last_is_waited_for():
    """A device always has work queued: only the last round is waited for with nothing behind it."""
    clock = FakeClock([1.0, 2.0])
    sample(clock, _launches(2), 4)
    assert clock.events == ["start", "start", "finish", "start", "finish", "start", "finish", "finish"]


class NoisyClock:
    """Launches of 1 s and `slower` times as much, with normal noise of `sd` in their logarithm."""

    name = "noisy"

    def __init__(self, slower, sd, seed):
        self.slower = slower
        self.sd = sd
        self.random = np.random.default_rng(seed)

    def start(self, launches):
        return lambda: [self.slower**launch.host_s * math.exp(self.random.normal(0.0, self.sd)) for launch in launches]


def _sequential(slower, sd, share, seed=0):
    precise = Precise(["mm", "own"], ["mm"], share)
    samples = sample(NoisyClock(slower, sd, seed), _launches(2), MOST_ROUNDS, is_enough=precise.is_enough)
    return precise, samples


def test_sampling_stops_once_the_ratio_is_known():
    """Quiet samples stop at the first look, noisier ones at a later one, and all at a look."""
    rounds = [len(_sequential(1.0, sd, 0.01)[1][0]) for sd in (0.001, 0.03, 0.05)]
    assert rounds[0] == 40 < rounds[1] < rounds[2] < MOST_ROUNDS
    assert set(rounds) <= looks(MOST_ROUNDS)


def test_what_could_not_be_known_is_said():
    """At the end of its rounds a ratio that is still wide says what would not have been seen, a narrow one nothing."""
    precise, samples = _sequential(1.0, 0.3, 0.01)
    assert len(samples[0]) == MOST_ROUNDS
    assert "could not have been seen" in precise.remark("own", samples)
    assert precise.remark("mm", samples) == ""
    precise, samples = _sequential(1.0, 0.001, 0.01)
    assert precise.remark("own", samples) == ""


def test_stopping_early_leaves_the_interval_its_confidence():
    """Of 300 ratios that stopped when they were known within 1 %, some 95 % of the intervals hold the truth."""
    held = 0
    for seed in range(300):
        _, (baseline, own) = _sequential(1.03, 0.03, 0.01, seed)
        held += 1 / 1.03 in ratio_interval(baseline, own, paired=True)
    assert held / 300 >= 0.92


def test_a_budget_limits_the_rounds_of_a_sequence():
    """Samples are short and rounds as many as fit, never fewer than give an interval, never more than the most."""
    assert sequential_rounds([1e-3], 0.1, 1e-3) == (100, [1])
    assert sequential_rounds([1e-3], 0.001, 1e-3) == (30, [1])
    assert sequential_rounds([1e-4], None, 1e-3) == (MOST_ROUNDS, [10])
