"""What compilers are asked for, the most urgent first. Pure: `pool` adds the processes."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Hashable
from typing import Any


class Requests:
    """Requests by key, each of which is taken once, in the order of their priorities, smallest first.

    Cases are numbered, and what a case needs has a priority from its number up. What the case under way waits for
    is less than its number plus one. Most of what is asked for is a guess, so it may still be here when somebody
    waits for it, who then asks again, or when its case has gone by.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Hashable]] = []
        self._order = itertools.count()
        self._waiting: dict[Hashable, tuple[float, dict[str, Any]]] = {}
        self._taken: set[Hashable] = set()
        self._front = math.inf

    def add(self, key: Hashable, priority: float, request: dict[str, Any]) -> bool:
        """Whether this changed anything: not where it was taken, or waits with a priority as urgent."""
        if key in self._taken or (key in self._waiting and self._waiting[key][0] <= priority):
            return False
        self._waiting[key] = priority, request
        heapq.heappush(self._heap, (priority, next(self._order), key))
        return True

    def advance(self, index: int) -> None:
        """The case of this number is under way: what is still here of a smaller priority is forgotten."""
        self._front = index + 1
        self._waiting = {key: asked for key, asked in self._waiting.items() if asked[0] >= index}

    def has(self, *, urgent: bool) -> bool:
        """Whether there is one; with `urgent`, one that the case under way needs, or any where none is under way."""
        while self._heap and self._is_stale(*self._heap[0]):
            heapq.heappop(self._heap)
        return bool(self._heap) and not (urgent and self._heap[0][0] >= self._front)

    def take(self, *, urgent: bool) -> tuple[Hashable, dict[str, Any]]:
        """The first of those that `has` tells of; there must be one."""
        if not self.has(urgent=urgent):
            raise LookupError("nothing is asked for")
        _, _, key = heapq.heappop(self._heap)
        self._taken.add(key)
        return key, self._waiting.pop(key)[1]

    def _is_stale(self, priority: float, order: int, key: Hashable) -> bool:
        """Whether it was taken or forgotten, or is here with another priority."""
        return key not in self._waiting or self._waiting[key][0] != priority
