"""Statistics are held to their promises by simulation: draw from a known truth, count how often it is found."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from gemmgate.suite.statistics import (
    Interval,
    _correlation_time,
    _ranks,
    _trimmed,
    geometric_mean,
    ratio_interval,
    summarise,
)

Draw = Callable[[np.random.Generator], NDArray[np.float64]]
N = 40
REPEATS = 1200
ALLOWED_ALARMS = 0.02


def ar1(rng: np.random.Generator, rho: float = 0.5) -> NDArray[np.float64]:
    noise = rng.standard_normal(N + 40)
    x = np.zeros(N + 40)
    for i in range(1, len(x)):
        x[i] = rho * x[i - 1] + noise[i] * math.sqrt(1 - rho**2)
    return x[40:]


def bimodal(rng: np.random.Generator) -> NDArray[np.float64]:
    return 0.3 * rng.standard_normal(N) + np.where(rng.random(N) < 0.5, 2.0, -2.0)


DRAWS: dict[str, Draw] = {
    "normal": lambda rng: rng.standard_normal(N),
    "autocorrelated": ar1,
    "two modes": bimodal,
    "heavy tails": lambda rng: rng.standard_t(3, N),
}
"""All have median and trimmed mean 0."""


def times(draw: Draw, rng: np.random.Generator) -> NDArray[np.float64]:
    """Ten microseconds with a spread of about one percent in log space."""
    return 1e-5 * np.exp(0.01 * draw(rng))


@pytest.mark.parametrize("name", DRAWS)
def test_median_interval_holds_the_truth(name: str) -> None:
    """The 95 % interval of the median holds the true median in at least 93 % of 1200 series of 40 samples."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(REPEATS):
        found = summarise(times(DRAWS[name], rng))
        held += found.low_s <= 1e-5 <= found.high_s
    assert held / REPEATS >= 0.93


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("name", DRAWS)
def test_ratio_interval_holds_the_truth(name: str, paired: bool) -> None:
    """The 95 % interval of a true ratio holds it in 92.5 % to 99.5 % of series, never narrow nor far too wide."""
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(REPEATS):
        shared = ar1(rng, 0.9) if paired else np.zeros(N)
        baseline = 1.25 * times(DRAWS[name], rng) * np.exp(0.05 * shared)
        candidate = times(DRAWS[name], rng) * np.exp(0.05 * shared)
        held += 1.25 in ratio_interval(baseline, candidate, paired=paired)
    assert 0.925 <= held / REPEATS <= 0.995


@pytest.mark.parametrize("name", ["normal", "autocorrelated", "heavy tails"])
def test_clean_series_are_not_marked(name: str) -> None:
    """Stationary series with one mode are marked in at most 2 % of cases, for either mark."""
    rng = np.random.default_rng(3)
    marks = [mark for _ in range(REPEATS) for mark in summarise(times(DRAWS[name], rng) ** 3 * 1e10).marks]
    assert marks.count("drift") / REPEATS <= ALLOWED_ALARMS
    assert marks.count("two_modes") / REPEATS <= ALLOWED_ALARMS


