"""Range finding against trying every split and every choice."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmgate.suite.tuning.ranges import Range, Ranges, find_ranges

Times = dict[int, dict[str, float]]


def regret_of(ranges: tuple[Range, ...], times_s: Times, weights: dict[int, float] | None = None) -> float:
    """Mean log-ratio of the chosen to the best, by looking each point up; infinite where a choice has no time."""
    shares = {point: (weights or {}).get(point, 1.0) for point in times_s}
    total = 0.0
    for point, times in times_s.items():
        chosen = next(one.candidate for one in ranges if point <= one.up_to)
        total += shares[point] * math.log(times.get(chosen, math.inf) / min(times.values()))
    return total / sum(shares.values())


def brute_force(times_s: Times, most: int, weights: dict[int, float] | None = None) -> float:
    """The least regret over all splits into at most `most` ranges and all choices for them."""
    points = sorted(times_s)
    names = sorted({name for times in times_s.values() for name in times})
    best = math.inf
    for count in range(1, min(most, len(points)) + 1):
        for ends in itertools.combinations(points[:-1], count - 1):
            for chosen in itertools.product(names, repeat=count):
                ranges = tuple(
                    Range(end, name, (end, end)) for end, name in zip((*ends, points[-1]), chosen, strict=True)
                )
                best = min(best, regret_of(ranges, times_s, weights))
    return best


tables = st.lists(st.integers(1, 4096), min_size=1, max_size=6, unique=True).flatmap(
    lambda points: st.fixed_dictionaries(
        {
            point: st.dictionaries(st.sampled_from("abc"), st.sampled_from([1.0, 1.1, 1.25, 2.0, 3.0]), min_size=1)
            for point in points
        }
    )
)


@settings(max_examples=100, deadline=None)
@given(tables, st.integers(1, 4), st.booleans())
def test_no_split_is_better(times_s: Times, most: int, weighted: bool) -> None:
    """The regret is the least that any split and choice has, and it is that of the ranges returned."""
    weights = {point: 1.0 + point % 3 for point in times_s} if weighted else None
    least = brute_force(times_s, most, weights)
    if math.isinf(least):
        with pytest.raises(ValueError, match="serve all points"):
            find_ranges(times_s, most, weights)
        return
    found = find_ranges(times_s, most, weights)
    assert found.regret == pytest.approx(least, abs=1e-12)
    assert regret_of(found.ranges, times_s, weights) == pytest.approx(least, abs=1e-12)
    assert len(found.ranges) <= most and found.ranges[-1].up_to == max(times_s)
    assert [one.up_to for one in found.ranges] == sorted({one.up_to for one in found.ranges})
    for low, high in itertools.pairwise(found.ranges):
        assert low.measured[0] <= low.measured[1] <= low.up_to < high.measured[0]


def test_a_crossover_is_found() -> None:
    """Where one is faster up to 8 and the other from 16 on, two ranges have no regret, and one has the lesser; they
    meet at 8 sqrt(2), where the times would be the same.
    """
    times_s = {1: {"a": 1.0, "b": 2.0}, 8: {"a": 1.0, "b": 1.5}, 16: {"a": 3.0, "b": 2.0}, 64: {"a": 9.0, "b": 2.0}}
    assert find_ranges(times_s, 2) == Ranges((Range(11, "a", (1, 8)), Range(64, "b", (16, 64))), 0.0)
    assert find_ranges(times_s, 1).ranges == (Range(64, "b", (1, 64)),)


@pytest.mark.parametrize(
    ("low", "high", "up_to"),
    [
        ({"a": 5.0, "b": 10.0}, {"a": 10.0, "b": 5.0}, 128),  # half-way: 64 * 4^(1/2)
        ({"a": 1.0, "b": 8.0}, {"a": 2.0, "b": 1.0}, 181),  # ln 8 of ln 8 + ln 2: 64 * 4^(3/4) = 181.02
        ({"a": 5.0, "b": 5.0001}, {"a": 9.0, "b": 5.0}, 64),  # as fast at 64: from there on b
        ({"a": 4.0, "b": 5.0}, {"a": 5.0, "b": 4.9999}, 255),  # as fast at 256
        ({"a": 4.0}, {"b": 5.0}, 128),  # neither has both times: the geometric middle
        ({"a": 4.0, "b": 5.0}, {"b": 5.0}, 64),  # only b has: it is known on either side
        ({"a": 4.0}, {"a": 6.0, "b": 5.0}, 255),  # only a has
    ],
)
def test_ranges_meet_where_times_cross(low: dict[str, float], high: dict[str, float], up_to: int) -> None:
    """Between 64 and 256 one choice ends where its time, as a power of the size, becomes the other's."""
    times_s = {1: {"a": 1.0}, 64: low, 256: high, 1024: {"b": 1.0}}
    assert find_ranges(times_s, 2).ranges == (Range(up_to, "a", (1, 64)), Range(1024, "b", (256, 1024)))


def test_neighbours_leave_nothing_between() -> None:
    """A range that ends at 8 where the next begins at 9 ends at 8, wherever times would cross."""
    times_s = {8: {"a": 1.0, "b": 9.0}, 9: {"a": 1.1, "b": 1.0}}
    assert [one.up_to for one in find_ranges(times_s, 2).ranges] == [8, 9]


def test_a_range_has_its_price() -> None:
    """A third range that saves a tenth of a percent is not made where each must save a half."""
    times_s = {1: {"a": 1.0, "b": 1.1}, 2: {"a": 1.003, "b": 1.0}, 4: {"a": 1.0, "b": 1.1}, 9: {"a": 5.0, "b": 1.0}}
    assert len(find_ranges(times_s, 4).ranges) == 4
    assert find_ranges(times_s, 4, each_costs=0.005).ranges == (Range(4, "a", (1, 4)), Range(9, "b", (9, 9)))


def test_neighbours_with_one_choice_are_one_range() -> None:
    """Where one candidate is best everywhere there is one range, however many are allowed."""
    assert find_ranges({1: {"a": 1.0}, 2: {"a": 1.0}, 3: {"a": 1.0}}, 3).ranges == (Range(3, "a", (1, 3)),)


@pytest.mark.parametrize(("times_s", "most"), [({}, 1), ({1: {"a": 1.0}}, 0), ({1: {}}, 1)])
def test_what_has_no_answer_is_refused(times_s: Times, most: int) -> None:
    """No points, no ranges, or a point without any time is an error that says so."""
    with pytest.raises(ValueError, match="anges"):
        find_ranges(times_s, most)
