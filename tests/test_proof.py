"""Proofs of cache states: what times and sizes show, and how often they would be wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="rings hold tensors")

from gemmgate.suite.measure import proof, states  # noqa: E402  torch first
from gemmgate.suite.measure.proof import Proof, judge  # noqa: E402
from gemmgate.suite.measure.refusal import Refused  # noqa: E402
from gemmgate.suite.measure.rotation import serving_ring, storage_bytes  # noqa: E402
from gemmgate.suite.measure.sampler import Launch  # noqa: E402
from tests.fakes import CachedClock, FakeClock, make_bench, make_inputs  # noqa: E402

RANDOM = np.random.default_rng(2)


def _samples(median_s: float, n: int = 8, noise: float = 0.005) -> list[float]:
    return list(median_s * np.exp(noise * RANDOM.standard_normal(n)))


@pytest.mark.parametrize(
    ("ring_s", "doubled_s", "single_s", "verdict", "settled"),
    [
        (8e-6, 8e-6, 6e-6, "proven", True),
        (8e-6, 8.04e-6, 7e-6, "proven", True),
        (7e-6, 8e-6, 6e-6, "failed", True),
        (6e-6, 6e-6, 6e-6, "unknown", True),
        (9e-6, 8e-6, 6e-6, "unknown", False),
    ],
)
def test_what_times_show(ring_s: float, doubled_s: float, single_s: float, verdict: str, settled: bool) -> None:
    """A ring is cold where doubling it changes nothing and one buffer is faster; partly warm where doubling slows it.

    A kernel that is as fast on one buffer shows nothing, nor does a larger ring that is faster.
    """
    found = judge(_samples(ring_s, 24), _samples(doubled_s, 24), _samples(single_s, 24))
    assert (found.verdict, found.is_settled) == (verdict, settled)


def test_noise_is_no_proof() -> None:
    """Where times scatter by 10 %, that no difference was found is not taken for equivalence."""
    assert judge(_samples(8e-6, noise=0.1), _samples(8e-6, noise=0.1), _samples(4e-6, noise=0.1)).verdict == "unknown"


@pytest.mark.parametrize("noise", [0.003, 0.01])
def test_a_ring_that_is_warm_by_more_than_the_bound_is_hardly_ever_proven(noise: float) -> None:
    """A ring 2.5 % faster than one of twice its size is called cold in at most 5 % of 400 trials."""
    wrong = sum(
        judge(_samples(8e-6, noise=noise), _samples(8.2e-6, noise=noise), _samples(6e-6, noise=noise)).verdict
        == "proven"
        for _ in range(400)
    )
    assert wrong <= 0.05 * 400 + 3 * math.sqrt(400 * 0.05 * 0.95)


def test_a_cold_ring_is_mostly_proven() -> None:
    """With 0.5 % of noise, at most 24 rounds prove a cold ring in at least 95 % of 200 trials."""
    medians_s = (8e-6, 8e-6, 6e-6)
    proven = 0
    for _ in range(200):
        launches = [Launch(lambda: None, 1, host_s=median_s) for median_s in medians_s]
        clock = FakeClock(lambda n: 0.0)
        clock.start = lambda given: (
            lambda: [  # type: ignore[method-assign]
                one.host_s * math.exp(0.005 * RANDOM.standard_normal()) for one in given
            ]
        )
        proven += proof.prove(clock, launches, lambda: False).verdict == "proven"
    assert proven >= 190


@pytest.mark.parametrize(("cache_slots", "verdict"), [(8, "proven"), (30, "failed"), (200, "unknown")])
@pytest.mark.parametrize("cache", ["cold", "serving"])
def test_a_cache_that_is_larger_than_it_says(cache: str, cache_slots: int, verdict: str) -> None:
    """A ring for 8 slots of cache is proven there, disproved by a cache between it and its double, else unknown."""
    clock = CachedClock(cache_slots if cache == "cold" else 2 * cache_slots)
    bench, work = make_bench(clock)
    bench.proves = True
    assert len(work.ring_of(cache).slots) == (24 if cache == "cold" else 48)
    outcome = bench.sample(work, ["first"], cache, None, None)["measured"]["first"]
    assert outcome["cache_proof"] == verdict, outcome["cache_evidence"]


def test_rounds_are_taken_until_it_is_clear() -> None:
    """A clear case takes 8 rounds of three launches, one that stays unclear 24, and none begins when time is out."""
    steady = FakeClock(lambda n: 8e-6)
    launches = [Launch(lambda: None, 1) for _ in range(3)]
    assert proof.prove(steady, launches, lambda: False).verdict == "unknown"
    assert next(steady._count) == 24
    wild = FakeClock(lambda n: 8e-6 * (1 + 0.5 * ((n * 0.618) % 1)))
    assert proof.prove(wild, launches, lambda: False).verdict == "unknown"
    assert next(wild._count) == 72
    late = FakeClock(lambda n: 8e-6 * (1 + 0.1 * (n % 3)))
    assert proof.prove(late, launches, lambda: True).verdict == "unknown"
    assert next(late._count) == 24


def test_sizes_that_decide_alone() -> None:
    """Inputs of three caches are cold without a measurement, and inputs larger than the cache are never hot."""
    big = proof.by_size("cold", 180_000_000, 60_000_000, 3)
    assert big == Proof("proven", "the inputs of a call are 3 times the cache")
    assert proof.by_size("cold", 179_000_000, 60_000_000, 3) is None
    too_big = proof.by_size("hot", 60_000_001, 60_000_000, 3)
    assert too_big is not None
    assert too_big.verdict == "failed"
    assert proof.by_size("hot", 60_000_000, 60_000_000, 3) is None
    assert proof.by_size("cold", 1000, 0, 3) is None


COLD = Proof("proven", "shown", is_sensitive=True)
WARM = Proof("failed", "warm")
NOISY = Proof("unknown", "noisy", is_settled=False)
INDIFFERENT = Proof("unknown", "as fast on one buffer")


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        ([COLD], "proven"),
        ([COLD, COLD], "proven"),
        ([COLD, INDIFFERENT], "proven"),
        ([INDIFFERENT], "unknown"),
        ([COLD, NOISY], "unknown"),
        ([COLD, WARM], "unknown"),
        ([WARM], "unknown"),
        ([], "unknown"),
    ],
)
def test_what_two_measured_show_for_the_others(measured: list[Proof], verdict: str) -> None:
    """The ring is proven for all where one proves it and none speaks against it."""
    assert proof.of_ring(measured).verdict == verdict


def test_hot_needs_a_difference_and_room() -> None:
    """One buffer is hot where a cold ring was slower and the buffer takes half of the cache or less."""
    assert proof.of_hot(COLD, 30, 60).verdict == "proven"
    assert proof.of_hot(COLD, 31, 60).verdict == "unknown"
    assert proof.of_hot(INDIFFERENT, 30, 60).verdict == "unknown"
    assert proof.of_hot(None, 30, 60).verdict == "unknown"


def test_serving_needs_activations_that_stay() -> None:
    """Activations that count must fit beside the weights of a call; a hundredth of the bytes may be anywhere."""
    assert proof.of_serving(COLD, 10, 30, 60).verdict == "proven"
    assert proof.of_serving(COLD, 10, 31, 60).verdict == "unknown"
    assert proof.of_serving(COLD, 1, 100, 60).verdict == "proven"
    assert proof.of_serving(WARM, 10, 30, 60).verdict == "failed"


def test_serving_shares_activations_and_keeps_weights_apart() -> None:
    """All slots have the first one's activation, and their weights alone come to three times the cache."""
    _, work = make_bench(FakeClock(lambda n: 1e-3))
    ring = work.ring_of("serving")
    assert {slot["a"].data_ptr() for slot in ring.slots} == {work.ring.slots[0]["a"].data_ptr()}
    weights = {slot["b"].data_ptr() for slot in ring.slots}
    assert len(weights) == len(ring.slots)
    assert sum(storage_bytes(slot["b"]) for slot in ring.slots) >= 3 * 1024
    assert len(ring.slots) > len(work.ring.slots)