PLANTED: dict[str, tuple[str, Draw]] = {
    "a step in the middle": ("drift", lambda rng: rng.standard_normal(N) + 3 * (np.arange(N) >= N / 2)),
    "a slow trend": ("drift", lambda rng: rng.standard_normal(N) + 5 * np.arange(N) / N),
    "a warm-up": ("drift", lambda rng: 0.3 * rng.standard_normal(N) + 4 * np.exp(-np.arange(N) / 8)),
    "equal modes": ("two_modes", lambda rng: rng.standard_normal(N) + 7 * (rng.random(N) < 0.5)),
    "one slow launch in seven": ("two_modes", lambda rng: 0.5 * rng.standard_normal(N) + 6 * (np.arange(N) % 7 == 0)),
    "modes and one outlier": (
        "two_modes",
        lambda rng: rng.standard_normal(N) + 7 * (np.arange(N) % 2) + 90 * (np.arange(N) == 11),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_marked(name: str) -> None:
    """A drift or a second mode of several standard deviations is marked in at least nine of ten series."""
    mark, draw = PLANTED[name]
    rng = np.random.default_rng(4)
    assert sum(mark in summarise(times(draw, rng)).marks for _ in range(200)) >= 180


def test_small_changes_are_not_marked() -> None:
    """A drift of 0.1 % and modes 0.2 % apart are certain here, too small to matter, and not marked."""
    rng = np.random.default_rng(5)
    noise = 1e-4 * rng.standard_normal(N)
    assert summarise(1e-5 * np.exp(noise + 0.001 * np.arange(N) / N * 2)).marks == ()
    assert summarise(1e-5 * np.exp(noise + 0.002 * (np.arange(N) % 2))).marks == ()
    assert summarise(1e-5 * np.exp(noise + 0.05 * np.arange(N) / N)).marks == ("drift",)
    assert summarise(1e-5 * np.exp(noise + 0.02 * (np.arange(N) % 2))).marks == ("two_modes",)


def test_summary_of_known_numbers() -> None:
    """Median, order statistics and spread of a shuffled 1..39 are those that the binomial distribution gives."""
    x = np.random.default_rng(6).permutation(np.arange(1.0, 40.0))
    found = summarise(x)
    assert (found.median_s, found.n) == (20.0, 39)
    assert found.spread == pytest.approx((35.2 - 4.8) / 20)
    independent = int(stats.binom.ppf(0.025, 39, 0.5))
    assert found.low_s <= independent
    assert found.high_s >= 40 - independent
    assert found.low_s + found.high_s == 40


def test_autocorrelation_widens() -> None:
    """Samples that come in runs of ten equal ones count as few, and their interval is wider than that of a shuffle."""
    levels = np.repeat(np.array([3.0, 1.0, 4.0, 2.0]), 10) + np.linspace(0, 0.1, N)
    runs, shuffled = summarise(levels), summarise(np.random.default_rng(7).permutation(levels))
    assert runs.effective_n < 10 < shuffled.effective_n <= N
    assert runs.high_s - runs.low_s > shuffled.high_s - shuffled.low_s


def test_effective_n_of_known_correlation() -> None:
    """AR(1) with rho 0.5 has one independent sample in three; the median estimate is within a tenth of that."""
    rng = np.random.default_rng(8)
    assert np.median([_correlation_time(ar1(rng)) for _ in range(400)]) == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_samples(n: int) -> None:
    """Below six samples the interval of the median is their range, and nothing is marked."""
    x = [1e-6 * (i + 1) for i in range(n)]
    found = summarise(x)
    assert (found.low_s, found.high_s, found.marks) == (x[0], x[-1], ())


def test_constant_samples() -> None:
    """Equal samples give a summary and a ratio without width, without marks and without warnings."""
    found = summarise([2e-6] * N)
    assert (found.low_s, found.high_s, found.effective_n, found.marks) == (2e-6, 2e-6, N, ())
    for paired in (True, False):
        ratio = ratio_interval([3e-6] * N, [2e-6] * N, paired=paired)
        assert (ratio.low, ratio.estimate, ratio.high) == pytest.approx((1.5, 1.5, 1.5))


def test_unpaired_agrees_with_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without autocorrelation the unpaired test rejects equality exactly where scipy's Yuen-Welch test does."""
    monkeypatch.setattr("gemmgate.suite.statistics._correlation_time", lambda _: 1.0)
    rng = np.random.default_rng(9)
    x, y = np.exp(rng.normal(0.3, 0.2, 50)), np.exp(rng.normal(0.2, 0.4, 35))
    p = float(stats.ttest_ind(np.log(x), np.log(y), equal_var=False, trim=0.2).pvalue)
    touching = ratio_interval(x, y, paired=False, confidence=1 - p)
    assert touching.low == pytest.approx(1.0, abs=1e-9)
    assert touching.estimate == pytest.approx(
        math.exp(stats.trim_mean(np.log(x), 0.2) - stats.trim_mean(np.log(y), 0.2))
    )


def test_trimmed_standard_error_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten samples: eight winsorised values, six kept, and Yuen's standard error of those."""
    monkeypatch.setattr("gemmgate.suite.statistics._correlation_time", lambda _: 1.0)
    x = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 90.0])
    mean, square, freedom = _trimmed(x)
    winsorised = [3.0, 3.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 8.0, 8.0]
    assert (mean, freedom) == (5.5, 5.0)
    assert square == pytest.approx(9 * float(np.var(winsorised, ddof=1)) / (6 * 5))


