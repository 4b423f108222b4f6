"""From samples to conclusions: a median, a ratio, and how far either can be trusted.

Samples of one process are not independent: clocks drift, and neighbours resemble each other. Every
interval here is therefore computed with an effective number of samples, which is never larger than
the number taken. No sample is dropped: a drift or a second mode is reported as a mark, and the
trimmed means trim for every series alike, by a fixed share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri, stdtrit

Floats = NDArray[np.float64]
Samples = Sequence[float] | Floats

TRIM = 0.2
"""Share of the samples that a trimmed mean leaves out at each end."""
SIZE_OF_INTEREST = 0.01
"""A drift or a distance between modes below 1 % of the median is not marked, however certain it is."""
DRIFT_Z = 3.75
"""Standardised level shift, maximised over its position, from which on it is a drift: marks 1.5 % of AR(1) series
with rho 0.5, and next to none of independent ones."""
TWO_MODES_SHARE = 0.87
"""Share of the variance that two groups must explain. The best split of a normal sample explains 64 %, of a uniform
one 75 %; two equal modes explain 87 % when they stand 5.2 of their own standard deviations apart."""
_FEWEST_FOR_MARKS = 12


@dataclass(frozen=True)
class Interval:
    """An estimate with the range that holds the truth with the stated confidence."""

    estimate: float
    low: float
    high: float
    confidence: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def widened(self, log_sd: float) -> Interval:
        """The interval of a ratio with one more independent source of spread, a standard deviation in log space."""
        if log_sd == 0.0:
            return self
        extra = float(ndtri((1 + self.confidence) / 2)) * log_sd
        down = math.hypot(math.log(self.estimate / self.low), extra) if self.low > 0 else math.inf
        up = math.hypot(math.log(self.high / self.estimate), extra)
        return Interval(self.estimate, self.estimate * math.exp(-down), self.estimate * math.exp(up), self.confidence)


@dataclass(frozen=True)
class Summary:
    """What a series of samples says about one call.

    `effective_n` is how many independent samples would say as much. `spread` is the distance from
    the 10th to the 90th percentile over the median. `marks` may hold `drift` and `two_modes`.
    """

    median_s: float
    low_s: float
    high_s: float
    n: int
    effective_n: float
    spread: float
    marks: tuple[str, ...]


def summarise(samples: Samples, confidence: float = 0.95) -> Summary:
    """Median with an interval between two order statistics, chosen for the effective number of samples.

    Below six samples the interval is their whole range, whose confidence is lower than asked.
    Raises ValueError where a sample is not a positive, finite time.
    """
    x = _checked(samples, confidence)
    n, tau = len(x), _correlation_time(x)
    ordered = np.sort(x)
    # Half a rank more than the normal approximation: exact, or one rank too wide, against the binomial.
    reach = float(ndtri((1 + confidence) / 2)) * math.sqrt(n * tau) / 2 + 0.5
    below = max(math.floor(n / 2 - reach), 0)
    median = float(np.median(x))
    p10, p90 = np.quantile(x, (0.1, 0.9))
    found = (("drift", _drifts(x)), ("two_modes", _has_two_modes(x)))
    return Summary(
        median_s=median,
        low_s=float(ordered[below]),
        high_s=float(ordered[n - 1 - below]),
        n=n,
        effective_n=n / tau,
        spread=float(p90 - p10) / median,
        marks=tuple(mark for mark, is_there in found if is_there),
    )


def ratio_interval(baseline_s: Samples, candidate_s: Samples, *, paired: bool, confidence: float = 0.95) -> Interval:
    """Baseline time over candidate time: above 1 the candidate is faster.

    With `paired`, the i-th samples come from the same interleaved round, and what both rounds share
    cancels: Yuen's trimmed mean of the log-ratios. Otherwise the trimmed means of the logs are
    compared as Welch does. With too few samples for any spread the interval reaches from 0 to infinity.
    """
    x, y = (np.log(_checked(samples, confidence)) for samples in (baseline_s, candidate_s))
    if paired and len(x) != len(y):
        raise ValueError(f"Paired samples come in rounds of two, but there are {len(x)} of the baseline and {len(y)}.")
    means, squares, freedoms = zip(*(_trimmed(z) for z in ((x - y,) if paired else (x, y))), strict=True)
    estimate = means[0] if paired else means[0] - means[1]
    square = sum(squares)
    if min(freedoms) <= 0:
        return Interval(math.exp(estimate), 0.0, math.inf, confidence)
    terms = sum(s * s / f for s, f in zip(squares, freedoms, strict=True))
    # A series without any spread has no say in the degrees of freedom.
    freedom = square * square / terms if terms else min(freedoms)
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * math.sqrt(square)
    low, high = (_exp(estimate + sign * half) for sign in (-1, 1))
    return Interval(math.exp(estimate), low, high, confidence)


def half_width(interval: Interval) -> float:
    """How far the wider side of a ratio's interval reaches, as a share: the smallest change it could have shown."""
    if interval.low <= 0 or not math.isfinite(interval.high):
        return math.inf
    return max(interval.high / interval.estimate, interval.estimate / interval.low) - 1


def yuen(x: Floats, trim: float) -> tuple[Floats, Floats, int]:
    """Trimmed means along the last axis, their standard errors from the winsorised variance, degrees of freedom."""
    n = x.shape[-1]
    cut = int(trim * n)
    ordered = np.sort(x, axis=-1)
    kept = ordered[..., cut : n - cut]
    size = n - 2 * cut
    if size < 2:
        return kept.mean(axis=-1), np.zeros(x.shape[:-1]), 0
    ordered[..., :cut] = ordered[..., cut : cut + 1]
    ordered[..., n - cut :] = ordered[..., n - cut - 1 : n - cut]
    square = ordered.var(axis=-1, ddof=1) * (n - 1) / (size * (size - 1))
    return kept.mean(axis=-1), np.sqrt(square), size - 1


