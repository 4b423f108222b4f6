"""The survey where one process at a time may hold the device: all items of the baseline, then all of the candidate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.catalog import Item
from gemmgate.suite.survey import Survey, Surveyed, known_of, pinned_tile
from gemmgate.suite.turns import Alone, Turns


@dataclass
class SurveyInTurns(Survey):
    """As `Survey`, whose words it uses; a baseline is made ready for visits before the candidate is looked at."""

    _: KW_ONLY
    alone: Alone

    def run(self) -> Iterator[Surveyed]:
        """An item is through once the candidate is; a worker that dies costs its item a second try in a fresh one."""
        self._turns = self._pair = Turns(self.start, self.alone, lambda worker: None)
        self._ready = {}
        baselines = [item for item in self.plan.items if item.path not in self.fresh]
        count = len(baselines) + len(self.plan.items)
        facts: dict[str, dict[str, Any]] = {}
        try:
            self.progress.block(0, 1)
            if baselines:
                self._turns.take(BASELINE)
                self._turns.import_next(CANDIDATE)
            for index, item in enumerate(baselines):
                self.progress.item(item.path, index, count)
                facts[item.path] = self._baseline(item)
            self._turns.take(CANDIDATE)
            for index, item in enumerate(self.plan.items, len(baselines)):
                self.progress.item(item.path, index, count)
                yield self._candidate(item, facts.get(item.path))
        finally:
            self._turns.end()

    def _replace(self, side: str) -> None:
        self._turns.take(side)

    def _baseline(self, item: Item) -> dict[str, Any]:
        """Facts, whose status says where it could not be made ready."""
        found = self._tried(item, BASELINE, self._right)
        if "status" not in found:
            found |= self._tried(item, BASELINE, partial(self._mount, {BASELINE: found}, found["tile"]))
        return found

    def _candidate(self, item: Item, baseline: dict[str, Any] | None) -> Surveyed:
        found = self._tried(item, CANDIDATE, self._right)
        facts = {CANDIDATE: found} if baseline is None else {BASELINE: baseline, CANDIDATE: found}
        if baseline is None or "status" in baseline or "status" in found:
            return self._surveyed(item, facts, None)
        tile = pinned_tile(facts)
        found |= self._tried(item, CANDIDATE, partial(self._mount, facts, tile))
        return self._surveyed(item, facts, None if "status" in found else known_of(facts, tile))
