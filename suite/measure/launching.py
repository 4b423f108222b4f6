"""How fast a process launches: two states, one of which every process reaches that has used several streams.

In a young process the step from one kernel of a graph to the next takes some 0.2 to 0.4 us less than later, in
every graph, also those captured before; what changes it is work on another stream, some five times. A program that
serves a model is past that. So a worker goes there before it times anything, and looks whether it has stayed there:
what a graph of next to nothing takes for a node tells the states apart. docs/findings says how that was found.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial

import torch

from gemmgate.suite.measure.clock import ClockProbe, EventClock
from gemmgate.suite.measure.graph import capture, capture_stream
from gemmgate.suite.measure.sampler import Launch, time_launches

NODES = 128
_REPLAYS = 5
_SWITCHES = 16
SAME = 0.04
"""Cycles of a node that differ by no more than this share belong to one state; the states are over 0.1 apart."""
_TRIES = 8


class Launching:
    """Keeps a worker in the state in which launches are slow. `node` gives seconds of a node and the SM clock in hertz
    at which it ran, `age` works on another stream.
    """

    def __init__(self, node: Callable[[], tuple[float, float]], age: Callable[[], None]) -> None:
        self._node = node
        self._age = age
        self._most_cycles = 0.0
        self.node_s: float | None = None
        """Seconds of a node when it was looked at last before something was timed."""

    def steady(self) -> float:
        """Ages until a node takes as many cycles as in the slowest state seen so far; returns these."""
        if not self._most_cycles:
            self._age()
        for _ in range(_TRIES):
            cycles = self._look()
            if cycles >= (1 - SAME) * self._most_cycles:
                break
            self._age()
        return cycles

    @contextmanager
    def watched(self, marks: set[str]) -> Iterator[None]:
        """Steady at the beginning; adds `launching_moved` to `marks` where it is not what it was at the end."""
        begin_cycles = self.steady()
        begin_s = self.node_s
        yield
        end_cycles = self._look()
        self.node_s = begin_s
        if abs(end_cycles - begin_cycles) > SAME * max(end_cycles, begin_cycles):
            marks.add("launching_moved")

    def _look(self) -> float:
        self.node_s, clock_hz = self._node()
        cycles = self.node_s * clock_hz
        self._most_cycles = max(self._most_cycles, cycles)
        return cycles


@cache
def of_device(index: int) -> Launching:
    """That of this process on a GPU, made once; nothing touches the device before it is first asked."""
    return Launching(partial(_node, index), partial(_age, index))


@cache
def _one(index: int) -> torch.Tensor:
    return torch.zeros(1, device=torch.device("cuda", index))


@cache
def _nodes(index: int) -> tuple[ClockProbe, EventClock, Launch]:
    one = _one(index)
    captured = capture([lambda: one.add_(1)], passes=NODES)
    launch = Launch(lambda: captured.replay(1), captured.calls, captured.host_s)
    return ClockProbe(), EventClock("graph"), launch


def _node(index: int) -> tuple[float, float]:
    probe, clock, launch = _nodes(index)
    return statistics.median(time_launches(clock, [launch] * _REPLAYS)) / launch.calls, probe.read()


def _age(index: int) -> None:
    one, stream = _one(index), capture_stream(index)
    for _ in range(_SWITCHES):
        with torch.cuda.stream(stream):
            one.add_(1)
        torch.cuda.synchronize()
        one.add_(1)
        torch.cuda.synchronize()
