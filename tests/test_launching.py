"""The state of launching, on a process whose states a test dictates."""

from __future__ import annotations

from collections.abc import Sequence

from gemmgate.suite.measure.launching import NODES, Launching
from gemmgate.suite.measure.sampler import Finish, Launch

CLOCK_HZ = 2e9
YOUNG_S, OLD_S = 0.55e-6, 0.73e-6
"""On an H200."""


class Process:
    """Young until it has aged `needed` times; it is young again after as many launches as `turns_at` says.

    Launches of `n` calls take `n` nodes' time. Its clock may be lowered.
    """

    name = "graph"

    def __init__(self, needed: int = 1) -> None:
        self.needed = needed
        self.aged = 0
        self.clock_hz: float = CLOCK_HZ
        self.is_steady = True
        self.timed = 0
        self.turns_at: set[int] = set()
        self.launching = Launching(self.node, self.age, lambda: Launch(lambda: None, NODES))

    @property
    def node_s(self) -> float:
        """Part of a node takes cycles of the clock, part of it time."""
        at_highest_s = OLD_S if self.aged >= self.needed else YOUNG_S
        return at_highest_s * (0.6 + 0.4 * CLOCK_HZ / self.clock_hz)

    def node(self) -> tuple[float, float | None]:
        return self.node_s, self.clock_hz if self.is_steady else None

    def age(self) -> None:
        self.aged += 1

    def start(self, launches: Sequence[Launch]) -> Finish:
        """The clock."""
        if self.timed in self.turns_at:
            self.aged = 0
        self.timed += 1
        seconds = [launch.calls * self.node_s for launch in launches]
        return lambda: list(seconds)

    def sample(self) -> list[float]:
        """Seconds of one launch of a single node."""
        return self.launching.start(self, [Launch(lambda: None, 1)])()


def test_a_young_process_is_aged_before_it_is_timed() -> None:
    """The first look finds the node as slow as in a process that has used its second stream."""
    process = Process()
    process.launching.steady()
    assert process.launching.node_s == OLD_S


def test_what_was_timed_in_the_young_state_is_taken_again() -> None:
    """Samples after the state turned come from the old one, and the change is counted."""
    process = Process()
    process.turns_at = {1}
    process.launching.steady()
    assert [process.sample() for _ in range(3)] == [[OLD_S]] * 3
    assert process.launching.moved == 1


def test_a_process_that_stays_young_for_a_while_is_aged_until_it_is_old() -> None:
    """More than one attempt is made where one does not do."""
    process = Process()
    process.launching.steady()
    process.aged, process.needed = 0, 4
    assert process.sample() == [OLD_S]
    assert process.aged == 4


def test_a_process_whose_first_ageing_fails_is_aged_again_before_it_is_timed() -> None:
    """What a node took at the beginning tells a process that stayed young from an old one."""
    process = Process(needed=3)
    process.launching.begin()
    process.launching.steady()
    assert process.sample() == [OLD_S]
    assert process.launching.moved == 0


def test_a_process_that_begins_old_is_timed_as_it_is() -> None:
    """Where a node takes no longer after ageing than at first, that state counts, and is not worked on again."""
    process = Process(needed=0)
    process.launching.begin()
    process.launching.steady()
    aged = process.aged
    process.launching.steady()
    assert process.sample() == [OLD_S]
    assert process.aged == aged
    assert process.launching.moved == 0


def test_a_steady_process_is_left_alone() -> None:
    """Neither a second look nor samples age an old process."""
    process = Process()
    process.launching.steady()
    process.launching.steady()
    assert process.sample() == [OLD_S]
    assert process.aged == 1
    assert process.launching.moved == 0


def test_a_lower_clock_is_no_other_state() -> None:
    """A board whose clock falls by a third, and rises again, has neither moved nor aged."""
    process = Process()
    process.launching.steady()
    process.clock_hz = CLOCK_HZ * 2 / 3
    process.launching.steady()
    process.sample()
    process.clock_hz = CLOCK_HZ
    process.launching.steady()
    assert process.sample() == [OLD_S]
    assert process.launching.moved == 0
    assert process.aged == 1


def test_the_young_state_is_told_at_a_lower_clock() -> None:
    """At two thirds of the clock a young node, nine tenths of an old one at the highest, is no old one."""
    process = Process()
    process.launching.steady()
    process.clock_hz, process.aged = CLOCK_HZ * 2 / 3, 0
    process.launching.steady()
    assert process.aged == 1
    assert process.launching.node_s == process.node_s > OLD_S


def test_a_clock_that_changes_while_it_is_read_says_nothing_of_the_state() -> None:
    """A node read at one clock beside another is not remembered as slow."""
    process = Process()
    process.launching.steady()
    process.clock_hz, process.is_steady = CLOCK_HZ / 2, False
    process.launching.steady()
    process.clock_hz, process.is_steady = CLOCK_HZ, True
    process.sample()
    assert process.launching.moved == 0


def test_a_process_that_never_ages_does_not_hold_up_the_run() -> None:
    """Where working on another stream changes nothing any more, the state that there is counts from then on."""
    process = Process()
    process.launching.steady()
    process.aged, process.needed = 0, 10**9
    assert process.sample() == [YOUNG_S]
    aged = process.aged
    assert process.sample() == [YOUNG_S]
    assert process.aged == aged
