"""The state of launching, on a process whose states a test dictates."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgate.suite.measure.launching import Launching

CLOCK_HZ = 2e9
YOUNG_S, OLD_S = 0.95e-6, 1.13e-6


class Process:
    """Young until it has aged `needed` times; `rejuvenated()` makes it young again. Its clock may be lowered."""

    def __init__(self, needed: int = 1) -> None:
        self.needed = needed
        self.aged = 0
        self.clock_hz = CLOCK_HZ

    def node(self) -> tuple[float, float]:
        seconds = OLD_S if self.aged >= self.needed else YOUNG_S
        return seconds * CLOCK_HZ / self.clock_hz, self.clock_hz

    def age(self) -> None:
        self.aged += 1

    def rejuvenated(self) -> None:
        self.aged = 0


def marks_of(launching: Launching, process: Process, meanwhile: Iterator[None] | None = None) -> set[str]:
    """What `watched` says of a stretch in which `meanwhile` runs."""
    marks: set[str] = set()
    with launching.watched(marks):
        for _ in meanwhile or ():
            pass
    return marks


def test_a_young_process_is_aged_before_it_is_timed() -> None:
    """The first look finds the node as slow as in a process that has used its second stream."""
    process = Process()
    launching = Launching(process.node, process.age)
    assert launching.steady() == OLD_S * CLOCK_HZ
    assert launching.node_s == OLD_S


def test_a_process_that_is_young_again_is_aged_again() -> None:
    """What was old and has become young is brought back before the next samples, however many tries that takes."""
    process = Process()
    launching = Launching(process.node, process.age)
    launching.steady()
    process.rejuvenated()
    process.needed = 3
    assert launching.steady() == OLD_S * CLOCK_HZ
    assert process.aged == 3


def test_a_steady_process_is_left_alone() -> None:
    """A second look at an old process ages nothing and gives no mark."""
    process = Process()
    launching = Launching(process.node, process.age)
    launching.steady()
    assert marks_of(launching, process) == set()
    assert process.aged == 1


def test_a_change_during_the_samples_is_marked() -> None:
    """Samples that began old and ended young are marked, and `node_s` is what it was at their beginning."""
    process = Process()
    launching = Launching(process.node, process.age)

    def turns_young() -> Iterator[None]:
        process.rejuvenated()
        yield

    assert marks_of(launching, process, turns_young()) == {"launching_moved"}
    assert launching.node_s == OLD_S


def test_a_lower_clock_is_no_other_state() -> None:
    """A board whose clock falls by a third takes as many cycles for a node: no mark, and nothing is aged."""
    process = Process()
    launching = Launching(process.node, process.age)
    launching.steady()

    def throttles() -> Iterator[None]:
        process.clock_hz = CLOCK_HZ * 2 / 3
        yield

    assert marks_of(launching, process, throttles()) == set()
    process.clock_hz = CLOCK_HZ
    launching.steady()
    assert process.aged == 1


def test_a_process_that_never_ages_does_not_hold_up_the_run() -> None:
    """Where working on another stream changes nothing, the state that there is counts."""
    process = Process(needed=10**9)
    launching = Launching(process.node, process.age)
    assert launching.steady() == YOUNG_S * CLOCK_HZ
    launching.steady()
    assert process.aged == 1
