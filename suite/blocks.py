"""The loop over launch blocks: fresh workers a block, each case visited A B B A, the next block B A A B.

The same code started twice differs by more than its samples say, so what counts as one observation is a
block: the log-ratio of one launch of the candidate to one of the baseline. A block makes its items ready,
then settles and visits one after the other. Meanwhile the workers of later blocks start: all the time up
to the point where they would touch the device, and beyond it while this block makes ready, since only
visits are timed. A worker that dies costs a fresh pair and a second try; a throttled or shared block is
visited again; what stays so is reported and never averaged.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import psutil

from gemmgate.suite.block_turns import VisitorInTurns
from gemmgate.suite.block_values import BASELINE, BlockValue, is_mirrored, read_phase, values
from gemmgate.suite.block_visits import LEAST_FREE, BlockPlan, Known, Spent, Visitor
from gemmgate.suite.catalog import Item
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.loop import CHECK_DEADLINE_S
from gemmgate.suite.pairs import EDITED, Fault, ItemFault, Pair
from gemmgate.suite.records import RETRIED, Row
from gemmgate.suite.turns import Alone, Turns
from gemmgate.suite.workers import Worker

__all__ = ["BlockPlan", "BlockProgress", "Blocks"]

MOST_AHEAD, AHEAD_BYTES, AHEAD_CORES = 4, 16 * 2**30, 4
"""Blocks whose workers start while one is measured, and what each takes of the host: a block of one item lasts less
than a start."""
_CROWDED = ("ring_too_large", "does_not_fit", "device_memory")
"""Reasons that other items' memory may be to blame for."""
_TRIES = 2
_SPARE = 1.1


class BlockProgress(Protocol):
    """Told what happens, as it happens."""

    def block(self, index: int, count: int) -> None: ...
    def item(self, path: str, index: int, count: int) -> None: ...
    def fault(self, path: str, sentence: str) -> None: ...


