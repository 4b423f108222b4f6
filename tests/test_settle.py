"""Settling on a fake board: a clock that ramps, a power cap, a throttle that never ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from gemmgate.suite.measure.settle import MOST_S, Reading, Settled, settle

LOAD_S = 0.005


@dataclass
class Board:
    """Time passes with the load alone; clock, power and marks are functions of it."""

    clock_hz: Callable[[float], float | None] = lambda now: 1.98e9
    power_w: Callable[[float], float | None] = lambda now: 300.0
    marks: frozenset[str] = frozenset()
    counts_energy: bool = True
    now: float = 100.0
    begun: float = field(default=100.0)

    def load(self) -> int:
        self.now += LOAD_S
        return 500

    def read(self) -> Reading:
        after = self.now - self.begun
        return Reading(
            self.clock_hz(after), self.power_w(after), 300.0 * self.now if self.counts_energy else None, self.marks
        )

    def settle(self, least_s: float = 0.02) -> Settled:
        return settle(self.load, self.read, lambda: self.now, least_s=least_s, highest_clock_hz=1.98e9)


def ramp(begin: float, end: float, over_s: float) -> Callable[[float], float]:
    """From one value to another in a straight line, then constant."""
    return lambda now: begin + (end - begin) * min(now / over_s, 1.0)


@pytest.mark.parametrize("least_s", [0.02, 0.5])
def test_a_steady_board_takes_no_longer_than_it_must(least_s: float) -> None:
    """With constant clock and power settling ends at the first reading after the least time."""
    settled = Board().settle(least_s)
    assert settled.steady
    assert settled.seconds == pytest.approx(least_s, abs=LOAD_S)
    assert (settled.sm_clock_hz, settled.power_w, settled.marks) == (1.98e9, 300.0, ())


def test_a_ramping_clock_is_waited_for() -> None:
    """A clock that rises for 0.6 s is steady no sooner, and what is reported is its final value."""
    settled = Board(clock_hz=ramp(1.2e9, 1.98e9, 0.6)).settle()
    assert settled.steady
    assert settled.seconds > 0.55
    assert settled.sm_clock_hz == pytest.approx(1.98e9, rel=0.01)


def test_rising_power_is_waited_for() -> None:
    """A clock that has not fallen yet while power still rises is not steady."""
    assert Board(power_w=ramp(120.0, 700.0, 0.8)).settle().seconds > 0.7


def test_a_board_at_its_power_limit_is_steady_and_marked() -> None:
    """A clock that steps up and down about 1485 MHz settles there and is `power_limited`, given as a reason or not."""
    steps = Board(clock_hz=lambda now: 1.485e9 + 15e6 * (round(now / LOAD_S) % 3 - 1), power_w=lambda now: 699.0)
    settled = steps.settle(0.3)
    assert settled.steady
    assert settled.sm_clock_hz == pytest.approx(1.485e9)
    assert settled.marks == ("power_limited",)


def test_a_reason_left_over_from_another_load_is_dropped() -> None:
    """At its highest clock a board is not power-limited, though it still gives that reason; one step below it is."""
    at_full, a_step_below = (
        Board(clock_hz=lambda now, hz=hz: hz, marks=frozenset({"power_limited"})).settle() for hz in (1.98e9, 1.965e9)
    )
    assert (at_full.marks, a_step_below.marks) == ((), ("power_limited",))


def test_throttled_for_ever_ends_and_is_not_called_power_limited() -> None:
    """At 59 % of its clock for heat a board is steady, and says `throttled` alone."""
    board = Board(clock_hz=lambda now: 0.59 * 1.98e9, marks=frozenset({"throttled"}))
    settled = board.settle()
    assert settled.steady and settled.marks == ("throttled",)


def test_a_board_that_never_settles_is_given_up() -> None:
    """A clock that falls for ever, by 30 % a second, ends the load after the most time, and is not steady."""
    settled = Board(clock_hz=lambda now: 1.98e9 * 0.7**now).settle()
    assert not settled.steady
    assert settled.seconds == pytest.approx(MOST_S, abs=2 * LOAD_S)


def test_a_board_that_says_nothing_is_steady() -> None:
    """Without clock, power and energy the load ends after the least time and promises nothing."""
    settled = Board(clock_hz=lambda now: None, power_w=lambda now: None, counts_energy=False).settle()
    assert (settled.steady, settled.sm_clock_hz, settled.power_w, settled.joules) == (True, None, None, None)


def test_energy_a_call_is_power_over_calls() -> None:
    """300 W over 500 calls in 5 ms is 3 mJ a call; over too short a load nothing is said."""
    assert Board().settle(0.3).joules == pytest.approx(300.0 * LOAD_S / 500)
    assert Board().settle(0.02).joules is None
