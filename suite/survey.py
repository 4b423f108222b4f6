"""Before any time is taken: what each side makes of every item, and whether it is right.

One fresh worker a side goes through all items. Both prepare and check at once, but for items whose `prepare` may take
times: there one waits for the other. Whatever fails on one side, the other is asked all the same, so that a baseline
which fails hides no wrong candidate. What both can do is mounted, which shows whether the two are one and the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gemmgate.suite import identity
from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.block_visits import FEW_REPLAYS, LEAST_FREE, MANY_CALLS, MANY_REPLAYS, BlockPlan, Known
from gemmgate.suite.blocks import BlockProgress
from gemmgate.suite.catalog import Item
from gemmgate.suite.judged import IDENTICAL, PICK_MOVED, phase_of_survey
from gemmgate.suite.loop import CHECK_DEADLINE_S, PREPARE_DEADLINE_S
from gemmgate.suite.outcomes import block_row
from gemmgate.suite.pairs import SIDES, Fault, Pair
from gemmgate.suite.records import RETRIED, Row
from gemmgate.suite.workers import START_DEADLINE_S, Worker

_TRIES = 2


@dataclass(frozen=True)
class Surveyed:
    """What was found out about an item: by side, facts or a status with its reason. `known` where both are ok."""

    item: Item
    facts: Mapping[str, Mapping[str, Any]]
    rows: tuple[Row, ...]
    known: Known | None = None
    is_identical: bool = False


@dataclass
class Survey:
    """`plan.items` on both sides, and only on the candidate those in `fresh`, which the baseline does not have.

    `sources` gives the hash of an item's sources by side and path; `commits` go into the rows. Pairs that `waiting`
    holds were started for it.
    """

    plan: BlockPlan
    start: Callable[[str], Worker]
    progress: BlockProgress
    fresh: Collection[str] = ()
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    commits: Mapping[str, str] = field(default_factory=dict)
    waiting: deque[Pair] = field(default_factory=deque)

    def run(self) -> Iterator[Surveyed]:
        """One item after the other. A worker that dies costs its item a second try in a fresh pair."""
        self._pair = self._met()
        self._ready: dict[str, tuple[Pair, str]] = {}
        try:
            self.progress.block(0, 1)
            at_once = self._at_once()
            for index, item in enumerate(self.plan.items):
                self.progress.item(item.path, index, len(self.plan.items))
                yield self._survey(item, at_once=item.path in at_once)
        finally:
            self._pair.end()

    def _met(self) -> Pair:
        pair = self.waiting.popleft() if self.waiting else Pair(self.start, SIDES)
        pair.meet()
        return pair

    def _at_once(self) -> set[str]:
        """Paths of the items that both sides may be at together, for neither takes times when it prepares."""
        items = [item for item in self.plan.items if item.path not in self.fresh]
        pairs = [[item.case.to_json(), [item.implementation]] for item in items]
        asked = {side: {"pairs": pairs} for side in SIDES}
        replies, faults = self._pair.ask_each("supports", START_DEADLINE_S, **asked)
        for side in [side for side, fault in faults.items() if fault.fatal][:1]:
            self._replace(side)  # which item it was shows once each is asked by itself
        if faults:
            return set()
        timed = [[any(found) for found in reply["timed"]] for reply in replies.values()]
        return {item.path for item, *found in zip(items, *timed, strict=True) if not any(found)}

    def _replace(self, side: str) -> None:
        """Fresh workers after one of that side was lost."""
        self._pair.end()
        self._pair = self._met()

    def _survey(self, item: Item, *, at_once: bool) -> Surveyed:
        sides = [CANDIDATE] if item.path in self.fresh else list(SIDES)
        facts = self._right_at_once(item) if at_once else {side: self._tried(item, side, self._right) for side in sides}
        known = None
        if len(sides) == 2 and all("status" not in found for found in facts.values()):
            known = self._mounted(item, facts)
        return self._surveyed(item, facts, known)

    def _surveyed(self, item: Item, facts: Mapping[str, dict[str, Any]], known: Known | None) -> Surveyed:
        both = facts.get(BASELINE, {}), facts[CANDIDATE]
        is_identical = known is not None and identity.same(*both, on_gpu=self._is_gpu)
        rows = tuple(self._row(item, side, found, is_identical=is_identical) for side, found in facts.items())
        return Surveyed(item, facts, rows, known, is_identical)

    @property
    def _is_gpu(self) -> bool:
        return self._pair.workers[CANDIDATE].target.is_gpu

    def _tried(
        self, item: Item, side: str, what: Callable[[Item, str], dict[str, Any]], failed: Fault | None = None
    ) -> dict[str, Any]:
        """Facts, or the outcome of the last try. The first one may have `failed` already."""
        outcome: dict[str, Any] = {}
        for attempt in range(_TRIES):
            fault = failed if attempt == 0 else None
            if fault is None:
                try:
                    return what(item, side)
                except Fault as found:
                    fault = found
            outcome = fault.outcome
            if outcome["status"] != "unsupported":
                self.progress.fault(item.path, str(fault))
            if fault.fatal:
                self._replace(side)
            if outcome["status"] not in RETRIED:
                break
        return outcome

    def _right(self, item: Item, side: str) -> dict[str, Any]:
        """Prepares and checks."""
        found = self._pair.ask(side, "prepare", PREPARE_DEADLINE_S, **self._request(item))
        found |= self._pair.ask(side, "check", CHECK_DEADLINE_S, implementation=item.implementation)
        self._ready[side] = self._pair, item.path
        return self._told(item, side, found)

    def _right_at_once(self, item: Item) -> dict[str, dict[str, Any]]:
        """As `_right` of each side, both at work together. What fails on one is tried again by that one alone."""
        pair = self._pair
        found, faults = pair.ask_each("prepare", PREPARE_DEADLINE_S, **dict.fromkeys(SIDES, self._request(item)))
        asked = {side: {"implementation": item.implementation} for side in found}
        checked, wrong = pair.ask_each("check", CHECK_DEADLINE_S, **asked)
        facts = {side: self._told(item, side, {**found[side], **checked[side]}) for side in checked}
        self._ready |= dict.fromkeys(checked, (pair, item.path))
        for side, fault in {**faults, **wrong}.items():
            facts[side] = self._tried(item, side, self._right, fault)
        return {side: facts[side] for side in SIDES}

    def _told(self, item: Item, side: str, found: Mapping[str, Any]) -> dict[str, Any]:
        worker = self._pair.workers[side]
        return {**found, "stack": worker.stack, "sources": self.sources.get(side, {}).get(item.path, "")}

    def _mounted(self, item: Item, facts: dict[str, dict[str, Any]]) -> Known | None:
        """Both sides made ready for visits, the candidate with the baseline's pick where a search made it."""
        tile = pinned_tile(facts)
        for side, its_tile in ((BASELINE, facts[BASELINE]["tile"]), (CANDIDATE, tile)):
            facts[side] |= self._tried(item, side, partial(self._mount, facts, its_tile))
            if "status" in facts[side]:
                return None
        if min(facts[side].pop("free_share", 1.0) for side in SIDES) < LEAST_FREE:
            self._drop()
        return known_of(facts, tile)

    def _mount(self, facts: Mapping[str, dict[str, Any]], tile: Any, item: Item, side: str) -> dict[str, Any]:
        """Made ready for visits with that tile, in launches as long as the baseline's."""
        if self._ready.get(side) != (self._pair, item.path) or tile != facts[side]["tile"]:
            self._pair.ask(side, "prepare", PREPARE_DEADLINE_S, **{**self._request(item), "tile": tile})
        mount = {"implementation": item.implementation, "cache": self.plan.cache, "item": item.path}
        if side == CANDIDATE:
            mount["passes"] = facts[BASELINE]["passes"]
        return self._pair.ask(side, "mount", CHECK_DEADLINE_S, **mount)

    def _drop(self) -> None:
        """Frees what mounted items hold, so that those that follow find room."""
        self._ready.clear()
        try:
            self._pair.ask_both("drop", CHECK_DEADLINE_S, **{side: {} for side in SIDES})
        except Fault:
            self._pair.end()
            self._pair = self._met()

    def _request(self, item: Item) -> dict[str, Any]:
        return {
            "case": item.case.to_json(),
            "implementation": item.implementation,
            "seed": self.plan.seed,
            "data": self.plan.data,
            "caches": [self.plan.cache],
            "tile": None,
            "reuse": True,
        }

    def _row(self, item: Item, side: str, facts: Mapping[str, Any], *, is_identical: bool) -> Row:
        worker = self._pair.workers[side]
        said = dict(facts)
        if side == CANDIDATE and "status" not in said:
            said["reason"] = IDENTICAL if is_identical else PICK_MOVED if "moved" in said else ""
            said["detail"] = said.get("moved", "")
        return block_row(
            item.family,
            item.case,
            item.implementation,
            said,
            kind="count",
            value=said.get("kernels"),
            unit="kernels",
            cache=self.plan.cache,
            data=self.plan.data,
            seed=self.plan.seed,
            flags=worker.flags[item.case.precision],
            phase=phase_of_survey(side),
            board=worker.machine.board,
            commit=self.commits.get(side, ""),
        )


