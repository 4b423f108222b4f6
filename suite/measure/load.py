"""A load without pauses: a launch over and over, with more of it queued while the board is read.

Asking a board for clock, power and reasons takes milliseconds. If the device waited meanwhile, it would stay below
its power limit and settle at a clock that it cannot hold under the load itself.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from gemmgate.suite.measure.timed import Timed

BATCH_S = 5e-3
"""About how long one batch lasts, where the caller needs less than that in between."""
_SLACK = 1.5
_LONGEST_S = 0.1


class Load:
    """Called again and again: queues a batch and waits for the one before it; returns how many calls have then ended.

    A batch lasts longer than the caller needed between the last two calls, so the device always has one.
    """

    def __init__(self, timed: Timed, device: torch.device, now: Callable[[], float] = time.perf_counter) -> None:
        self._timed = timed
        self._is_gpu = device.type == "cuda"
        self._now = now
        self._queued: deque[tuple[Any, int]] = deque()
        self._returned = now()

    def __call__(self) -> int:
        away_s = self._now() - self._returned
        batch_s = min(max(BATCH_S, _SLACK * away_s), _LONGEST_S)
        together = max(1, round(batch_s / self._timed.launch_s))
        most = self._timed.most_repeats
        together = min(together, most or together)
        for _ in range(together):
            self._timed.launch.enqueue()
        if not self._is_gpu:  # it is done when the call returns
            self._returned = self._now()
            return together * self._timed.launch.calls
        event = torch.cuda.Event()
        event.record()
        self._queued.append((event, together))
        ended = 0
        while len(self._queued) > 1:
            first, count = self._queued.popleft()
            first.synchronize()
            ended += count
        self._returned = self._now()
        return ended * self._timed.launch.calls
