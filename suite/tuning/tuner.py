"""The loop over what is to be tuned: compilers a few cases ahead, one search after the other, rows as each is done."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from gemmgate.suite.cases import Footprint, Tile
from gemmgate.suite.catalog import Item
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.family_functions import counted
from gemmgate.suite.records import Limits, Row
from gemmgate.suite.tuning import candidates as choosing
from gemmgate.suite.tuning.candidates import Candidate, Rates
from gemmgate.suite.tuning.gpu import Gpu, Lost, compile_ahead, guess
from gemmgate.suite.tuning.oracle import sweep
from gemmgate.suite.tuning.pace import Pace, rules_of
from gemmgate.suite.tuning.pool import Pool
from gemmgate.suite.tuning.racing import Search, search
from gemmgate.suite.tuning.rows import common_columns, failed_pick, search_rows, skipped_row, sweep_rows
from gemmgate.suite.workers import Worker, told_steps

AHEAD = 3
"""Cases whose first candidates are compiled while one is raced."""
GUESSED, GUESSED_EACH = 96, 4
"""Tiles near what may lead in a case that are compiled ahead too, where nothing more urgent is to be: at most, and for
each compiler. As many for few compilers would hold up, where cases share no binaries, what is surely needed."""
_LAST_WINNERS = 3
_LEADING = 3
"""The best by the model, near which some of what may join lies."""
_ATTEMPTS = 6
_PATIENCE = 2
"""Times its share of the time after which a search goes to its finals."""
NO_TILES = "it has no tiles to choose from"
"""Why a dispatcher, or another one that is never tuned, is left out."""
_SCORING_S = 1.5
"""About what it takes to check and to score the best of all tiles."""


class Progress(Protocol):
    """Told what happens, as it happens."""

    def searched(self, item: Item, index: int, count: int, found: Search, rows: Sequence[Row], seconds: float) -> None:
        """A search is done; the last of the rows is its pick."""
        ...


@dataclass(frozen=True)
class Space:
    """The candidates of an item, fastest by the model first, what it chooses by itself, and how wide its search is."""

    ranked: Sequence[Candidate]
    incumbent: Candidate | None
    width: float


@dataclass
class Tuner:
    """Searches items in order. Rows of each go to `sink` at once when it is done, so that an interrupt loses one item.

    `seconds` is for all of them, counted from `begun`, a `time.monotonic()`. How many candidates one may have follows
    from what is left when its compilers begin; where not even the narrowest search fits any more, the rest is in
    `skipped`. Refused items and those without tiles are `left_out`; `without_incumbent` are those searched without the
    tile that runs otherwise, and why.
    With `oracle` every legal tile is timed after each search, as long as the item's share of the time lasts; the
    search before it is then the usual one, whatever the time, since it is what is judged.
    """

    items: Sequence[Item]
    worker: Worker
    pool: Pool
    limits: Limits
    restart: Callable[[], Worker]
    sink: Callable[[Sequence[Row]], object]
    progress: Progress
    begun: float
    seconds: float | None = None
    seed: int = 0
    oracle: bool = False
    skipped: list[Item] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    without_incumbent: dict[str, str] = field(default_factory=dict)
    spent_s: dict[str, float] = field(default_factory=dict)

    def run(self) -> None:
        """To the end of the items, or of the time."""
        items = self._searchable()
        self._spaces: dict[Item, Space] = {}
        self._winners: dict[tuple[str, str, str], list[Tile]] = {}
        self._steps_s: Counter[str] = Counter()
        pace = Pace()
        for index, item in enumerate(items):
            begin = time.monotonic()
            if self._left_s() < 0 or (index and not pace.fits(self._left_s())):
                self.skipped = list(items[index:])
                self.sink([skipped_row(self._gpu(item, {}, 0.0)) for item in self.skipped])
                break
            self.pool.advance(index)
            for later in range(index, min(index + 1 + AHEAD, len(items))):
                if items[later] not in self._spaces:
                    is_bounded = self.seconds is not None and not self.oracle
                    width = pace.width(self._left_s(), len(items) - index) if is_bounded else 1.0
                    self._begin_compiling(items[later], later, width)
            if index + 1 < len(items):
                self._guess(items[index + 1], index + 1)
            share_s = self._left_s() / (len(items) - index)
            found, rows = self._search(item, index, begin, share_s)
            self.sink(rows)
            taken_s = time.monotonic() - begin
            pace.took(self._spaces[item].width, taken_s)
            self.progress.searched(item, index, len(items), found, rows, taken_s)
        self._steps_s.update(self.worker.steps_s)
        self.spent_s = {
            "total": time.monotonic() - self.begun,
            "compiling": self.pool.compile_s,
            "waiting": self.pool.waited_s,
            **told_steps(self._steps_s),
        }

    def _searchable(self) -> list[Item]:
        """Items with tiles to choose from; asks for all spaces at once."""
        for index, item in enumerate(self.items):
            self.pool.submit(("space", item.path), "space", item, index - len(self.items))
        kept = []
        for item in self.items:
            reply = self._space_reply(item)
            refusal = reply.get("refusal") or ("", NO_TILES)
            if reply.get("failed"):
                self.left_out[item.path] = reply["failed"]["detail"]
            elif not reply["tiles"]:
                self.left_out[item.path] = refusal[1]
            else:
                kept.append(item)
        return kept

    def _space_reply(self, item: Item) -> dict[str, Any]:
        key = ("space", item.path)
        return self.pool.wait([key])[key]

    def _begin_compiling(self, item: Item, index: int, width: float) -> None:
        """Settles with what an item begins, and asks for its kernels."""
        self.pool.submit((item.path, ""), "compile", item, index, tile=None)
        reply = self._space_reply(item)
        footprints = reply["footprints"] and [Footprint(**data) for data in reply["footprints"]]
        rates = _rates(self.limits)
        least_bytes = counted(item.family.bytes_moved, item.case)
        ranked = choosing.candidates(reply["tiles"], footprints, self.worker.target, rates, least_bytes)
        self._spaces[item] = Space(ranked, None, width)
        for place, one in enumerate(choosing.pick(ranked, rules_of(width).first)):
            compile_ahead(self.pool, item, one, index + 1e-3 * (1 + place))
        self._guess(item, index)

    def _guess(self, item: Item, index: int) -> None:
        """Asks for what won before, with which the item begins, and for tiles near what may lead there."""
        space, seeds = self._spaces[item], self._seeds(item)
        for one in seeds:
            compile_ahead(self.pool, item, one, index)
        untuned = (self.pool.said((item.path, "")) or {}).get("tile")
        leading = [*([untuned] if untuned else []), *(one.tile for one in (*seeds, *space.ranked[:_LEADING]))]
        count = min(GUESSED, GUESSED_EACH * self.pool.count)
        guess(self.pool, item, choosing.near(space.ranked, leading, (), count), index)

    def _search(self, item: Item, index: int, begin: float, share_s: float) -> tuple[Search, list[Row]]:
        """Again and again without what cost a worker; after some attempts the item has failed."""
        space = replace(self._spaces[item], incumbent=self._incumbent(item))
        excluded: dict[str, dict[str, Any]] = {}
        for _ in range(_ATTEMPTS):
            gpu = self._gpu(item, excluded, float(index))
            try:
                gpu.begin()
                found = self._race(gpu, space, partial(_is_past, begin + _PATIENCE * share_s))
                rows = search_rows(gpu, found, time.monotonic() - begin)
                if self.oracle and found.winner:
                    rows = [*_swept(gpu, space, found, partial(_is_past, begin + share_s - _SCORING_S)), *rows]
            except Lost as lost:
                self._replace_worker()
                excluded[lost.culprit] = lost.outcome
                if not lost.culprit:
                    break
            else:
                if found.winner:
                    self._winners.setdefault(_alike(item), []).append(found.tiles[found.winner])
                return found, rows
        failed = list(excluded.values())[-1]
        return Search(), [failed_pick(item, failed, common_columns(gpu))]

    def _seeds(self, item: Item) -> list[Candidate]:
        """Tiles like those that won the cases before."""
        return choosing.like(self._spaces[item].ranked, self._winners.get(_alike(item), [])[-_LAST_WINNERS:])

    def _gpu(self, item: Item, excluded: Mapping[str, dict[str, Any]], priority: float) -> Gpu:
        return Gpu(self.worker, self.pool, item, self.limits, priority, self.seed, excluded)

    def _race(self, gpu: Gpu, space: Space, out_of_time: Callable[[], bool]) -> Search:
        """Begins with the incumbent, with what won in cases before, and with the model's and the covering choice."""
        rules = rules_of(space.width)
        first = [
            *([space.incumbent] if space.incumbent else []),
            *self._seeds(gpu.item),
            *choosing.pick(space.ranked, rules.first),
        ]
        begin_with = list({one.key: one for one in first}.values())
        return search(
            space.ranked,
            begin_with,
            gpu,
            incumbent=space.incumbent,
            rules=rules,
            ahead=partial(guess, self.pool, gpu.item, index=int(gpu.priority)),
            out_of_time=out_of_time,
        )

    def _incumbent(self, item: Item) -> Candidate | None:
        key = (item.path, "")
        reply = self.pool.wait([key])[key]
        if reply.get("failed"):
            self.without_incumbent[item.path] = reply["failed"]["detail"]
        return Candidate(reply["tile"], 0.0) if reply.get("tile") else None

    def _replace_worker(self) -> None:
        board = self.worker.machine.board
        self._steps_s.update(self.worker.steps_s)
        self.worker.kill()
        self.worker = self.restart()
        if self.worker.machine.board != board:
            raise CannotMeasureError(
                "The fresh worker found another board than the tuning began on, which would not compare."
            )

    def _left_s(self) -> float:
        return float("inf") if self.seconds is None else self.seconds - (time.monotonic() - self.begun)


def _swept(gpu: Gpu, space: Space, found: Search, out_of_time: Callable[[], bool]) -> list[Row]:
    """The rows of all legal tiles, beside the pick."""
    assert found.winner is not None
    pick = Candidate(found.tiles[found.winner], 0.0)
    return sweep_rows(gpu, sweep(space.ranked, pick, gpu, ahead=gpu.compile_soon, out_of_time=out_of_time))


def _is_past(end: float) -> bool:
    return time.monotonic() > end


def _alike(item: Item) -> tuple[str, str, str]:
    """Whose winners are worth a try here."""
    return item.implementation, item.case.dtype, item.case.precision


def _rates(limits: Limits) -> Rates:
    known: Mapping[str, float] = {
        "launch_s": limits.launch_floor_s,
        "bytes_per_s": limits.bytes_per_s,
        "l2_bytes_per_s": limits.l2_bytes_per_s,
    }
    return Rates(**{name: value for name, value in known.items() if value})
