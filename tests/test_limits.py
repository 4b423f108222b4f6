"""Times that cannot be, and the least time that the roofs allow."""

from __future__ import annotations

import pytest
import torch

from gemmgate.suite.cases import Case
from gemmgate.suite.measure import roofs
from gemmgate.suite.measure.limits import impossible, roof_s
from gemmgate.suite.measure.machine import Telemetry
from gemmgate.suite.records import Limits

CASE = Case("f", "c", {"n": 8192}, "bf16", "acc32")
FLOP = 2 * 8192**3
LIMITS = Limits(
    bytes_per_s=4.2e12,
    flop_per_s={"bf16": 790e12},
    ceiling_bytes_per_s=4.8e12,
    ceiling_flop_per_s={"bf16": 1070e12},
    ceiling_sm_clock_hz=1.98e9,
    l2_bytes_per_s=7e12,
)


def why(rate: float, clock_hz: float | None = None, limits: Limits = LIMITS) -> str:
    """Of a product that ran at so many flop a second and moved next to nothing."""
    return impossible(limits, CASE, "cold", FLOP / rate, FLOP, 1, clock_hz)


def test_arithmetic_is_held_against_the_clock_that_was_read() -> None:
    """890 TFLOP/s is possible at 1980 MHz, as on zeros, and not at 1350 MHz; at the capped 1485 MHz 790 is."""
    assert why(890e12, 1.98e9) == ""
    assert why(890e12) == ""
    assert "1350 MHz" in why(890e12, 1.35e9)
    assert why(790e12, 1.485e9) == ""
    assert "highest clock" in why(1080e12, 1.98e9)


def test_an_unknown_highest_clock_leaves_the_ceiling_as_it_is() -> None:
    """Limits of an older version, which do not say for which clock they hold, refuse no more than before."""
    old = Limits(ceiling_flop_per_s={"bf16": 1070e12})
    assert why(890e12, 1.35e9, old) == ""
    assert why(1080e12, 1.35e9, old) != ""


def test_hot_bytes_are_held_against_the_l2() -> None:
    """6 TB/s cannot come from memory but from the L2, which 11 TB/s is too much for; a CPU promises neither."""
    moved = 24_000_000
    assert "memory" in impossible(LIMITS, CASE, "cold", moved / 6e12, 0, moved)
    assert impossible(LIMITS, CASE, "hot", moved / 6e12, 0, moved) == ""
    assert "L2" in impossible(LIMITS, CASE, "hot", moved / 11e12, 0, moved)
    cpu = Limits(l2_bytes_per_s=1e10, bytes_per_s=1e10)
    assert impossible(cpu, CASE, "hot", moved / 6e12, 0, moved) == ""


def test_the_roof_is_the_larger_of_both_times() -> None:
    """A large product takes its arithmetic, a small one its bytes."""
    assert roof_s(LIMITS, CASE, "cold", FLOP, 1000) == pytest.approx(FLOP / 790e12)
    assert roof_s(LIMITS, CASE, "cold", 1000, 42_000_000) == pytest.approx(1e-5)
    assert roof_s(LIMITS, CASE, "hot", 1000, 42_000_000) == pytest.approx(6e-6)


def test_the_long_version_says_more_than_the_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the long version adds reads, rates by size, floors and the timer's resolution to the same fields."""
    monkeypatch.setattr(roofs, "_SIZES", (2**20, 2**22))
    cpu = torch.device("cpu")
    short, long = (roofs.measure_limits(cpu, Telemetry(cpu), long=long) for long in (False, True))
    assert (short.source, long.source) == ("short", "long")
    assert set(long.flop_per_s) == set(short.flop_per_s) == set(long.settled_flop_per_s)
    assert (short.read_bytes_per_s, short.timer_resolution_s) == (0.0, 0.0)
    assert min(long.read_bytes_per_s, long.timer_resolution_s, long.launch_floor_s, long.event_floor_s) > 0
    assert set(long.bytes_per_s_by_size) == {str(2**20), str(2**22)}


def test_a_cache_is_no_slower_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a short copy takes as long as a large one, the cache gets the rate of memory."""
    monkeypatch.setattr(roofs, "_least", lambda times: 0.01)
    cpu = torch.device("cpu")
    found = roofs.measure_limits(cpu, Telemetry(cpu), long=False)
    assert found.bytes_per_s == 2 * 2**27 / 0.01
    assert found.l2_bytes_per_s == found.bytes_per_s


def test_the_timers_step_is_the_least_difference() -> None:
    """Of times in whole steps of 32 ns the step is 32 ns; equal times say nothing."""
    assert roofs._least_step([64e-9, 128e-9, 64e-9, 160e-9]) == pytest.approx(32e-9)
    assert roofs._least_step([64e-9, 64e-9]) == 0.0


def test_a_busy_machine_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times that are tripled for a while and then fall to 1 s are 1 s; ones that never settle end in time."""
    monkeypatch.setattr(roofs, "_UNCHANGED", 3)
    busy = iter([[3.0, 3.1], [3.05, 3.2], [3.0, 3.1], [1.0, 1.2], [1.01, 1.3], [1.0, 1.1], [1.02, 1.1], [9.0, 9.0]])
    assert roofs._least(lambda: next(busy), now=lambda: 0.0) == 1.0
    assert next(busy) == [9.0, 9.0]
    ever = iter(range(100, 0, -1))
    clock = iter([0.0, 0.1, 0.2, 0.4])
    assert roofs._least(lambda: [float(next(ever))], now=lambda: next(clock)) == 98.0
