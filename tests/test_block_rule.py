"""The gate's rule over blocks: what it finds, what it lets pass, and the statistics below it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from gemmgate.suite import block_rule, resampling
from gemmgate.suite.block_rule import confirmed, is_flagged, p_slower, rule_for
from gemmgate.suite.statistics import Interval, half_width, holm, share_interval, yuen

QUANTILES = scipy.stats.norm.ppf((np.arange(400) + 0.5) / 400)
"""A standard normal sample without luck."""


def source() -> np.random.Generator:
    """Always the same draws."""
    return np.random.default_rng(5)


def power(block_sd: float, change: float, *, beside: int = 9) -> float:
    """Share of gates that find a change, with normal noise and nine cases flagged in vain, as among 200."""
    blocks = block_sd * QUANTILES + math.log1p(change)
    return resampling.hits(blocks, rule_for(block_sd), beside, source()) / resampling.SHIFTS


def test_trimmed_means_and_errors_by_hand() -> None:
    """Of 1 2 3 4 100, a fifth trimmed: mean 3, winsorised 2 2 3 4 4, variance 1, error sqrt(1 * 4 / (3 * 2))."""
    mean, error, freedom = yuen(np.array([[1.0, 2.0, 3.0, 4.0, 100.0], [100.0, 3.0, 4.0, 1.0, 2.0]]), 0.2)
    assert mean == pytest.approx([3.0, 3.0])
    assert error == pytest.approx([math.sqrt(4 / 6)] * 2)
    assert freedom == 2


@pytest.mark.parametrize("trim", [0.0, 0.1, 0.25])
def test_two_trimmed_series_agree_with_scipy(trim: float) -> None:
    """Yuen's statistic of two series from means and errors is that of scipy."""
    x, y = source().normal(size=(2, 24)) * [[1.0], [1.5]] + [[0.0], [0.7]]
    (mean_x, error_x, _), (mean_y, error_y, _) = yuen(x, trim), yuen(y, trim)
    peer = scipy.stats.ttest_ind(x, y, equal_var=False, trim=trim).statistic
    assert float((mean_x - mean_y) / math.hypot(error_x, error_y)) == pytest.approx(peer)


def test_holm_steps_down_until_the_first_that_stands() -> None:
    """At 5 % of 0.01 0.04 0.03 0.005 the two smallest fall: 0.005 <= 0.05/4, 0.01 <= 0.05/3, but 0.03 > 0.05/2."""
    assert holm([0.01, 0.04, 0.03, 0.005], 0.05).tolist() == [True, False, False, True]
    assert holm([0.01, 0.01], 0.05).tolist() == [True, True]
    assert holm([], 0.05).tolist() == []


def test_holm_rarely_rejects_anything_true() -> None:
    """Among 20 true hypotheses one falls in 5 % of the cases at most."""
    p = source().uniform(size=(4000, 20))
    assert np.mean([holm(line, 0.05).any() for line in p]) == pytest.approx(0.05, abs=0.012)


@pytest.mark.parametrize(("found", "of"), [(0, 20), (0, 3000), (3, 40), (40, 40)])
def test_a_share_has_the_exact_interval(found: int, of: int) -> None:
    """The interval of a share is scipy's exact one; none of 20 may still be 17 %."""
    interval = share_interval(found, of)
    peer = scipy.stats.binomtest(found, of).proportion_ci(method="exact")
    assert (interval.low, interval.high) == pytest.approx((peer.low, peer.high))
    if (found, of) == (0, 20):
        assert interval.high == pytest.approx(0.168, abs=0.001)


def test_an_interval_reaches_as_far_as_its_wider_side() -> None:
    """1.02 from 1.00 to 1.03 reaches 2 %; one that begins at nothing reaches anywhere."""
    assert half_width(Interval(1.02, 1.00, 1.03, 0.95)) == pytest.approx(0.02)
    assert half_width(Interval(1.0, 0.0, 2.0, 0.95)) == math.inf


@pytest.mark.parametrize(
    ("block_sd", "change"),
    [(0.006, 0.01), (0.0075, 0.01), (0.015, 0.02), (0.02, 0.03), (block_rule.EXTENDED_SD, 0.03)],
)
def test_what_each_standing_promises_is_found(block_sd: float, change: float) -> None:
    """1 % at a block deviation of 0.6 %, 2 % in every gated case and 3 % in every extended one: 95 % of the time."""
    assert power(block_sd, change) >= 0.945


