"""The loop over launch blocks: two fresh workers a block, each case visited A B B A, the next block B A A B.

The same code started twice differs by more than its samples say, so what counts as one observation is a
block: the log-ratio of one launch of the candidate to one of the baseline. While a block is measured
the workers of the next one start, up to the point where they would touch the device. A worker that dies
costs a fresh pair and a second try; a throttled or shared block is visited again; what stays so is
reported and never averaged.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gemmgate.suite.block_values import (
    BASELINE,
    CANDIDATE,
    SPOILED,
    BlockValue,
    is_mirrored,
    phase_of,
    read_phase,
    values,
)
from gemmgate.suite.catalog import Item
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.loop import CHECK_DEADLINE_S, PREPARE_DEADLINE_S, SAMPLE_DEADLINE_S
from gemmgate.suite.outcomes import block_row
from gemmgate.suite.pairs import SIDES, Fault, Pair
from gemmgate.suite.records import RETRIED, Row
from gemmgate.suite.workers import Worker

FEW_REPLAYS, MANY_REPLAYS, MANY_CALLS = 4, 10, 64
"""Replays a visit: few where one holds so many calls that launches differ more than replays do."""
SETTLE_LONG_S, SETTLE_SHORT_S = 0.3, 0.02
"""Load before the visits of an item: long for the first of a pair, the first block, and at the power limit."""
_WARM_S = 0.02
"""Load at the beginning of a visit that runs at the power limit: the other side's may have let the clock rise."""
_TRIES = 2
_VISITS_AGAIN = 2
_SPARE = 1.1


@dataclass(frozen=True)
class BlockPlan:
    """What to measure, in blocks of which numbers.

    Items of one case should stand together: they share its inputs. With `levels`, the candidate is
    slowed down by each in turn, beside 0, in the same workers. No block begins that would not end
    within `seconds`; the first one always does.
    """

    items: Sequence[Item]
    blocks: Sequence[int]
    cache: str
    levels: tuple[float, ...] = ()
    seed: int = 0
    data: str = "normal"
    seconds: float | None = None


class BlockProgress(Protocol):
    """Told what happens, as it happens."""

    def block(self, index: int, count: int) -> None: ...
    def item(self, path: str, index: int, count: int) -> None: ...
    def fault(self, path: str, sentence: str) -> None: ...


@dataclass
class Known:
    """What the first block found out about an item, so that later ones measure the same thing, and faster."""

    facts: dict[str, dict[str, Any]]
    passes: int = 0
    replays: int = 0
    settled: bool = False
    extras: Mapping[str, Any] = field(default_factory=dict)
    joules: float | None = None
    power_limited: bool = False

    def tile(self, side: str) -> Any:
        return self.facts[side].get("tile")


