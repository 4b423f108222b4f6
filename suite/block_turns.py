"""A block whose workers take turns: all items of one side's visit in one process, then the other side's.

Three processes a block instead of two, or five with an edited side, one after the other. The two outer visits of an
item thus come from two launches, and between its visits lie those of all others; as every turn takes the items in the
same order, and the turns are the same read backwards, a linear drift still cancels.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gemmgate.suite.block_values import BASELINE, CANDIDATE, IN_TURNS, SPOILED, phase_of
from gemmgate.suite.block_visits import (
    FEW_REPLAYS,
    LEAST_FREE,
    MANY_CALLS,
    MANY_REPLAYS,
    SETTLE_LONG_S,
    VISITS_AGAIN,
    WARM_S,
    Known,
    Step,
    Visitor,
    sequences,
)
from gemmgate.suite.catalog import Item
from gemmgate.suite.loop import CHECK_DEADLINE_S, PREPARE_DEADLINE_S, SAMPLE_DEADLINE_S
from gemmgate.suite.pairs import EDITED, SIDES, Fault
from gemmgate.suite.records import Row
from gemmgate.suite.turns import Turns, order

_Place = tuple[int, Step]
"""Which sequence of a block, and which of its steps."""
_Found = dict[_Place, list[dict[str, Any]]]
_GiveUp = Callable[[Item, Fault], bool]
"""Told of a fault: whether the item is given up, or on that side."""


class VisitorInTurns(Visitor):
    """Visits all items for one side at a time, and learns in a side's first turn what later ones need."""

    def block(
        self,
        turns: Turns,
        items: Sequence[Item],
        block: int,
        following: Sequence[int],
        give_up: _GiveUp,
        at: Callable[[str, int, int], None],
    ) -> Iterator[list[Row]]:
        """The rows of each item, once its last visit is made. `at` is told of each item's path, its place, and how many
        there are, over all turns.
        """
        edited = any(EDITED in self.sides_of(item) for item in items)
        sides = order(block, edited=edited)
        after = order(following[0], edited=edited)[0] if following else ""
        found: dict[str, _Found] = {item.path: defaultdict(list) for item in items}
        left = list(items)
        for turn, side in enumerate(sides):
            is_first = turn == 0 or side != sides[turn - 1]
            if is_first:
                self._take(turns, side)
                turns.import_next(next((coming for coming in sides[turn + 1 :] if coming != side), after))
            for item in [item for item in left if side in self.sides_of(item)]:
                at(item.path, turn * len(items) + items.index(item), len(sides) * len(items))
                steps = self._steps(item, block, side, turn, len(sides))
                if self._free_share < LEAST_FREE and item.path not in turns.mounted:
                    self._drop(turns, side)
                visits = self._tried(turns, item, block, side, steps, give_up, is_first=is_first)
                is_first = False
                if visits is None and side != EDITED:
                    left.remove(item)
                elif visits is not None:
                    for place, made in visits.items():
                        found[item.path][place] += made
                if turn == len(sides) - 1 and item in left:
                    yield self._rows(turns, item, block, found[item.path])
        turns.leave()

    def _take(self, turns: Turns, side: str) -> None:
        self._free_share = 1.0
        with self._spent.on("start"):
            turns.take(side)

    def _drop(self, turns: Turns, side: str) -> None:
        """Frees what the items before held; what comes of a worker that cannot is for the next request to say."""
        turns.mounted.clear()
        self._free_share = 1.0
        with suppress(Fault):
            turns.ask(side, "drop", CHECK_DEADLINE_S)

    def _steps(self, item: Item, block: int, side: str, turn: int, count: int) -> list[_Place]:
        """Of each sequence the first half in the first half of the turns, then the second."""
        steps = []
        found = sequences(block, self._plan.levels_of(block), edited=EDITED in self.sides_of(item))
        for index, sequence in enumerate(found):
            half = len(sequence) // 2
            visits = sequence[:half] if 2 * turn < count else sequence[half:]
            steps += [(index, step) for step in visits if step[0] == side]
        return steps

    def _tried(
        self,
        turns: Turns,
        item: Item,
        block: int,
        side: str,
        steps: Sequence[_Place],
        give_up: _GiveUp,
        *,
        is_first: bool,
    ) -> _Found | None:
        """An item's visits of one turn; None where it is given up. A lost worker is replaced by one of its side."""
        while True:
            try:
                known = self._ready(turns, item, side, block)
                return self._visited(turns, item, block, side, steps, known, is_first=is_first)
            except Fault as fault:
                is_given_up = give_up(item, fault)
                if fault.fatal:
                    self._take(turns, side)
                    is_first = True
                if is_given_up:
                    return None

    def _ready(self, turns: Turns, item: Item, side: str, block: int) -> Known:
        """Prepared and mounted, if it is not; checked too in the first turn of its side."""
        known = self._known.setdefault(item.path, Known({}))
        if item.path in turns.mounted:
            return known
        facts = known.facts.get(side, {})
        is_new = "passes" not in facts
        with self._spent.on("prepare"):
            prepared = turns.ask(side, "prepare", PREPARE_DEADLINE_S, **self._prepared(item, facts.get("tile")))
        if is_new:
            with self._spent.on("check"):
                prepared |= turns.ask(side, "check", CHECK_DEADLINE_S, implementation=item.implementation)
        levels = [f"{level:g}" for level in (self._plan.levels if is_new else self._plan.levels_of(block))]
        with self._spent.on("mount"):
            mounted = turns.ask(
                side,
                "mount",
                CHECK_DEADLINE_S,
                implementation=item.implementation,
                cache=self._plan.cache,
                item=item.path,
                again=not is_new,
                passes=known.passes or None,
                extras={level: known.extras.get(level) for level in levels} if side == CANDIDATE else {},
            )
        turns.mounted.add(item.path)
        self._free_share = mounted["free_share"]
        if is_new:
            known.facts[side] = {**prepared, **mounted}
            known.passes = mounted["passes"]
            known.replays = known.replays or (FEW_REPLAYS if mounted["calls"] >= MANY_CALLS else MANY_REPLAYS)
            if side == CANDIDATE:
                known.extras = mounted["extras"]
        return known

    def _visited(
        self, turns: Turns, item: Item, block: int, side: str, steps: Sequence[_Place], known: Known, *, is_first: bool
    ) -> _Found:
        self._learn(known, self._settled(turns, item, side, self._least_s(known, is_first=is_first)))
        self._lead(turns, item, side)
        asked = {"item": item.path, "replays": known.replays, "warm_s": WARM_S if known.power_limited else 0.0}
        for again in range(VISITS_AGAIN + 1):
            visits: _Found = defaultdict(list)
            with self._spent.on("visits"):
                for place in steps:
                    level = place[1][1]
                    visits[place].append(turns.ask(side, "visit", SAMPLE_DEADLINE_S, **asked, level=level))
            spoiled = {mark for made in visits.values() for visit in made for mark in visit["marks"]} & {*SPOILED}
            if not spoiled or again == VISITS_AGAIN:
                break
            self._fault(item.path, f"block {block}: {' and '.join(sorted(spoiled))}, so visited again")
            self._settled(turns, item, side, SETTLE_LONG_S)
            self._lead(turns, item, side)
        return visits

    def _settled(self, turns: Turns, item: Item, side: str, least_s: float) -> Mapping[str, Any]:
        with self._spent.on("settle"):
            return turns.ask(side, "settle", SAMPLE_DEADLINE_S, item=item.path, least_s=least_s)

    def _rows(self, turns: Turns, item: Item, block: int, found: _Found) -> list[Row]:
        """A baseline and a candidate for each thing it was compared with."""
        known, rows = self._known[item.path], []
        edited = EDITED in self.sides_of(item)
        for index, sequence in enumerate(sequences(block, self._plan.levels_of(block), edited=edited)):
            base = found[index, (BASELINE, 0.0)]
            for side, level in dict.fromkeys(step for step in sequence if step[0] != BASELINE):
                visit = uuid.uuid4().hex[:12]
                phases = {name: phase_of(block, name, level, edited=side == EDITED) for name in SIDES}
                facts = {
                    BASELINE: (BASELINE, self._in_turns(BASELINE, base, known)),
                    CANDIDATE: (side, self._in_turns(side, found[index, (side, level)], known)),
                }
                rows += [self._row(turns, item, phases[name], *facts[name], visit) for name in SIDES]
        return rows

    def _in_turns(self, side: str, visits: Sequence[Mapping[str, Any]], known: Known) -> dict[str, Any]:
        facts = self._facts(side, visits, known)
        return {**facts, "marks": facts["marks"] | {IN_TURNS}}
