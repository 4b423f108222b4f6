"""How wide searches may be so that all of them begin within the seconds that were given. Pure."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import replace

from gemmgate.suite.tuning.racing import Rules

FIXED_S, WIDTH_S = 1.1, 0.7
"""A search takes about so long whatever its width, and so much more by the usual rules, before any was taken."""
WIDTHS = (0.25, 3.0)
"""Times the candidates of the usual rules: the narrowest and the widest search."""
LATELY = 8
"""Searches that say how long the next will take."""
_ONE_JOIN = 0.4
"""Narrower searches let tiles join once: each time waits for compilers."""


class Pace:
    """Learns from the searches so far how long one of a width takes.

    The first does not count: it bears what processes do once.
    """

    def __init__(self) -> None:
        self._is_first = True
        self._factors: deque[float] = deque(maxlen=LATELY)

    def took(self, width: float, seconds: float) -> None:
        """What a search of that width took."""
        if not self._is_first:
            self._factors.append(seconds / _foreseen_s(width))
        self._is_first = False

    def expected_s(self, width: float) -> float:
        """What the next one of that width will take."""
        return (statistics.fmean(self._factors) if self._factors else 1.0) * _foreseen_s(width)

    def width(self, left_s: float, count: int) -> float:
        """Of each of `count` searches that are to begin within `left_s`, one usual search kept in reserve."""
        share_s = (left_s - self.expected_s(1.0)) / max(count, 1)
        wanted = (share_s / (self.expected_s(1.0) / _foreseen_s(1.0)) - FIXED_S) / WIDTH_S
        return min(max(wanted, WIDTHS[0]), WIDTHS[1])


def rules_of(width: float) -> Rules:
    """The usual rules with so many times the candidates."""
    usual = Rules()
    joins = usual.joins if width >= _ONE_JOIN else 1
    joining = round(usual.joins * usual.joining * width / joins)
    return replace(usual, first=max(1, round(usual.first * width)), joins=joins, joining=joining)


def _foreseen_s(width: float) -> float:
    return FIXED_S + width * WIDTH_S
