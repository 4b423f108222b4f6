"""Workers that take turns on a device which admits one context at a time: one holds it, the next one imports.

To a `Visitor` or a survey these are a `Pair`, of which only the side whose turn it is can be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gemmgate.suite.block_values import is_mirrored
from gemmgate.suite.pairs import EDITED, SIDES, Pair
from gemmgate.suite.workers import Worker

Alone = Callable[[], None]
"""Returns once no process holds the device; raises `CannotMeasureError` where one stays."""


def order(block: int, *, edited: bool) -> list[str]:
    """Whose turn it is in a block, to go through all items: the same read backwards, so that all sides' visits have one
    middle in time. Turns of one side that follow each other share a process: A B B A takes three.
    """
    half = [*SIDES, EDITED] if edited else [*SIDES]
    if is_mirrored(block):
        half = [*half[1:], half[0]]
    return [*half, *half[::-1]]


class Turns(Pair):
    """`workers` has the newest worker of each side: what it said of machine and stack stays when it has ended.

    `met` is told of every worker that has taken the device.
    """

    def __init__(self, start: Callable[[str], Worker], alone: Alone, met: Callable[[Worker], None]) -> None:
        super().__init__(start, ())
        self._begin = start
        self._alone = alone
        self._told = met
        self._next: tuple[str, Worker] | None = None
        self._holder: tuple[str, Worker] | None = None

    def take(self, side: str) -> Worker:
        """A fresh worker of that side takes the device, once the one before has left it."""
        self.leave()
        if self._next and self._next[0] != side:
            self._next[1].kill()
            self._next = None
        worker = self._next[1] if self._next else self._begin(side)
        self._next, self._holder = None, (side, worker)
        self._alone()
        worker.greet()
        worker.meet()
        self.workers[side] = worker
        self._told(worker)
        return worker

    def import_next(self, side: str) -> None:
        """Starts the worker whose turn comes next, if any: it imports meanwhile and leaves the device alone."""
        if side and self._next is None:
            self._next = side, self._begin(side)

    def leave(self) -> None:
        """Ends the worker that holds the device."""
        if self._holder:
            self._holder[1].kill()
        self._holder = None
        self.mounted.clear()

    def ask(self, side: str, op: str, deadline_s: float, **fields: Any) -> dict[str, Any]:
        """The reply of the side whose turn it is."""
        assert self._holder is not None and self._holder[0] == side, f"it is not the turn of the {side}"
        return super().ask(side, op, deadline_s, **fields)

    def ask_both(self, op: str, deadline_s: float, **fields: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """The reply of whoever holds the device, if any."""
        held = {side: told for side, told in fields.items() if self._holder and self._holder[0] == side}
        return super().ask_both(op, deadline_s, **held)

    def end(self) -> None:
        """Kills all."""
        if self._next:
            self._next[1].kill()
        self._next = None
        self.leave()