def test_power_at_one_percent_is_that_of_other_simulations() -> None:
    """At deviations of 0.6 and 0.8 % a slow-down of 1 % is found in some 99.5 and 94 of 100 gates."""
    assert power(0.006, 0.01) >= 0.99
    assert power(0.008, 0.01) == pytest.approx(0.94, abs=0.03)


def test_what_is_below_the_thresholds_is_not_found() -> None:
    """A change of 0.3 % is found in fewer than 1 of 100 gates, however quiet the case."""
    assert power(0.002, 0.003) < 0.01


@pytest.mark.parametrize("kind", ["normal", "heavy", "outliers", "modes"])
def test_false_alarms_stay_within_the_budget(kind: str) -> None:
    """Of 3000 gates over 200 unchanged cases, fewer than 1 in 100 alarm, whatever the noise is distributed like."""
    rng = source()
    shapes = {
        "normal": lambda: rng.normal(size=42),
        "heavy": lambda: rng.standard_t(3, size=42),
        "outliers": lambda: rng.normal(size=42) + 15 * (rng.uniform(size=42) < 0.1),
        "modes": lambda: rng.normal(size=42) + 2.5 * (rng.uniform(size=42) < 0.5),
    }
    series = []
    for block_sd in np.linspace(0.003, 0.02, 20):
        x = shapes[kind]()
        series.append(x / x.std(ddof=1) * block_sd)
    rules = [rule_for(float(x.std(ddof=1))) for x in series]
    found = resampling.false_alarms(series, rules, 0.0005, rng)
    assert found is not None
    assert found.estimate <= 0.01


def test_a_false_alarm_is_counted_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With launches that are off by 2 %, far beyond the thresholds, every gate alarms."""
    series = [0.005 * QUANTILES[::10]] * 4
    monkeypatch.setattr(resampling, "GATES", 50)
    found = resampling.false_alarms(series, [rule_for(0.005)] * 4, 0.02, source())
    assert found is not None and found.estimate == 1.0


def test_the_smallest_found_is_found_as_often_as_it_says() -> None:
    """Slowed down by what is called the smallest, 95 of 100 gates find it."""
    blocks = 0.007 * QUANTILES
    rule = rule_for(0.007)
    smallest = resampling.smallest_found(blocks, rule, 9, source())
    assert resampling.hits(blocks + math.log1p(smallest), rule, 9, source()) / resampling.SHIFTS == pytest.approx(
        0.95, abs=0.02
    )


def test_thresholds_follow_the_noise() -> None:
    """Twice the noise, twice the thresholds; at little noise they stop at the sizes below which nothing matters."""
    rule, twice, quiet = rule_for(0.01), rule_for(0.02), rule_for(0.001)
    assert math.expm1(twice.screen_at) == pytest.approx(2 * math.expm1(rule.screen_at))
    assert math.expm1(twice.confirm_at) == pytest.approx(2 * math.expm1(rule.confirm_at))
    assert math.expm1(quiet.screen_at) == pytest.approx(block_rule.LEAST_SCREEN)
    assert math.expm1(quiet.confirm_at) == pytest.approx(block_rule.LEAST_CONFIRM)
    assert [rule_for(sd).standing for sd in (0.015, 0.0151, 0.025, 0.0251)] == [
        "gated",
        "extended",
        "extended",
        "reported",
    ]


def test_one_slow_launch_in_ten_flags_and_confirms_nothing() -> None:
    """Twelve percent in one block of ten is an accident of launching: neither stage takes it for a change."""
    blocks = [0.001, -0.001] * 15
    blocks[3] = blocks[13] = blocks[23] = 0.12
    assert not is_flagged(blocks[:12], rule_for(0.006))
    assert confirmed({"a": blocks}, {"a": rule_for(0.006)}) == set()


def test_a_confirmation_needs_size_and_certainty() -> None:
    """Certain but small, and large but uncertain, are not confirmed; certain and large is."""
    alternating = np.array([1.0, -1.0] * 15)
    rules = dict.fromkeys("abc", rule_for(0.006))
    fresh = {
        "a": 0.003 + 0.0005 * alternating,
        "b": 0.010 + 0.0600 * alternating,
        "c": 0.010 + 0.0050 * alternating,
    }
    assert confirmed(fresh, rules) == {"c"}
    assert confirmed(fresh, {**rules, "c": replace(rules["c"], confirm_at=0.02)}) == set()


def test_a_chance_that_is_small_for_one_case_is_not_for_many() -> None:
    """Blocks with a chance of 0.5 % confirm a case that was flagged alone, and none of thirty flagged together."""
    blocks = 0.01 * QUANTILES[6::13][:30]
    blocks = blocks - blocks.mean()
    _, error, freedom = yuen(blocks, block_rule.CONFIRM_TRIM)
    shifted = blocks + scipy.stats.t.isf(0.005, freedom) * float(error) - yuen(blocks, block_rule.CONFIRM_TRIM)[0]
    rule = replace(rule_for(0.006), confirm_at=0.0)
    assert p_slower(shifted)[1] == pytest.approx(0.005)
    assert confirmed({"a": shifted}, {"a": rule}) == {"a"}
    names = [str(n) for n in range(30)]
    assert confirmed(dict.fromkeys(names, shifted), dict.fromkeys(names, rule)) == set()


def test_false_alarms_are_counted_with_the_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without thresholds on size half of 200 cases are flagged, and the correction alone keeps alarms below 5 %."""
    monkeypatch.setattr(resampling, "GATES", 400)
    rule = replace(rule_for(0.006), screen_at=0.0, confirm_at=0.0)
    found = resampling.false_alarms([0.006 * QUANTILES] * 4, [rule] * 4, 0.0, source())
    assert found is not None and found.estimate <= 0.05


