"""How wide searches may be so that all of them begin within the seconds that were given. Pure."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import replace

from gemmgate.suite.tuning.racing import Rules

FIXED_S, WIDTH_S = 1.1, 0.7
"""A search takes about so long whatever its width, and so much more by the usual rules, before any was taken."""
WIDTHS = (0.4, 3.0)
"""Times the candidates of the usual rules: the narrowest and the widest search."""
LATELY = 8
"""Searches that say how long the next will take."""
_RESERVE = 3.0
"""Usual searches for which there is time beyond all shares: the last widths are settled some searches earlier."""
_JOINING = 0.6
"""Power of the width by which fewer tiles join in narrow searches. In proportion, half the usual search came to picks
1.2 % slower than the best of seven cases in the mean; so, from 2 to 4 tiles more, 0.3 %."""


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

    def fits(self, left_s: float) -> bool:
        """Whether the narrowest search may begin: it may end a little late, by less than half of what it takes."""
        return left_s >= 0.5 * self.expected_s(WIDTHS[0])

    def width(self, left_s: float, count: int) -> float:
        """Of each of `count` searches that are to begin within `left_s`, some of which is kept in reserve."""
        share_s = (left_s - _RESERVE * self.expected_s(1.0)) / max(count, 1)
        wanted = (share_s / (self.expected_s(1.0) / _foreseen_s(1.0)) - FIXED_S) / WIDTH_S
        return min(max(wanted, WIDTHS[0]), WIDTHS[1])


def rules_of(width: float) -> Rules:
    """The usual rules with so many times the candidates; of those that join, somewhat more in narrow searches."""
    usual = Rules()
    joining = round(usual.joining * max(width, width**_JOINING))
    return replace(usual, first=round(usual.first * width), joining=joining)


def _foreseen_s(width: float) -> float:
    return FIXED_S + width * WIDTH_S
