"""What a block asks of its workers for one item: make it ready, settle, visit; and the rows that come of it."""

from __future__ import annotations

import statistics
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from gemmgate.suite.block_values import BASELINE, CANDIDATE, SPOILED, is_mirrored, phase_of
from gemmgate.suite.catalog import Item
from gemmgate.suite.loop import CHECK_DEADLINE_S, PREPARE_DEADLINE_S, SAMPLE_DEADLINE_S
from gemmgate.suite.outcomes import block_row
from gemmgate.suite.pairs import EDITED, SIDES, Fault, Pair
from gemmgate.suite.records import Row

FEW_REPLAYS, MANY_REPLAYS, MANY_CALLS = 4, 8, 64
"""Replays a visit: few where one holds so many calls that launches differ more than replays do."""
SETTLE_LONG_S, SETTLE_LIMITED_S, SETTLE_SHORT_S = 0.3, 0.15, 0.02
"""Load before the visits of an item: long for the first of a pair and, where energy is asked for, in its first block;
less in its first block otherwise and at the power limit, whose control answers within some hundredths of a second; and
short for all others."""
WARM_S = 0.02
"""Load at the beginning of a visit that runs at the power limit: the other side's may have let the clock rise."""
FREE_CLOCK = 0.995
"""At this share of the highest clock that anything settled at, or more, nothing holds it."""
VISITS_AGAIN = 2
LEAST_FREE = 0.5
"""Share of the device's memory below which no more items are held ready at once."""

Step = tuple[str, float]
"""A side and the slow-down that is put into its visit."""


@dataclass(frozen=True)
class BlockPlan:
    """What to measure, in blocks of which numbers.

    Items of one case should stand together: they share its inputs. With `levels`, the candidate is slowed
    down by each in turn, beside 0, in the same workers; by `levels_a_block` of them, in rotation, where
    that is not None. `edited` are paths of items that the edited side is measured on too. No block begins
    that would not end within `seconds`; the first one always does. Without `energy`, which takes longer, nobody asks
    for the joules of a call.
    """

    items: Sequence[Item]
    blocks: Sequence[int]
    cache: str
    levels: tuple[float, ...] = ()
    seed: int = 0
    data: str = "normal"
    seconds: float | None = None
    levels_a_block: int | None = None
    edited: tuple[str, ...] = ()
    energy: bool = True

    @property
    def sides(self) -> tuple[str, ...]:
        return (*SIDES, EDITED) if self.edited else SIDES

    def levels_of(self, block: int) -> tuple[float, ...]:
        """Those of a block: over as many blocks as there are levels, each has its turn equally often."""
        count = len(self.levels) if self.levels_a_block is None else min(self.levels_a_block, len(self.levels))
        return tuple(sorted(self.levels[(count * block + index) % len(self.levels)] for index in range(count)))


def sequences(block: int, levels: Sequence[float], *, edited: bool) -> list[list[Step]]:
    """The visits of an item in order, each list by itself free of a linear drift.

    First the unchanged code, A B B A or in every other block B A A B; then all levels around one pair of visits to
    the baseline; then the edited side.
    """
    mirrored = is_mirrored(block)

    def around(outer: list[Step], inner: list[Step]) -> list[Step]:
        return [*outer, *inner, *inner[::-1], *outer[::-1]]

    base: list[Step] = [(BASELINE, 0.0)]
    others: list[list[Step]] = [[(CANDIDATE, 0.0)]]
    if levels:
        others.append([(CANDIDATE, level) for level in levels])
    if edited:
        others.append([(EDITED, 0.0)])
    return [around(other, base) if mirrored else around(base, other) for other in others]


class Spent:
    """Seconds by what the parent waited for."""

    def __init__(self) -> None:
        self.by_name: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        """Counts what goes by within."""
        begin = monotonic()
        try:
            yield
        finally:
            self.by_name[name] += monotonic() - begin


@dataclass
class Known:
    """What the first block found out about an item, so that later ones measure the same thing, and faster."""

    facts: dict[str, dict[str, Any]]
    passes: int = 0
    replays: int = 0
    extras: Mapping[str, Any] = field(default_factory=dict)
    joules: float | None = None
    power_limited: bool = False
    is_settled: bool = False
    clock_hz: float | None = None
    """What it settled at where nothing held it back."""