class Blocks:
    """Runs a plan. `start(side)` starts a warm worker; rows go to `sink` once an item is through a block.

    `rows` are those of earlier executions: what they hold is not measured again. Afterwards `given_up`
    says by path why an item was left out, and `unmeasured` which blocks `seconds` had no time for. `known` carries
    what an earlier loop over the same sides found out, and is added to.
    """

    def __init__(
        self,
        plan: BlockPlan,
        start: Callable[[str], Worker],
        *,
        sink: Callable[[Row], object],
        progress: BlockProgress,
        rows: Collection[Row] = (),
        commits: Mapping[str, str] | None = None,
        begun: float | None = None,
        known: dict[str, Known] | None = None,
    ) -> None:
        self._plan = plan
        self._start = start
        self._sink = sink
        self._progress = progress
        self._commits = commits or {}
        self._begun = time.monotonic() if begun is None else begun
        self._done = {(value.path, value.block) for value in values(rows) if not value.spoiled}
        self._known: dict[str, Known] = {} if known is None else known
        self._next: Pair | None = None
        self._board = ""
        self._is_fresh = True
        self.given_up = {row.path: row.detail for row in rows if row.status not in (*RETRIED, "ok") and _of_block(row)}
        self.unmeasured: tuple[int, ...] = ()

    def run(self) -> Iterator[BlockValue]:
        """The values of each item in each block, each once its rows were handed on."""
        missing = {
            block: [i for i in self._plan.items if (i.path, block) not in self._done and i.path not in self.given_up]
            for block in self._plan.blocks
        }
        numbers = [block for block in self._plan.blocks if missing[block]]
        taken_s: list[float] = []
        try:
            for index, block in enumerate(numbers):
                begin = time.monotonic()
                if self._plan.seconds is not None and taken_s:
                    left_s = self._plan.seconds - (begin - self._begun)
                    if left_s < _SPARE * statistics.fmean(taken_s):
                        self.unmeasured = tuple(numbers[index:])
                        break
                self._progress.block(index, len(numbers))
                yield from self._block(block, missing[block], following=numbers[index + 1 : index + 2])
                taken_s.append(time.monotonic() - begin)
        finally:
            if self._next is not None:
                self._next.end()

    def _block(self, block: int, items: Sequence[Item], following: Sequence[int]) -> Iterator[BlockValue]:
        pair, self._next = self._met(self._next or self._fresh(block)), None
        try:
            if following and pair.workers[BASELINE].target.is_gpu:
                # Not on a CPU: importing would take the cores that are being measured.
                self._next = self._fresh(following[0])
            for index, item in enumerate(items):
                if item.path in self.given_up:
                    continue
                self._progress.item(item.path, index, len(items))
                for attempt in range(1, _TRIES + 1):
                    try:
                        rows = self._measure(pair, item, block)
                    except Fault as fault:
                        self._progress.fault(item.path, f"block {block}: {fault}")
                        rows = []
                        if attempt == _TRIES or fault.outcome["status"] not in RETRIED:
                            self.given_up[item.path] = str(fault)
                            self._sink(self._row(pair, item, block, fault.side, 0.0, fault.outcome, ""))
                        if fault.fatal:
                            pair.end()
                            pair = self._met(self._fresh(block))
                    if rows or item.path in self.given_up:
                        break
                for row in rows:
                    self._sink(row)
                yield from values(rows)
        finally:
            pair.end()

    def _fresh(self, block: int) -> Pair:
        """Which side starts first, and so takes the device first, alternates with the order of the visits."""
        return Pair(self._start, SIDES[::-1] if is_mirrored(block) else SIDES)

    def _met(self, pair: Pair) -> Pair:
        pair.meet()
        self._is_fresh = True
        self._board = self._board or pair.workers[BASELINE].machine.board
        if any(worker.machine.board != self._board for worker in pair.workers.values()):
            pair.end()
            raise CannotMeasureError(
                "Fresh workers found another board than the first block was on. What was measured is kept: "
                "go on with --resume."
            )
        return pair

    def _measure(self, pair: Pair, item: Item, block: int) -> list[Row]:
        """The rows of all levels, a baseline and a candidate each."""
        known = self._known.get(item.path)
        is_first = known is None or not known.settled
        known = self._mount_first(pair, item) if known is None else self._mount(pair, item, known)
        long = is_first or self._is_fresh or known.power_limited
        settled = self._settle(pair, SETTLE_LONG_S if long else SETTLE_SHORT_S)
        if is_first:
            known.joules = settled["joules"]
            known.power_limited = "power_limited" in settled["marks"]
            known.settled = True
        self._known[item.path] = known
        self._is_fresh = False
        rows = []
        levels = (0.0, *self._plan.levels)
        for level in levels[::-1] if is_mirrored(block) else levels:
            facts = self._visits(pair, item, block, level, known)
            visit = uuid.uuid4().hex[:12]
            rows += [self._row(pair, item, block, side, level, facts[side], visit) for side in SIDES]
        return rows

    def _mount_first(self, pair: Pair, item: Item) -> Known:
        """One side after the other, since searches and the choice of passes take time; then also checked."""
        facts = {}
        for side in pair.workers:
            facts[side] = pair.ask(side, "prepare", PREPARE_DEADLINE_S, **self._prepared(item, None))
            facts[side] |= pair.ask(side, "check", CHECK_DEADLINE_S, implementation=item.implementation)
        known = Known(facts)
        mount = {"implementation": item.implementation, "cache": self._plan.cache}
        mounted = pair.ask(BASELINE, "mount", CHECK_DEADLINE_S, **mount)
        known.passes = mounted["passes"]
        known.replays = FEW_REPLAYS if mounted["calls"] >= MANY_CALLS else MANY_REPLAYS
        facts[BASELINE] |= mounted
        extras = {f"{level:g}": None for level in self._plan.levels}
        facts[CANDIDATE] |= pair.ask(CANDIDATE, "mount", CHECK_DEADLINE_S, **mount, passes=known.passes, extras=extras)
        known.extras = facts[CANDIDATE]["extras"]
        return known

    def _mount(self, pair: Pair, item: Item, known: Known) -> Known:
        """Both sides at once: all that took time to find out is known."""
        pair.ask_both("prepare", PREPARE_DEADLINE_S, **{s: self._prepared(item, known.tile(s)) for s in SIDES})
        mount = {"implementation": item.implementation, "cache": self._plan.cache, "passes": known.passes}
        extras = {BASELINE: {}, CANDIDATE: known.extras}
        pair.ask_both("mount", CHECK_DEADLINE_S, **{side: {**mount, "extras": extras[side]} for side in SIDES})
        return known

    def _prepared(self, item: Item, tile: Any) -> dict[str, Any]:
        return {
            "case": item.case.to_json(),
            "implementation": item.implementation,
            "seed": self._plan.seed,
            "data": self._plan.data,
            "caches": [self._plan.cache],
            "tile": tile,
        }

    def _settle(self, pair: Pair, least_s: float) -> dict[str, Any]:
        side = next(iter(pair.workers))
        return pair.ask(side, "settle", SAMPLE_DEADLINE_S, least_s=least_s)

    def _visits(self, pair: Pair, item: Item, block: int, level: float, known: Known) -> dict[str, dict[str, Any]]:
        """What the two visits to each side found, by side; once more where another process or heat was in the way."""
        outer, inner = SIDES[::-1] if is_mirrored(block) else SIDES
        warm_s = _WARM_S if known.power_limited else 0.0
        for again in range(_VISITS_AGAIN + 1):
            visits: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
            for side in (outer, inner, inner, outer):
                asked = {"level": level if side == CANDIDATE else 0.0, "replays": known.replays, "warm_s": warm_s}
                visits[side].append(pair.ask(side, "visit", SAMPLE_DEADLINE_S, **asked))
            spoiled = {mark for pair_of in visits.values() for visit in pair_of for mark in visit["marks"]} & {*SPOILED}
            if not spoiled or again == _VISITS_AGAIN:
                break
            self._progress.fault(item.path, f"block {block}: {' and '.join(sorted(spoiled))}, so visited again")
            self._settle(pair, SETTLE_LONG_S)
        return {side: self._facts(side, visits[side], known) for side in SIDES}

    @staticmethod
    def _facts(side: str, visits: Sequence[Mapping[str, Any]], known: Known) -> dict[str, Any]:
        clocks = [visit["sm_clock_hz"] for visit in visits if visit["sm_clock_hz"]]
        powers = [visit["power_w"] for visit in visits if visit["power_w"]]
        marks = {mark for visit in visits for mark in visit["marks"]}
        return {
            **known.facts[side],
            "samples_s": [seconds for visit in visits for seconds in visit["samples_s"]],
            "calls_per_sample": known.facts[BASELINE]["calls"],
            "sm_clock_hz": statistics.fmean(clocks) if clocks else None,
            "power_w": statistics.fmean(powers) if powers else None,
            "joules": known.joules,
            "marks": marks | ({"power_limited"} if known.power_limited else set()),
        }

    def _row(
        self, pair: Pair, item: Item, block: int, side: str, level: float, facts: Mapping[str, Any], visit: str
    ) -> Row:
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
            phase=phase_of(block, side, level),
            visit=visit,
            board=worker.machine.board,
            commit=self._commits.get(side, ""),
        )


def _of_block(row: Row) -> bool:
    return read_phase(row.phase) is not None