class Blocks:
    """Runs a plan. `start(side)` starts a warm worker; rows go to `sink` once an item is through a block.

    `rows` are those of earlier executions: what they hold is not measured again. Afterwards `given_up`
    says by path why an item was left out, `not_edited` why one was not measured on the edited side,
    `unmeasured` which blocks `seconds` had no time for, `spent` where the time of the first block went and
    that of an average later one, `blocks_s` how long each took, and `steps_s` what the baseline's workers were at.

    `known` carries what an earlier loop over the same sides found out, and is added to. `waiting` holds pairs of the
    same sides that were started for it, and afterwards one for the next loop: the caller ends it. `expected_s` is
    what the first block should take; without it the first one is always measured. With `alone` the workers take turns
    on the device, each once that has returned: then no pair waits.
    """

    def __init__(
        self,
        plan: BlockPlan,
        start: Callable[[str], Worker],
        *,
        sink: Callable[[Sequence[Row]], object],
        progress: BlockProgress,
        rows: Collection[Row] = (),
        commits: Mapping[str, str] | None = None,
        begun: float | None = None,
        known: dict[str, Known] | None = None,
        waiting: deque[Pair] | None = None,
        expected_s: float | None = None,
        alone: Alone | None = None,
    ) -> None:
        self._plan = plan
        self._start = start
        self._sink = sink
        self._progress = progress
        self._begun = time.monotonic() if begun is None else begun
        self._spent = Spent()
        kind = VisitorInTurns if alone else Visitor
        self._visitor = kind(plan, commits or {}, progress.fault, self._spent, known)
        self._turns = Turns(start, alone, self._check_board) if alone else None
        self._waiting: deque[Pair] = deque() if waiting is None else waiting
        self._is_followed = waiting is not None
        self._expected_s = expected_s
        self._ending: list[Pair] = []
        self._board = ""
        self._is_fresh = True
        self.given_up = _given_up(rows)
        self._missing = missing_in(rows, plan.items, plan.blocks)
        self.unmeasured: tuple[int, ...] = ()
        self.blocks_s: list[float] = []
        self.spent: tuple[dict[str, float], dict[str, float]] = ({}, {})
        self.steps_s: defaultdict[str, float] = defaultdict(float)

    @property
    def seconds(self) -> Mapping[str, float]:
        """Of all blocks, by what they went to."""
        return dict(self._spent.by_name)

    @property
    def not_edited(self) -> Mapping[str, str]:
        return self._visitor.not_edited

    def run(self) -> Iterator[BlockValue]:
        """The values of each item in each block, each once its rows were handed on."""
        missing = self._missing
        numbers = list(missing)
        try:
            for index, block in enumerate(numbers):
                begin = time.monotonic()
                if not self._has_time(begin):
                    self.unmeasured = tuple(numbers[index:])
                    break
                self._progress.block(index, len(numbers))
                one = self._block_in_turns if self._turns else self._block
                yield from one(block, missing[block], following=numbers[index + 1 :])
                self.blocks_s.append(time.monotonic() - begin)
                self._account(len(self.blocks_s))
        finally:
            for pair in self._ending if self._is_followed else (*self._waiting, *self._ending):
                pair.end()
            if self._turns:
                self._turns.end()

    def _has_time(self, now: float) -> bool:
        """Whether another block would end within `seconds`, by those before it."""
        expected_s = statistics.fmean(self.blocks_s[1:] or self.blocks_s) if self.blocks_s else self._expected_s
        if self._plan.seconds is None or expected_s is None:
            return True
        return self._plan.seconds - (now - self._begun) >= _SPARE * expected_s

    def _account(self, blocks: int) -> None:
        """The first block's seconds apart from the mean of the others': it searches and checks."""
        if blocks == 1:
            self.spent = dict(self._spent.by_name), {}
            return
        first = self.spent[0]
        later = {name: (total - first.get(name, 0.0)) / (blocks - 1) for name, total in self._spent.by_name.items()}
        self.spent = first, later

    def _block(self, block: int, items: Sequence[Item], following: Sequence[int]) -> Iterator[BlockValue]:
        pair = self._met(self._waiting.popleft() if self._waiting else self._fresh(block))
        tries: Counter[str] = Counter()
        left = [item for item in items if item.path not in self.given_up]
        try:
            early = self._start_following(pair, following, knows_all=all(map(self._visitor.knows, left)))
            while left:
                try:
                    for item in self._make_ready(pair, left, block, early):
                        self._progress.item(item.path, items.index(item), len(items))
                        rows = self._visited(pair, item, block)
                        left.remove(item)
                        self._sink(rows)
                        yield from values(rows)
                    if left:
                        self._drop(pair, left[0])
                except ItemFault as failed:
                    self._note(pair, failed, block, tries)
                    if failed.item.path in self.given_up:
                        left.remove(failed.item)
                    if failed.fault.fatal:
                        pair.end()
                        pair = self._met(self._fresh(block))
        finally:
            for name, seconds in pair.workers[BASELINE].steps_s.items():
                self.steps_s[name] += seconds
            pair.stop()
            self._ending.append(pair)

    def _block_in_turns(self, block: int, items: Sequence[Item], following: Sequence[int]) -> Iterator[BlockValue]:
        assert self._turns is not None and isinstance(self._visitor, VisitorInTurns)
        turns, tries = self._turns, Counter[str]()

        def give_up(item: Item, fault: Fault) -> bool:
            self._note(turns, ItemFault(item, fault), block, tries)
            return item.path in self.given_up or fault.side == EDITED

        left = [item for item in items if item.path not in self.given_up]
        for rows in self._visitor.block(turns, left, block, following, give_up, self._progress.item):
            self._sink(rows)
            yield from values(rows)

    def _start_following(self, pair: Pair, following: Sequence[int], *, knows_all: bool) -> Pair | None:
        """Starts later pairs, and lets the next one take the device where it had time to import.

        On a CPU nothing: importing would take the cores that are being measured. Nor where time is up. The device is
        not taken beside a block that finds out lengths by timing.
        """
        is_late = self._plan.seconds is not None and time.monotonic() - self._begun >= self._plan.seconds
        if is_late or not pair.workers[BASELINE].target.is_gpu:
            return None
        early = next(iter(self._waiting), None) if knows_all else None
        ahead = pairs_ahead(psutil.virtual_memory().total, psutil.cpu_count() or 1)
        for number in following[len(self._waiting) : ahead]:
            self._waiting.append(self._fresh(number))
        if self._is_followed and not following and not self._waiting:
            self._waiting.append(self._fresh(0))
        if early is not None:
            early.greet(beside=self._pids(pair))
        return early

    def _make_ready(self, pair: Pair, items: Sequence[Item], block: int, early: Pair | None) -> list[Item]:
        """Mounts as many of the items as memory allows, one at least; then nothing but these is on the device."""
        ready = []
        for item in items:
            ready.append(item)
            if item.path in pair.mounted:
                continue
            try:
                free_share = self._visitor.mount(pair, item, block)
            except Fault as fault:
                if fault.outcome["reason"] in _CROWDED and len(pair.mounted) > 0 and not fault.fatal:
                    ready.pop()
                    break
                raise ItemFault(item, fault) from fault
            if free_share < LEAST_FREE:
                break
        with self._spent.on("start"):
            if early is not None:
                early.meet()
            while self._ending:
                self._ending.pop().end()
        return ready

    def _drop(self, pair: Pair, following: Item) -> None:
        """Frees what the visited items held, for those that found no room beside them."""
        pair.mounted.clear()
        try:
            pair.ask_both("drop", CHECK_DEADLINE_S, **{side: {} for side in pair.workers})
        except Fault as fault:
            raise ItemFault(following, fault) from fault

    def _visited(self, pair: Pair, item: Item, block: int) -> list[Row]:
        try:
            rows = self._visitor.visit(pair, item, block, is_first=self._is_fresh)
        except Fault as fault:
            raise ItemFault(item, fault) from fault
        self._is_fresh = False
        return rows

    def _note(self, pair: Pair, failed: ItemFault, block: int, tries: Counter[str]) -> None:
        """Says what went wrong, and gives an item up at its second fault, or at once where a second try is no use."""
        item, fault = failed.item, failed.fault
        self._progress.fault(item.path, f"block {block}: {fault}")
        if fault.side == EDITED:
            self._visitor.not_edited[item.path] = str(fault)
            return
        tries[item.path] += 1
        if tries[item.path] == _TRIES or fault.outcome["status"] not in RETRIED:
            self.given_up[item.path] = str(fault)
            self._sink([self._visitor.failed(pair, item, block, fault)])

    def _fresh(self, block: int) -> Pair:
        """Which side starts first, and so takes the device first, alternates with the order of the visits."""
        sides = self._plan.sides
        first = sides[1::-1] if is_mirrored(block) else sides[:2]
        return Pair(self._start, (*first, *sides[2:]))

    def _pids(self, *pairs: Pair) -> list[int]:
        """Processes that may be on the device beside those of a pair, and are no strangers."""
        return [pid for pair in (*pairs, *self._waiting, *self._ending) for pid in pair.pids]

    def _met(self, pair: Pair) -> Pair:
        with self._spent.on("start"):
            if not pair.is_met:
                pair.greet(beside=self._pids())
            pair.meet()
        self._is_fresh = True
        try:
            for worker in pair.workers.values():
                self._check_board(worker)
        except CannotMeasureError:
            pair.end()
            raise
        return pair

    def _check_board(self, worker: Worker) -> None:
        self._board = self._board or worker.machine.board
        if worker.machine.board != self._board:
            raise CannotMeasureError(
                "Fresh workers found another board than the first block was on, which would not compare."
            )


def pairs_ahead(memory_bytes: int, cores: int) -> int:
    """For how many later blocks a host of that size starts workers; for one at least."""
    return max(1, min(MOST_AHEAD, memory_bytes // AHEAD_BYTES, cores // AHEAD_CORES))


def missing_in(rows: Collection[Row], items: Sequence[Item], blocks: Iterable[int]) -> dict[int, list[Item]]:
    """Per block the items that rows have no value of: not those given up, but those whose block is spoiled."""
    done = {(value.path, value.block) for value in values(rows) if not value.spoiled}
    given_up = _given_up(rows)
    found = {
        block: [item for item in items if (item.path, block) not in done and item.path not in given_up]
        for block in blocks
    }
    return {block: missing for block, missing in found.items() if missing}


def _given_up(rows: Collection[Row]) -> dict[str, str]:
    """By path why an item is not tried again."""
    return {
        row.path: row.detail for row in rows if row.status not in (*RETRIED, "ok") and read_phase(row.phase) is not None
    }
