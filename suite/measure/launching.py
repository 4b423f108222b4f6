"""How fast a process launches: two states, one of which every process reaches that has used several streams.

In a young process the step from one kernel of a graph to the next takes some 0.2 to 0.4 us less than later, in
every graph, also those captured before; what changes it is work on another stream, some five times, but not always:
one process in some hundreds stays young, or becomes so again. A program that serves a model is past that. So a worker
looks as soon as it has a device, goes to the old state before it times anything, and looks whether it has come there
and stayed: what a graph of next to nothing takes for a node tells the states apart. docs/findings says how that was
found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import torch

from gemmgate.suite.measure.clock import ClockProbe, EventClock
from gemmgate.suite.measure.graph import capture, capture_stream
from gemmgate.suite.measure.sampler import Clock, Finish, Launch, time_launches
from gemmgate.suite.records import STATES_APART

NODES = 128
_NEAR = 0.03
"""Within this share looks into one state agree."""
_REPLAYS = 5
_FIRST_LOOKS = 3
_SWITCHES = 16
_TRIES = 6
_RETAKEN = 3
_SAME_CLOCK = 0.01


class Launching:
    """Keeps a worker in the old state.

    `node` gives seconds of a node, and the SM clock in hertz where that was the same before and after; `age` works on
    another stream; `sentinel` is the launch of `NODES` nodes that tells the state of what was timed just before it.
    """

    def __init__(
        self, node: Callable[[], tuple[float, float | None]], age: Callable[[], None], sentinel: Callable[[], Launch]
    ) -> None:
        self._node = node
        self._age = age
        self._sentinel = sentinel
        self._cycles = self._highest_hz = self._young_cycles = self._clock_hz = 0.0
        self._is_at_end = False
        self.node_s: float | None = None
        """Seconds of a node when it was looked at last."""
        self.moved = 0
        """How often launches were in the young state."""

    def is_young(self, node_s: float) -> bool:
        """Whether a node is faster than the old state allows at the clock that was read last.

        A lower clock makes a node slower, at most in proportion: a young one may take up to its own time over the
        share of the highest clock, an old one never less than at that.
        """
        if not self._highest_hz:
            return False
        old_s = self._cycles / self._highest_hz
        slowed_s = self._young_cycles / self._clock_hz if self._has_aged else 0.0
        return node_s < min(max((1 - STATES_APART) * old_s, (1 + _NEAR) * slowed_s), (1 - _NEAR) * old_s)

    def begin(self) -> None:
        """Looks before anything works on another stream, so that it is known what a node takes in the young state."""
        if not self._young_cycles:
            self._young_cycles = max(self._look() for _ in range(_FIRST_LOOKS))

    def steady(self) -> None:
        """Ages until a node takes what it takes in the old state. What ages no further counts as old."""
        self.begin()
        for _ in range(_TRIES):
            self._look()
            if self._is_old:
                return
            self._age()
        self._cycles = self._look() or self._cycles
        self._is_at_end = True

    def start(self, clock: Clock, launches: Sequence[Launch]) -> Finish:
        """As `clock.start`, with the sentinel behind; what was in the young state is taken again in the old one."""
        queued = [*launches, self._sentinel()]
        first = clock.start(queued)

        def finish() -> list[float]:
            *seconds, sentinel_s = first()
            for _ in range(_RETAKEN):
                if not self.is_young(sentinel_s / NODES):
                    break
                self.moved += 1
                self.steady()
                *seconds, sentinel_s = clock.start(queued)()
            return seconds

        return finish

    @property
    def _has_aged(self) -> bool:
        """Whether a node once took longer than at the beginning."""
        return self._cycles * (1 - STATES_APART) > self._young_cycles > 0

    @property
    def _is_old(self) -> bool:
        return (self._has_aged or self._is_at_end) and not self.is_young(self.node_s or 0.0)

    def _look(self) -> float:
        """Cycles of a node, 0 where the clock changed meanwhile."""
        self.node_s, clock_hz = self._node()
        if clock_hz is None:
            return 0.0
        self._clock_hz = clock_hz
        self._cycles = max(self._cycles, self.node_s * clock_hz)
        self._highest_hz = max(self._highest_hz, clock_hz)
        return self.node_s * clock_hz


@cache
def of_device(index: int) -> Launching:
    """That of this process on a GPU, made once; nothing touches the device before it is first asked."""
    return Launching(partial(_node, index), partial(_age, index), lambda: _nodes(index)[2])


@cache
def _one(index: int) -> torch.Tensor:
    return torch.zeros(1, device=torch.device("cuda", index))


@cache
def _nodes(_index: int) -> tuple[ClockProbe, EventClock, Launch]:
    """Of kernels that touch no memory: where a tensor lies makes those that do a tenth faster or slower."""
    captured = capture([lambda: torch.cuda._sleep(0)], passes=NODES)
    launch = Launch(lambda: captured.replay(1), captured.calls, captured.host_s)
    return ClockProbe(), EventClock("graph"), launch


def _node(index: int) -> tuple[float, float | None]:
    probe, clock, launch = _nodes(index)
    before_hz = probe.read()
    # The least: a replay may have waited for another process, and none is faster than its state.
    node_s = min(time_launches(clock, [launch] * _REPLAYS)) / launch.calls
    after_hz = probe.read()
    return node_s, after_hz if abs(after_hz - before_hz) <= _SAME_CLOCK * after_hz else None


def _age(index: int) -> None:
    one, stream = _one(index), capture_stream(index)
    for _ in range(_SWITCHES):
        with torch.cuda.stream(stream):
            one.add_(1)
        torch.cuda.synchronize()
        one.add_(1)
        torch.cuda.synchronize()