def test_the_p_value_without_trimming_is_students(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing trimmed the chance is that of scipy's one-sided t-test."""
    monkeypatch.setattr(block_rule, "CONFIRM_TRIM", 0.0)
    x = source().normal(0.004, 0.01, 30)
    mean, p = p_slower(x)
    assert mean == pytest.approx(x.mean())
    assert p == pytest.approx(scipy.stats.ttest_1samp(x, 0.0, alternative="greater").pvalue)
    assert p_slower([0.01] * 30)[1] == 0.0
    assert p_slower([0.0] * 30)[1] == pytest.approx(0.5)


def test_a_change_in_time_alone_is_the_clocks() -> None:
    """Blocks 1 % slower in time and the same in cycles are neither flagged nor confirmed; in both they are."""
    noise = 0.002 * np.array([1.0, -1.0] * 15)
    slower, rule = noise + 0.01, rule_for(0.004)
    assert is_flagged(slower, rule) and is_flagged(slower, rule, slower)
    assert not is_flagged(slower, rule, noise) and not is_flagged(noise, rule, slower)
    fresh, rules = {"a": slower, "b": slower, "c": slower}, dict.fromkeys("abc", rule)
    assert confirmed(fresh, rules, cycles={"a": noise, "b": slower, "c": None}) == {"b", "c"}


def test_of_time_and_cycles_what_says_less_counts() -> None:
    """The mean is the smaller one and the chance the larger one of the two series."""
    x, y = source().normal(0.01, 0.004, 30), source().normal(0.006, 0.01, 30)
    (mean_x, p_x), (mean_y, p_y) = p_slower(x), p_slower(y)
    assert p_slower(x, y) == (min(mean_x, mean_y), max(p_x, p_y))


def test_power_and_false_alarms_are_of_the_rule_with_cycles() -> None:
    """Slowed in time alone, no gate finds it; in both, nearly all; equal columns change nothing for unchanged code."""
    noise, rule = 0.004 * QUANTILES, rule_for(0.004)
    slower = noise + math.log1p(0.02)
    assert resampling.hits(np.column_stack([slower, noise]), rule, 9, source()) < 0.01 * resampling.SHIFTS
    assert resampling.hits(np.column_stack([slower, slower]), rule, 9, source()) > 0.99 * resampling.SHIFTS
    twice = [np.column_stack([noise, noise])] * 3
    one = resampling.false_alarms([noise] * 3, [rule] * 3, 0.001, source())
    assert resampling.false_alarms(twice, [rule] * 3, 0.001, source()) == one
    alone = resampling.smallest_found(noise, rule, 9, source())
    assert resampling.smallest_found(np.column_stack([noise, 2 * noise]), rule, 9, source()) > 1.2 * alone
