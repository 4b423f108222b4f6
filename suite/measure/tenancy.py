"""Who else computes on the CPU: seconds of all processes beside our own, and whether they took cores that we use."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil

_NOT_SPENT = ("idle", "iowait", "guest", "guest_nice")
"""What the system counts that nobody computes, or that it counts twice."""
_LEAST_S = 0.1
"""The system counts in hundredths of a second: over less time than this nothing can be said."""
_MUCH = 0.1
"""Of the cores that we use, so much taken by others shows in a time."""


@dataclass(frozen=True)
class Spent:
    """Seconds since some fixed moment: of the clock, of all cores together, and those of this process."""

    clock_s: float
    all_s: float
    own_s: float

    @classmethod
    def read(cls) -> Spent:
        """As they are now."""
        everybody = psutil.cpu_times()._asdict()
        own = psutil.Process().cpu_times()
        all_s = sum(seconds for name, seconds in everybody.items() if name not in _NOT_SPENT)
        return cls(time.perf_counter(), all_s, own.user + own.system)


def is_busy(begin: Spent, end: Spent, threads: int, cores: int) -> bool:
    """Whether others used more of the `cores` than are free beside our `threads`, by a tenth of these, on average."""
    clock_s = end.clock_s - begin.clock_s
    if clock_s < _LEAST_S:
        return False
    others = (end.all_s - begin.all_s - (end.own_s - begin.own_s)) / clock_s
    return others > max(cores - threads, 0) + _MUCH * threads
