"""Whether a cache state is what it is called: shown by times, or by sizes where these alone decide.

A ring is cold if making it larger changes nothing, and if using one slot over and over does. The first
is a test of equivalence: that a difference was not found proves nothing, so the whole interval of the
ratio has to lie within the bound. Without the second, a kernel that never waits for memory would pass
on any ring.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gemmgate.suite.measure.sampler import Clock, Launch, sample
from gemmgate.suite.statistics import Interval, ratio_interval

Verdict = Literal["proven", "unknown", "failed"]

BOUND = 0.02
"""Two times are equivalent where the interval of their ratio lies within this, and different where it lies outside."""
CONFIDENCE = 0.90
"""Of both sides of the interval together, so that each of the two one-sided tests holds at 5 %."""
ROUNDS = 8
LOOKS = 3
"""So often that many rounds are taken, until the answer is clear."""
RESIDENT_SHARE = 0.5
"""What is at most this share of a cache stays in it while it is used."""


@dataclass(frozen=True)
class Proof:
    """What was shown for one implementation, and by which ratios: of the time in a larger ring, and in one buffer."""

    verdict: Verdict
    evidence: str
    is_sensitive: bool = False
    is_settled: bool = True


def judge(ring_s: Sequence[float], doubled_s: Sequence[float], single_s: Sequence[float]) -> Proof:
    """From samples of the same rounds: in the ring, in one of twice its size, and in one buffer."""
    larger = ratio_interval(doubled_s, ring_s, paired=True, confidence=CONFIDENCE)
    single = ratio_interval(ring_s, single_s, paired=True, confidence=CONFIDENCE)
    evidence = f"ring doubled: x {_said(larger)}; ring over one buffer: x {_said(single)}"
    is_sensitive = single.low > 1 + BOUND
    if larger.low > 1 + BOUND:
        return Proof("failed", f"{evidence}; the larger ring is slower, so this one is partly in the cache")
    if not (larger.low > 1 / (1 + BOUND) and larger.high < 1 + BOUND):
        return Proof("unknown", f"{evidence}; not equivalent within {BOUND:.0%}", is_sensitive, is_settled=False)
    if is_sensitive:
        return Proof("proven", evidence, is_sensitive)
    is_clear = single.high < 1 + BOUND
    return Proof("unknown", f"{evidence}; one buffer is not faster, so nothing tells", is_settled=is_clear)


def prove(clock: Clock, launches: Sequence[Launch], out_of_time: Callable[[], bool]) -> Proof:
    """Takes rounds of `launches`, which are the ring, the doubled ring and one buffer, until the answer is clear.

    Whoever gets here has bound and captured them, which takes longer than the first look: that is always taken.
    """
    samples: list[list[float]] = [[] for _ in launches]
    proof = Proof("unknown", "")
    for look in range(LOOKS):
        if look and out_of_time():
            break
        for kept, values in zip(samples, sample(clock, launches, ROUNDS), strict=True):
            kept.extend(values)
        proof = judge(*samples)
        if proof.is_settled:
            break
    return proof


def by_size(cache: str, input_bytes: int, cache_bytes: int, multiple: int) -> Proof | None:
    """What sizes alone decide: inputs of one call that by themselves push themselves out, or cannot stay."""
    said = f"the inputs of a call are {input_bytes / cache_bytes:.3g} times the cache" if cache_bytes else ""
    if cache == "cold" and said and input_bytes >= multiple * cache_bytes:
        return Proof("proven", said)
    if cache == "hot" and said and input_bytes > cache_bytes:
        return Proof("failed", said)
    return None


def of_ring(proofs: Iterable[Proof]) -> Proof:
    """What those measured show for the others that read the same slots in the same order.

    One whose own time does not depend on the cache says nothing for or against the ring.
    """
    measured = list(proofs)
    proven = next((proof for proof in measured if proof.verdict == "proven"), None)
    against = next((proof for proof in measured if proof.verdict == "failed" or not proof.is_settled), None)
    if proven is not None and against is None:
        return Proof("proven", f"of the same ring: {proven.evidence}", is_sensitive=True)
    doubt = against or next(iter(measured), None)
    return Proof(
        "unknown", f"of the same ring: {doubt.evidence}" if doubt else "no times were taken that would prove it"
    )


def of_hot(cold: Proof | None, input_bytes: int, cache_bytes: int) -> Proof:
    """One buffer is hot where it fits and where using it over and over is faster than a cold ring."""
    if cold is not None and cold.is_sensitive and 0 < input_bytes <= RESIDENT_SHARE * cache_bytes:
        return Proof("proven", cold.evidence)
    return Proof("unknown", "")


def of_serving(ring: Proof, activation_bytes: int, input_bytes: int, cache_bytes: int) -> Proof:
    """Cold weights as the ring shows them, and activations that nothing pushes out between two calls."""
    share = activation_bytes / max(input_bytes, 1)
    if ring.verdict != "proven" or share < BOUND or input_bytes <= RESIDENT_SHARE * cache_bytes:
        return ring
    return Proof("unknown", f"{ring.evidence}; activations of {share:.0%} of the inputs may not stay in the cache")


def _said(interval: Interval) -> str:
    if not math.isfinite(interval.high):
        return f"{interval.estimate:.3f}"
    return f"{interval.estimate:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