def test_pairing_cancels_what_rounds_share() -> None:
    """With rounds that share a slow 20 % swing, the paired interval is ten times narrower than the unpaired one."""
    rng = np.random.default_rng(10)
    shared = np.exp(0.2 * np.sin(np.arange(N)))
    x, y = shared * times(DRAWS["normal"], rng), shared * times(DRAWS["normal"], rng)
    paired, unpaired = ratio_interval(x, y, paired=True), ratio_interval(x, y, paired=False)
    assert 10 * (paired.high - paired.low) < unpaired.high - unpaired.low


def test_direction_of_the_ratio() -> None:
    """A baseline of 2 us against a candidate of 1 us is a ratio of 2: the candidate is faster."""
    assert ratio_interval([2e-6] * 3, [1e-6] * 5, paired=False).estimate == pytest.approx(2.0)


def test_one_sample_knows_no_interval() -> None:
    """A single pair has an estimate and an interval from 0 to infinity."""
    assert ratio_interval([2.0], [1.0], paired=True) == Interval(2.0, 0.0, math.inf, 0.95)


def test_paired_lengths_must_agree() -> None:
    """Paired series of different lengths are refused with both lengths; unpaired ones are taken."""
    with pytest.raises(ValueError, match="4 of the baseline and 3"):
        ratio_interval([1.0] * 4, [1.0] * 3, paired=True)
    assert ratio_interval([1.0] * 4, [1.0] * 3, paired=False).estimate == 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1e-6])
def test_impossible_samples_are_refused(bad: float) -> None:
    """NaN, infinity, zero and negative times are refused by a sentence that names the value and its place."""
    with pytest.raises(ValueError, match=f"Sample 1 of 3 is {bad}"):
        summarise([1e-6, bad, 1e-6])
    with pytest.raises(ValueError, match=f"{bad}"):
        ratio_interval([1e-6, 1e-6], [1e-6, bad], paired=True)


def test_no_samples_and_no_confidence_are_refused() -> None:
    """Empty series, empty ratios and a confidence outside (0, 1) are refused."""
    with pytest.raises(ValueError, match="no samples"):
        summarise([])
    with pytest.raises(ValueError, match="no ratios"):
        geometric_mean([])
    with pytest.raises(ValueError, match=r"Confidence 95 "):
        summarise([1.0], confidence=95)


def test_geometric_mean_by_hand() -> None:
    """Twice as fast and half as fast is no difference; of 1, 2 and 4 the mean is 2."""
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    assert geometric_mean([1.0, 2.0, 4.0]) == pytest.approx(2.0)


def test_widening_adds_in_squares() -> None:
    """A log half-width of 3 % and an extra 1.96 x 2.0408 % combine to 5 %; no extra changes nothing."""
    narrow = Interval(1.0, math.exp(-0.03), math.exp(0.03), 0.95)
    wide = narrow.widened(0.04 / stats.norm.ppf(0.975))
    assert (math.log(wide.low), math.log(wide.high)) == pytest.approx((-0.05, 0.05))
    assert narrow.widened(0.0) is narrow
    assert Interval(1.0, 0.0, math.inf, 0.95).widened(0.01) == Interval(1.0, 0.0, math.inf, 0.95)


def test_ranks_agree_with_scipy() -> None:
    """Ranks with ties are scipy's average ranks."""
    x = np.array([3.0, 1.0, 3.0, 2.0, 3.0, 1.0])
    assert _ranks(x).tolist() == stats.rankdata(x).tolist()
