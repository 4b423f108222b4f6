"""Workers of one block, one a side, on one device: started early, asked in turn or all at once, ended together."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.catalog import Item
from gemmgate.suite.workers import Worker, WorkerLost

SIDES = (BASELINE, CANDIDATE)
EDITED = "edited"
"""A third side, of a checkout with one known edit: its visits are those of a candidate."""


@dataclass(frozen=True)
class LaunchSide:
    """How the workers of one side are started: the checkout to measure, by default this one, and the interpreter."""

    overlay: Path | None = None
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""

    def start(self, device: str, suites: Sequence[Path], modules: Sequence[tuple[str, str]]) -> Worker:
        """A worker that imports and waits; `modules` are (family, implementation)."""
        return Worker(
            device,
            overlay=self.overlay,
            suites=suites,
            python=self.python,
            environment=self.environment,
            warm=True,
            modules=modules,
        )


class Fault(Exception):
    """One side has no value; `fatal` says that its worker is gone too."""

    def __init__(self, side: str, outcome: Mapping[str, Any]) -> None:
        super().__init__(f"{outcome['status']} ({outcome['reason']}) of the {side}: {outcome.get('detail', '')}")
        self.side = side
        self.outcome = {key: outcome.get(key, "") for key in ("status", "reason", "detail")}
        self.fatal = bool(outcome.get("fatal"))


class ItemFault(Exception):
    """A `Fault` and the item it belongs to."""

    def __init__(self, item: Item, fault: Fault) -> None:
        super().__init__(str(fault))
        self.item = item
        self.fault = fault


class Pair:
    """A fresh worker of each side. Whatever a worker answers but `ok` is a `Fault` that names the side.

    They start in `order`, which has the edited side where it takes part.
    """

    def __init__(self, start: Callable[[str], Worker], order: Sequence[str]) -> None:
        self.workers: dict[str, Worker] = {}
        self.is_met = False
        self.mounted: set[str] = set()
        """What its workers hold ready, by path."""
        self._is_greeted = False
        try:
            for side in order:
                self.workers[side] = start(side)
        except BaseException:
            self.end()
            raise

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self.workers.values()]

    def greet(self, beside: Iterable[int] = ()) -> None:
        """Lets all take the device, and does not wait; `beside` are processes besides themselves that are no strangers.

        Only the first call counts. Raises what `Worker.greet` raises, with all ended.
        """
        if self._is_greeted:
            return
        pids = list(dict.fromkeys([*self.pids, *beside]))
        self._is_greeted = True
        try:
            for worker in self.workers.values():
                worker.greet(beside=pids)
        except BaseException:
            self.end()
            raise

    def meet(self) -> None:
        """Waits until all have taken the device. Raises what `Worker.meet` raises, with all ended."""
        if self.is_met:
            return
        self.greet()
        try:
            for worker in self.workers.values():
                worker.meet()
        except BaseException:
            self.end()
            raise
        self.is_met = True

    def ask(self, side: str, op: str, deadline_s: float, **fields: Any) -> dict[str, Any]:
        """The reply of one side."""
        self._post(side, op, deadline_s, fields)
        return self._collect(side)

    def ask_both(self, op: str, deadline_s: float, **fields: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """The replies by side, to requests with `fields` by side. All of them work at the same time."""
        replies, faults = self.ask_each(op, deadline_s, **fields)
        for fault in faults.values():
            raise fault
        return replies

    def ask_each(
        self, op: str, deadline_s: float, **fields: Mapping[str, Any]
    ) -> tuple[dict[str, dict[str, Any]], dict[str, Fault]]:
        """As `ask_both`, with the faults by side: that of one hides no reply of another."""
        replies: dict[str, dict[str, Any]] = {}
        faults: dict[str, Fault] = {}
        sides = [side for side in self.workers if side in fields]
        for side in sides:
            try:
                self._post(side, op, deadline_s, fields[side])
            except Fault as fault:
                faults[side] = fault
        for side in [side for side in sides if side not in faults]:
            try:
                replies[side] = self._collect(side)
            except Fault as fault:
                faults[side] = fault
        return replies, faults

    def stop(self) -> None:
        """Sends all the signal to end; `end` waits until they have."""
        for worker in self.workers.values():
            worker.stop()

    def end(self) -> None:
        """Kills all."""
        self.stop()
        for worker in self.workers.values():
            worker.kill()

    def _post(self, side: str, op: str, deadline_s: float, fields: Mapping[str, Any]) -> None:
        try:
            self.workers[side].post(op, deadline_s, **fields)
        except WorkerLost as lost:
            raise _gone(side, lost) from lost

    def _collect(self, side: str) -> dict[str, Any]:
        try:
            reply = self.workers[side].collect()
        except WorkerLost as lost:
            raise _gone(side, lost) from lost
        if not reply.get("ok"):
            raise Fault(side, reply)
        return reply


def _gone(side: str, lost: WorkerLost) -> Fault:
    return Fault(side, {"status": lost.status, "reason": lost.reason, "detail": str(lost), "fatal": True})