def pinned_tile(facts: Mapping[str, Mapping[str, Any]]) -> Any:
    """The tile that the candidate is timed with: the baseline's where a search chose another one."""
    return facts[BASELINE if facts[CANDIDATE].get("screened_s") else CANDIDATE]["tile"]


def known_of(facts: Mapping[str, dict[str, Any]], tile: Any) -> Known:
    """What blocks need of two sides that are mounted, the candidate with that tile; another pick is noted."""
    baseline, candidate = facts[BASELINE], facts[CANDIDATE]
    if tile != candidate["tile"]:
        candidate["moved"] = _moved(baseline, candidate)
    known = Known({BASELINE: dict(baseline), CANDIDATE: {**candidate, "tile": tile}})
    known.passes, known.replays = baseline["passes"], FEW_REPLAYS if baseline["calls"] >= MANY_CALLS else MANY_REPLAYS
    return known


def _moved(baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> str:
    """What a search chose on either side, and by its own readings what that is worth."""
    before, after = (" ".join(f"{k}={v}" for k, v in (side["tile"] or {}).items()) for side in (baseline, candidate))
    readings: Mapping[str, float] = candidate["screened_s"]
    said = f"The candidate's search chose {after}, the baseline's {before}, which both were timed with"
    if readings.get(before) and readings.get(after):
        return f"{said}: by its own readings the new pick takes {readings[after] / readings[before] - 1:+.1%}"
    return said


def kept(items: Sequence[Item], surveyed: Mapping[str, Surveyed], *, everything: bool) -> list[Item]:
    """Those whose time can be told apart: both sides are ok, and something differs or all were asked for."""
    return [
        item
        for item in items
        if (found := surveyed.get(item.path)) and found.known and (everything or not found.is_identical)
    ]