def holm(p_values: Samples, alpha: float) -> NDArray[np.bool_]:
    """Which hypotheses fall so that any true one falls with a chance of `alpha` at most, however they depend."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)
    stands = p[order] > alpha / np.arange(len(p), 0, -1)
    first = int(np.argmax(stands)) if stands.any() else len(p)
    rejected = np.zeros(len(p), dtype=np.bool_)
    rejected[order[:first]] = True
    return rejected


def share_interval(found: int, of: int, confidence: float = 0.95) -> Interval:
    """A share with the exact (Clopper-Pearson) interval: none of 20 is anything up to 17 %."""
    if not 0 <= found <= of or of == 0:
        raise ValueError(f"{found} of {of} is no share.")
    tail = (1 - confidence) / 2
    low = float(betaincinv(found, of - found + 1, tail)) if found else 0.0
    high = float(betaincinv(found + 1, of - found, 1 - tail)) if found < of else 1.0
    return Interval(found / of, low, high, confidence)


def geometric_mean(ratios: Samples) -> float:
    """The mean under which twice as fast and half as fast cancel."""
    if len(ratios) == 0:
        raise ValueError("There is no geometric mean of no ratios.")
    return math.exp(float(np.mean(np.log(_checked(ratios)))))


def _checked(samples: Samples, confidence: float = 0.95) -> Floats:
    if not 0 < confidence < 1:
        raise ValueError(f"Confidence {confidence} is not between 0 and 1.")
    x = np.asarray(samples, dtype=np.float64)
    if x.size == 0:
        raise ValueError("There are no samples to draw a conclusion from.")
    wrong = np.flatnonzero(~(np.isfinite(x) & (x > 0)))
    if wrong.size:
        at = int(wrong[0])
        raise ValueError(f"Sample {at} of {x.size} is {x[at]}: a time is positive and finite.")
    return x


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < 700 else math.inf


def _trimmed(x: Floats) -> tuple[float, float, float]:
    """Yuen: trimmed mean, its squared standard error, degrees of freedom; the last two for effective samples."""
    means, errors, freedom = yuen(x, TRIM)
    if freedom == 0:
        return float(means), 0.0, 0.0
    tau = _correlation_time(x)
    return float(means), float(errors) ** 2 * tau, max((freedom + 1) / tau - 1, 1.0)


def _ranks(x: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    _, where, counts = np.unique(x, return_inverse=True, return_counts=True)
    mean: Floats = np.cumsum(counts) - (counts - 1) / 2
    return mean[where]


def _correlation_time(x: Floats) -> float:
    """How many samples of the series are worth one independent sample; at least 1.

    Two estimates from ranks, which outliers cannot fool, and the larger one counts. A first-order
    model, corrected for its bias, is right for short series; Geyer's sum over lags sees slower swings.
    """
    n = len(x)
    if n < 4:
        return 1.0
    z = _ranks(x) - (n + 1) / 2
    total = float(z @ z)
    if total <= 0.0:
        return 1.0
    rho = np.correlate(z, z, "full")[n - 1 :] / total
    first = float(rho[1])
    first = min(max(first + (1 + 3 * first) / n, 0.0), 0.95)
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
    end = int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else len(pairs)
    geyer = 2 * float(np.minimum.accumulate(pairs)[:end].sum()) - 1
    return min(max(1.0, (1 + first) / (1 - first), geyer), float(n))


def _drifts(x: Floats) -> bool:
    """A level that changes with time, at once or slowly: the largest rank-sum shift over all positions.

    The shift is judged against the correlation that remains once the best rising or falling curve is
    removed: a slow change would otherwise pass for correlation and excuse itself. A swing that
    returns to where it began is correlation here, and widens the interval instead.
    """
    from scipy.optimize import isotonic_regression  # Here, for it takes 0.3 s, which reading results need not pay.

    n = len(x)
    if n < _FEWEST_FOR_MARKS:
        return False
    ranks = _ranks(x)
    edge = max(3, n // 10)
    after = np.arange(edge, n - edge + 1)
    sums = np.cumsum(ranks)[after - 1] - after * (n + 1) / 2
    z = sums / np.sqrt(after * (n - after) * (n + 1) / 12)
    most = int(np.argmax(np.abs(z)))
    before, later = x[: after[most]], x[after[most] :]
    if abs(float(np.median(later) - np.median(before))) <= SIZE_OF_INTEREST * float(np.median(x)):
        return False
    curve = isotonic_regression(ranks, increasing=bool(z[most] < 0)).x
    tau = _correlation_time(np.round(ranks - curve, 6))
    return abs(float(z[most])) > DRIFT_Z * math.sqrt(tau)


def _has_two_modes(x: Floats) -> bool:
    """Whether two groups, each of a tenth of the samples or more, explain nearly all variance.

    Fewer samples than a group needs cannot look like one: they are moved in to the next value.
    """
    n = len(x)
    if n < _FEWEST_FOR_MARKS:
        return False
    fewest = max(3, math.ceil(n / 10))
    ordered = np.sort(x)
    y = np.clip(ordered, ordered[fewest - 1], ordered[n - fewest])
    y = y - y.mean()
    total = float(y @ y)
    if total <= 0.0:
        return False
    left = np.arange(fewest, n - fewest + 1)
    sums = np.cumsum(y)[left - 1]
    between = sums**2 * (1 / left + 1 / (n - left))
    at = int(left[np.argmax(between)])
    distance = float(np.median(ordered[at:]) - np.median(ordered[:at]))
    return float(between.max()) / total > TWO_MODES_SHARE and distance > SIZE_OF_INTEREST * float(np.median(x))
