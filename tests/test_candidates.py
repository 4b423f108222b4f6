"""The model of a tile's time against arithmetic by hand, and the choice of what to try."""

from __future__ import annotations

import pytest

from gemmgate.suite.cases import Footprint, Target
from gemmgate.suite.tuning import candidates as choosing
from gemmgate.suite.tuning.candidates import Candidate, Rates, predict_s

H200 = Target("sm_90", "NVIDIA H200", sm_count=132, shared_bytes=232448)
RATES = Rates(launch_s=1e-6, bytes_per_s=4e12, l2_bytes_per_s=8e12)


@pytest.mark.parametrize(
    ("footprint", "least_bytes", "seconds"),
    [
        # 132 programs with 64 KiB each under way: 8.65 MB, so memory's 4 TB/s is the limit. 8 MB take 2 us.
        (Footprint(132, 4, 65536, 8_000_000), 8_000_000, 1e-6 + 2e-6),
        # Half of those bytes are read again, from the cache at 8 TB/s: 1 us and 0.5 us.
        (Footprint(132, 4, 65536, 8_000_000), 4_000_000, 1e-6 + 1.5e-6),
        # Two programs keep 128 KiB under way, that is 0.131 TB/s: 8 MB take 61.04 us. A second launch costs 1 us.
        (Footprint(2, 4, 65536, 8_000_000, launches=2), 8_000_000, 2e-6 + 8e6 / 131072 * 1e-6),
        # A block of 200 KiB has an SM to itself: 133 programs take two waves for 133/132 of one.
        (Footprint(133, 4, 204800, 8_000_000), 8_000_000, 1e-6 + 2e-6 * 2 / (133 / 132)),
        # 48 KiB: four blocks fit (4 * 49 of 228 KiB); 528 programs are one wave.
        (Footprint(528, 4, 49152, 8_000_000), 8_000_000, 1e-6 + 2e-6),
        # Warps limit too: 32 of them leave room for two blocks, so that 528 programs take two waves.
        (Footprint(528, 32, 49152, 8_000_000), 8_000_000, 1e-6 + 2e-6),
        (Footprint(529, 32, 49152, 8_000_000), 8_000_000, 1e-6 + 2e-6 * 3 / (529 / 264)),
    ],
)
def test_the_model_by_hand(footprint: Footprint, least_bytes: int, seconds: float) -> None:
    """The predicted time is launches, and bytes at the rate of memory, cache or loads under way, in whole waves."""
    assert predict_s(footprint, H200, RATES, least_bytes) == pytest.approx(seconds, rel=1e-9)


def test_what_does_not_fit_is_no_candidate() -> None:
    """A tile with more shared memory than a block may have is left out; where the limit is unknown, none is."""
    tiles = [{"block": 1}, {"block": 2}]
    footprints = [Footprint(1, 4, 232449, 100), Footprint(1, 4, 232448, 100)]
    kept = choosing.candidates(tiles, footprints, H200, RATES, 100)
    assert [one.tile for one in kept] == [{"block": 2}]
    assert len(choosing.candidates(tiles, footprints, Target("sm_90", sm_count=132), RATES, 100)) == 2


def test_candidates_are_ordered_by_the_model() -> None:
    """The fastest by the model is first, ties go by name; without footprints the order is the space's own."""
    tiles = [{"block": 4}, {"block": 3}, {"block": 2}]
    footprints = [Footprint(132, 4, 65536, 2_000_000), *[Footprint(132, 4, 65536, 1_000_000)] * 2]
    assert [one.tile["block"] for one in choosing.candidates(tiles, footprints, H200, RATES, 100)] == [2, 3, 4]
    assert [one.tile["block"] for one in choosing.candidates(tiles, None, H200, RATES, 100)] == [4, 3, 2]


def grid() -> list[Candidate]:
    """Twenty tiles; the model likes `a` small and does not care about `b`."""
    return [Candidate({"a": a, "b": b}, 1.0 + a) for a in range(5) for b in range(4)]


def test_a_pick_tries_every_value() -> None:
    """Of twenty tiles twelve are chosen: the six best by the model, and one at least for each value of each field."""
    chosen = choosing.pick(grid(), 12)
    assert len(chosen) == len({one.key for one in chosen}) == 12
    assert [one.key for one in chosen[:6]] == [one.key for one in grid()[:6]]
    assert {one.tile["a"] for one in chosen} == set(range(5))
    assert {one.tile["b"] for one in chosen} == set(range(4))
    assert len(choosing.pick(grid(), 100)) == 20 and choosing.pick([], 5) == []


def test_neighbours_differ_in_one_field_then_in_two() -> None:
    """Around (1, 1) the untried tiles in its row and column come first, the model's favourites before the others."""
    found = choosing.near(grid(), [{"a": 1, "b": 1}], {"a=1 b=0", "a=1 b=1"}, 8)
    first = [(one.tile["a"], one.tile["b"]) for one in found]
    assert first[0] == (0, 1) and set(first[:6]) == {(0, 1), (1, 2), (1, 3), (2, 1), (3, 1), (4, 1)}
    assert all(1 not in place for place in first[6:])


def test_centers_take_turns() -> None:
    """Of two neighbours that are asked for around two tiles, each tile gets one."""
    found = choosing.near(grid(), [{"a": 0, "b": 0}, {"a": 4, "b": 3}], set(), 2)
    assert [dict(one.tile) for one in found] == [{"a": 0, "b": 1}, {"a": 0, "b": 3}]


def test_a_tile_of_another_case_finds_its_like() -> None:
    """A tile that is legal is its own like; one that is not gets the candidate that differs least."""
    found = choosing.like(grid(), [{"a": 3, "b": 2}, {"a": 9, "b": 1}, {"a": 9, "b": 1}])
    assert [dict(one.tile) for one in found] == [{"a": 3, "b": 2}, {"a": 0, "b": 1}]
    assert choosing.like([], [{"a": 1, "b": 1}]) == []