def test_serving_is_checked_against_its_own_inputs() -> None:
    """The reference of a slot is that of the first activation with the slot's weights."""
    _, work = make_bench(FakeClock(lambda n: 1e-3))
    expected = make_inputs(0)["a"].double() @ make_inputs(5)["b"].double()
    assert torch.equal(work.expected(5, "serving")[0], expected)
    assert not torch.equal(work.expected(5, "cold")[0], expected)
    bench, work = make_bench(FakeClock(lambda n: 1e-3))
    assert bench.sample(work, ["first"], "serving", None, None)["measured"]["first"]["samples_s"]


def test_there_is_no_serving_without_weights() -> None:
    """A ring of nothing but activations is not cold, and says why."""
    ring = make_bench(FakeClock(lambda n: 1e-3))[1].ring
    assert not serving_ring(ring, make_inputs, ("a", "b"), 1024, torch.device("cpu")).cold


def test_a_doubled_ring_ends_with_the_ring() -> None:
    """Twice as many slots, the fresh ones first, so that the ring's own are furthest from their last use."""
    _, work = make_bench(FakeClock(lambda n: 1e-3))
    for cache in ("cold", "serving"):
        ring, doubled = work.ring_of(cache), work.doubled_ring(cache)
        assert doubled is not None
        assert doubled.slots[len(ring.slots) :] == ring.slots
        assert len({slot["b"].data_ptr() for slot in doubled.slots}) == 2 * len(ring.slots)


def test_rows_carry_what_was_shown() -> None:
    """Sampled cold, a row says that its state is proven and by which ratios; a proof that fails costs no time."""
    bench, work = make_bench(FakeClock(lambda n: 1e-3), names=("first", "second"))
    bench.proves = True
    measured = bench.sample(work, ["first", "second"], "cold", None, None)["measured"]
    for outcome in measured.values():
        assert outcome["cache_proof"] == "unknown"  # on this device one buffer is as fast
        assert "ring doubled: x 1.000" in outcome["cache_evidence"]
    work.doubled.clear()
    work.make = lambda slot: 1 / 0
    found = states.show(work, "cold", {}, {}, bench.clocks, bench.at, lambda: False)
    assert found == {}


def test_a_failing_proof_is_unknown() -> None:
    """Where the doubled ring cannot be made, the samples stay and the row says why nothing was shown."""
    bench, work = make_bench(FakeClock(lambda n: 1e-3))
    bench.proves = True

    def make(slot: int) -> dict[str, torch.Tensor]:
        raise Refused("error", "no_room", "no room for slot")

    work.make = make
    outcome = bench.sample(work, ["first"], "cold", None, None)["measured"]["first"]
    assert len(outcome["samples_s"]) == 40
    assert outcome["cache_evidence"] == "the proof failed: no room for slot"


def test_without_a_proof_no_larger_ring_is_built() -> None:
    """A state that times would prove, where none are asked for, is `unknown`, and no slot beyond the ring is made."""
    clock = CachedClock(8)
    bench, work = make_bench(clock, names=("first", "second"))
    bench.proves = True
    measured = bench.sample(work, ["first", "second"], "cold", None, None, prove=False)["measured"]
    assert {one["cache_proof"] for one in measured.values()} == {"unknown"}
    assert all(one["samples_s"] for one in measured.values()) and not work.doubled