class Visitor:
    """Makes items ready on the workers of a pair and visits them. `fault(path, sentence)` is told what went wrong."""

    def __init__(
        self,
        plan: BlockPlan,
        commits: Mapping[str, str],
        fault: Callable[[str, str], None],
        spent: Spent,
        known: dict[str, Known] | None = None,
    ) -> None:
        self._plan = plan
        self._commits = commits
        self._fault = fault
        self._spent = spent
        self._known: dict[str, Known] = {} if known is None else known
        self._highest_hz = 0.0
        self.not_edited: dict[str, str] = {}
        """Why an item is not measured on the edited side, by path."""

    def knows(self, item: Item) -> bool:
        return item.path in self._known

    def sides_of(self, item: Item) -> tuple[str, ...]:
        """The sides that an item is measured on."""
        edited = item.path in self._plan.edited and item.path not in self.not_edited
        return (*SIDES, EDITED) if edited else SIDES

    def mount(self, pair: Pair, item: Item, block: int) -> float:
        """Makes an item ready on its sides; the share of the device's memory that is then free. Raises `Fault`."""
        known = self._known.get(item.path)
        if known is None:
            known, free_share = self._mount_first(pair, item)
            self._known[item.path] = known
        else:
            free_share = self._mount_again(pair, item, known, block)
        pair.mounted.add(item.path)
        return free_share

    def visit(self, pair: Pair, item: Item, block: int, *, is_first: bool) -> list[Row]:
        """The rows of all levels, a baseline and a candidate each, of an item that is mounted. Raises `Fault`."""
        known = self._known[item.path]
        if is_first or not (known.is_settled and self._runs_free(known)):
            self._learn(known, self._settle(pair, item, self._least_s(known, is_first=is_first)))
        self._lead(pair, item, BASELINE if is_mirrored(block) else CANDIDATE)
        rows = []
        edited = EDITED in self.sides_of(item)
        for sequence in sequences(block, self._plan.levels_of(block), edited=edited):
            facts = self._visits(pair, item, block, sequence, known)
            for side, level in dict.fromkeys(step for step in sequence if step[0] != BASELINE):
                visit = uuid.uuid4().hex[:12]
                phases = {name: phase_of(block, name, level, edited=side == EDITED) for name in SIDES}
                rows += [
                    self._row(pair, item, phases[BASELINE], BASELINE, facts[BASELINE, 0.0], visit),
                    self._row(pair, item, phases[CANDIDATE], side, facts[side, level], visit),
                ]
        return rows

    def _least_s(self, known: Known, *, is_first: bool) -> float:
        """How long an item settles at least: long as the first of a pair, or to learn what a call takes of energy."""
        if is_first or (self._plan.energy and not known.is_settled):
            return SETTLE_LONG_S
        return SETTLE_LIMITED_S if known.power_limited or not known.is_settled else SETTLE_SHORT_S

    def _learn(self, known: Known, settled: Mapping[str, Any]) -> None:
        """How an item settled the first time: later blocks measure it in that way."""
        if known.is_settled:
            return
        known.joules = settled["joules"]
        known.power_limited = "power_limited" in settled["marks"]
        known.clock_hz = settled.get("sm_clock_hz") if settled["steady"] and not settled["marks"] else None
        self._highest_hz = max(self._highest_hz, known.clock_hz or 0.0)
        known.is_settled = True

    def _runs_free(self, known: Known) -> bool:
        """Whether nothing held the clock back as it settled, so that what power it draws moves no clock.

        Then it does not settle again: waiting until power is steady would change nothing.
        """
        return known.clock_hz is not None and known.clock_hz >= FREE_CLOCK * self._highest_hz

    def failed(self, pair: Pair, item: Item, block: int, fault: Fault) -> Row:
        """The row of what could not be measured."""
        return self._row(pair, item, phase_of(block, fault.side), fault.side, fault.outcome, "")

    def _mount_first(self, pair: Pair, item: Item) -> tuple[Known, float]:
        """One side after the other, since searches and the choice of passes take time; then also checked."""
        facts: dict[str, dict[str, Any]] = {}
        sides = self.sides_of(item)
        for side in sides:
            with self._spent.on("prepare"):
                facts[side] = pair.ask(side, "prepare", PREPARE_DEADLINE_S, **self._prepared(item, None))
            with self._spent.on("check"):
                facts[side] |= pair.ask(side, "check", CHECK_DEADLINE_S, implementation=item.implementation)
        known = Known(facts)
        mount = {"implementation": item.implementation, "cache": self._plan.cache, "item": item.path}
        with self._spent.on("mount"):
            mounted = pair.ask(BASELINE, "mount", CHECK_DEADLINE_S, **mount)
            known.passes = mounted["passes"]
            known.replays = FEW_REPLAYS if mounted["calls"] >= MANY_CALLS else MANY_REPLAYS
            facts[BASELINE] |= mounted
            for side in sides[1:]:
                levels = self._plan.levels if side == CANDIDATE else ()
                extras = {f"{level:g}": None for level in levels}
                facts[side] |= pair.ask(side, "mount", CHECK_DEADLINE_S, **mount, passes=known.passes, extras=extras)
        known.extras = facts[CANDIDATE]["extras"]
        return known, min(facts[side]["free_share"] for side in sides)

    def _mount_again(self, pair: Pair, item: Item, known: Known, block: int) -> float:
        """All sides at once: all that took time to find out is known."""
        sides = self.sides_of(item)
        with self._spent.on("prepare"):
            tiles = {side: known.facts[side].get("tile") for side in sides}
            prepared = {side: self._prepared(item, tiles[side]) for side in sides}
            pair.ask_both("prepare", PREPARE_DEADLINE_S, **prepared)
        mount = {"implementation": item.implementation, "cache": self._plan.cache, "passes": known.passes}
        levels = {f"{level:g}" for level in self._plan.levels_of(block)}
        extras = {name: extra for name, extra in known.extras.items() if name in levels}
        with self._spent.on("mount"):
            mount |= {"item": item.path, "again": True}
            asked = {side: {**mount, "extras": extras if side == CANDIDATE else {}} for side in sides}
            mounted = pair.ask_both("mount", CHECK_DEADLINE_S, **asked)
        return float(min(reply["free_share"] for reply in mounted.values()))

    def _prepared(self, item: Item, tile: Any) -> dict[str, Any]:
        return {
            "case": item.case.to_json(),
            "implementation": item.implementation,
            "seed": self._plan.seed,
            "data": self._plan.data,
            "caches": [self._plan.cache],
            "tile": tile,
            "keep": True,
        }

    def _settle(self, pair: Pair, item: Item, least_s: float) -> dict[str, Any]:
        side = next(iter(pair.workers))
        with self._spent.on("settle"):
            return pair.ask(side, "settle", SAMPLE_DEADLINE_S, item=item.path, least_s=least_s)

    def _lead(self, pair: Pair, item: Item, side: str) -> None:
        """A visit that does not count, of the side that is not the next one: so no visit comes straight from a load."""
        with self._spent.on("lead"):
            pair.ask(side, "lead", SAMPLE_DEADLINE_S, item=item.path, warm_s=SETTLE_SHORT_S)

    def _visits(
        self, pair: Pair, item: Item, block: int, sequence: Sequence[Step], known: Known
    ) -> dict[Step, dict[str, Any]]:
        """What the two visits of each step found; once more where another process or heat was in the way."""
        asked = {"item": item.path, "replays": known.replays, "warm_s": WARM_S if known.power_limited else 0.0}
        for again in range(VISITS_AGAIN + 1):
            visits: dict[Step, list[dict[str, Any]]] = defaultdict(list)
            with self._spent.on("visits"):
                for side, level in sequence:
                    visits[side, level].append(pair.ask(side, "visit", SAMPLE_DEADLINE_S, **asked, level=level))
            spoiled = {mark for found in visits.values() for visit in found for mark in visit["marks"]} & {*SPOILED}
            if not spoiled or again == VISITS_AGAIN:
                break
            self._fault(item.path, f"block {block}: {' and '.join(sorted(spoiled))}, so visited again")
            self._settle(pair, item, SETTLE_LONG_S)
            self._lead(pair, item, BASELINE if is_mirrored(block) else CANDIDATE)
        return {step: self._facts(step[0], found, known) for step, found in visits.items()}

    @staticmethod
    def _facts(side: str, visits: Sequence[Mapping[str, Any]], known: Known) -> dict[str, Any]:
        clocks = [visit["sm_clock_hz"] for visit in visits if visit["sm_clock_hz"]]
        powers = [visit["power_w"] for visit in visits if visit["power_w"]]
        marks = {mark for visit in visits for mark in visit["marks"]}
        nodes_s = [visit["node_s"] for visit in visits if visit["node_s"]]
        return {
            **known.facts[side],
            "samples_s": [seconds for visit in visits for seconds in visit["samples_s"]],
            "calls_per_sample": known.facts[BASELINE]["calls"],
            "sm_clock_hz": statistics.fmean(clocks) if clocks else None,
            "power_w": statistics.fmean(powers) if powers else None,
            "joules": known.joules,
            "node_s": min(nodes_s, default=None),
            "marks": marks | ({"power_limited"} if known.power_limited else set()),
        }

    def _row(self, pair: Pair, item: Item, phase: str, side: str, facts: Mapping[str, Any], visit: str) -> Row:
        worker = pair.workers[side]
        return block_row(
            item.family,
            item.case,
            item.implementation,
            facts,
            cache=self._plan.cache,
            data=self._plan.data,
            seed=self._plan.seed,
            flags=worker.flags[item.case.precision],
            timer="graph" if worker.target.is_gpu else "perf_counter",
            phase=phase,
            visit=visit,
            board=worker.machine.board,
            commit=self._commits.get(side, ""),
        )
