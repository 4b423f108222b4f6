"""The search over all tiles on a device of known times: everything has a turn, luck is no speed, time is kept."""

from __future__ import annotations

import pytest

from gemmgate.suite.tuning import oracle
from gemmgate.suite.tuning.candidates import Candidate
from gemmgate.suite.tuning.oracle import sweep
from gemmgate.suite.tuning.picks import regret
from tests.test_racing import FakeDevice, space


def ranked_at(truth: dict[str, float], ranked: list[Candidate], place: int) -> Candidate:
    """The candidate that is so many places behind the fastest."""
    key = sorted(truth, key=truth.__getitem__)[place]
    return next(one for one in ranked if one.key == key)


def test_every_tile_has_a_turn() -> None:
    """All 144 tiles are timed, 143 of them beside the pick; the best 12 are scored with it, the best of all first."""
    ranked, truth = space(1)
    pick, best = ranked_at(truth, ranked, 30), min(truth, key=truth.__getitem__)
    found = sweep(ranked, pick, FakeDevice(truth, 0.001, 1))
    assert found.swept_s.keys() == truth.keys() - {pick.key} and not found.left_out
    assert {len(samples) for samples in found.swept_s.values()} == {oracle.ROUNDS}
    assert len(found.scored_s) == 13 and {pick.key, best} <= found.scored_s.keys()
    assert {len(samples) for samples in found.scored_s.values()} == {oracle.SCORED_ROUNDS}
    assert regret(found.scored_s, pick.key) == pytest.approx(truth[pick.key] / truth[best] - 1, rel=0.02)


def test_the_best_pick_costs_nothing_under_noise() -> None:
    """Where the pick is the best and samples scatter by 3 %, the mean cost of 50 sweeps is below 0.3 %."""
    costs = []
    for seed in range(50):
        ranked, truth = space(seed)
        pick = ranked_at(truth, ranked, 0)
        costs.append(regret(sweep(ranked, pick, FakeDevice(truth, 0.03, seed)).scored_s, pick.key))
    assert abs(sum(costs) / len(costs)) < 0.003


def test_time_that_ends_leaves_the_slowest_out() -> None:
    """Where time is up at once, the 48 that the model has first are timed and the other 95 named."""
    ranked, truth = space(2)
    found = sweep(ranked, ranked[0], FakeDevice(truth, 0.001, 2), out_of_time=lambda: True)
    assert list(found.swept_s) == [one.key for one in ranked[1:49]]
    assert found.left_out == tuple(one.key for one in ranked[49:])
    assert len(found.scored_s) == 13


def test_wrong_tiles_are_not_the_best() -> None:
    """Tiles that do not compile have no times, and of those whose results are wrong none is scored."""
    ranked, truth = space(3)
    order = sorted(truth, key=truth.__getitem__)
    pick = ranked_at(truth, ranked, 20)
    device = FakeDevice(truth, 0.001, 3, wrong=set(order[:5]).__contains__, broken=set(order[5:9]).__contains__)
    found = sweep(ranked, pick, device)
    assert [found.swept_s[key] for key in order[5:9]] == [()] * 4
    assert found.scored_s.keys() == {pick.key, *[key for key in order[9:22] if key != pick.key][:12]}


def test_kernels_are_asked_for_before_their_turn() -> None:
    """Each batch is asked for once, two batches before it is timed, so that compilers are busy and do not run away."""
    ranked, truth = space(4)
    device = FakeDevice(truth, 0.001, 4)
    asked: list[str] = []
    mounted_then: list[int] = []

    def ahead(batch: object) -> None:
        assert isinstance(batch, list)
        asked.extend(one.key for one in batch)
        mounted_then.append(device.samples // oracle.ROUNDS)

    sweep(ranked, ranked[0], device, ahead=ahead)
    assert asked == [one.key for one in ranked[1:]]
    assert mounted_then == [0, 0, 0]


def test_a_clock_that_fails_on_the_pick_ends_nothing() -> None:
    """Where the pick has no time in a batch, its tiles are not compared through it, and nothing is raised."""
    ranked, truth = space(5)

    class Silent(FakeDevice):
        """Gives the pick a time only in the last rounds."""

        def time(self, keys, rounds, *, fresh=False):  # type: ignore[no-untyped-def]
            samples = super().time(keys, rounds, fresh=fresh)
            return samples if fresh else {key: samples[key] for key in samples if key != ranked[0].key}

    found = sweep(ranked, ranked[0], Silent(truth, 0.001, 5))
    assert list(found.scored_s) == [ranked[0].key] and len(found.swept_s) == 143
