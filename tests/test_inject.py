"""Injected slow-downs on a fake device: their length is what was asked for, and they are spread."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gemmgate.suite.measure.inject import Extra, calibrate, difference_s, first_guess, places

CLOCK_HZ = 1.98e9


def device(launch_s: float) -> tuple[list[Extra], object]:
    """What was tried, and a function that says what it adds on a device whose launches take so long."""
    tried: list[Extra] = []

    def added_s(extra: Extra) -> float:
        tried.append(extra)
        return extra.nodes * (launch_s + extra.amount / CLOCK_HZ)

    return tried, added_s


@pytest.mark.parametrize("launch_s", [0.3e-6, 0.8e-6, 1.4e-6, 4e-6])
@pytest.mark.parametrize("wanted_s", [5e-6, 10e-6, 50e-6])
def test_the_extra_comes_to_what_was_asked_for(launch_s: float, wanted_s: float) -> None:
    """Whatever launching takes, 5 to 50 us are met within a twentieth and few corrections."""
    tried, added_s = device(launch_s)
    extra, seen_s = calibrate(first_guess(wanted_s, 100, CLOCK_HZ), wanted_s, CLOCK_HZ, added_s)
    assert seen_s == pytest.approx(wanted_s, rel=0.05)
    assert extra == tried[-1]
    assert len(tried) <= 4


def test_pieces_are_no_more_than_calls() -> None:
    """In a launch of three calls even a large extra has three pieces at most, and a small one has one."""
    assert first_guess(1e-3, 3, CLOCK_HZ).nodes == 3
    assert first_guess(1e-6, 3, CLOCK_HZ).nodes == 1


@pytest.mark.parametrize(("calls", "nodes"), [(100, 1), (100, 7), (3, 3), (64, 5)])
def test_pieces_are_spread_evenly(calls: int, nodes: int) -> None:
    """Each follows another call, and the gaps between them differ by one call at most."""
    found = sorted(places(calls, nodes))
    assert len(found) == nodes and found[0] >= 0 and found[-1] < calls
    gaps = {later - earlier for earlier, later in pairwise(found)}
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_what_is_added_is_the_median_of_the_differences() -> None:
    """One interrupted replay of three does not count."""
    assert difference_s([(10.0, 11.0), (10.0, 12.0), (10.0, 99.0)]) == 2.0


@pytest.mark.parametrize("launch_s", [0.3e-6, 1.4e-6, 2.5e-6])
def test_a_known_floor_makes_the_first_guess_right(launch_s: float) -> None:
    """What a piece takes besides its length, learnt at one level, leaves nothing to correct at the next."""
    _, added_s = device(launch_s)
    extra, seen_s = calibrate(first_guess(20e-6, 100, CLOCK_HZ), 20e-6, CLOCK_HZ, added_s)  # type: ignore[arg-type]
    floor_s = seen_s / extra.nodes - extra.amount / CLOCK_HZ
    assert floor_s == pytest.approx(launch_s)
    tried, added_s = device(launch_s)
    calibrate(first_guess(60e-6, 100, CLOCK_HZ, floor_s), 60e-6, CLOCK_HZ, added_s)  # type: ignore[arg-type]
    assert len(tried) == 1
