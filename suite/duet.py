"""The order of a gate: survey both sides, screen what may differ, confirm what was flagged on fresh blocks.

Every row is handed on as it is measured, and what earlier rows hold is not measured again, so that an interrupted
gate goes on where it stopped. What the rows mean is for `judged` to say, here only which are needed next.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from gemmgate.suite.block_rule import GATED_BLOCKS
from gemmgate.suite.block_values import BlockValue, values
from gemmgate.suite.block_visits import BlockPlan, Known
from gemmgate.suite.blocks import BlockProgress, Blocks
from gemmgate.suite.catalog import Item
from gemmgate.suite.forecast import ON_A_GPU, Costs
from gemmgate.suite.looks import LOOKS, SCREEN_STEPS, Noise, screen_steps
from gemmgate.suite.pairs import SIDES, Pair
from gemmgate.suite.records import Row
from gemmgate.suite.stages import FRESH, RELEASE, SCREEN, SHOWN_BLOCKS, Screened, confirmations
from gemmgate.suite.stages import screened as screened_as
from gemmgate.suite.survey import Survey, Surveyed, kept
from gemmgate.suite.survey_turns import SurveyInTurns
from gemmgate.suite.turns import Alone
from gemmgate.suite.workers import Worker

RELEASE_BLOCKS = 12
"""Blocks against the last release, of what is accepted."""
Start = Callable[[str], Worker]


@dataclass(frozen=True)
class DuetPlan:
    """What to judge. `items` exist on both sides, `fresh` only on the candidate's.

    With `everything`, what is identical is timed too. Without `gates_time`, a few blocks are taken for show.
    `sources` are hashes by side and path, `commits` names by side.
    """

    items: Sequence[Item]
    fresh: Sequence[Item]
    noise: Mapping[str, Noise]
    cache: str
    gates_time: bool
    everything: bool = False
    seed: int = 0
    data: str = "normal"
    seconds: float | None = None
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    commits: Mapping[str, str] = field(default_factory=dict)


class Duet:
    """Measures a plan. `start(side)` starts a warm worker, `rows` holds what is stored, `sink` adds to it.

    `ahead` is called while the workers of the survey start. `surveyed_all` is told, once the survey is through, what
    will be timed. `costs` says how the seconds of a block grow with its items. `spent_s` is where the time went. With
    `alone` one worker at a time takes the device, once that has returned.
    """

    def __init__(
        self,
        plan: DuetPlan,
        start: Start,
        *,
        sink: Callable[[Sequence[Row]], object],
        rows: Callable[[], Collection[Row]],
        display: Callable[[], AbstractContextManager[BlockProgress]],
        begun: float | None = None,
        ahead: Callable[[], object] = lambda: None,
        surveyed_all: Callable[[Sequence[Item]], object] = lambda items: None,
        costs: Costs = ON_A_GPU,
        alone: Alone | None = None,
    ) -> None:
        self._plan = plan
        self._start = start
        self._sink = sink
        self._rows = rows
        self._display = display
        self._begun = time.monotonic() if begun is None else begun
        self._ahead = ahead
        self._surveyed_all = surveyed_all
        self._costs = costs
        self._alone = alone
        self._known: dict[str, Known] = {}
        self._waiting: deque[Pair] = deque()
        self._pace: float | None = None
        """How long the last blocks took, over what `costs` says of so many items."""
        self.surveyed: dict[str, Surveyed] = {}
        self.spent_s: defaultdict[str, float] = defaultdict(float)

    def run(self) -> None:
        """All phases, one after the other. With `seconds` a phase may be cut short, and those after it."""
        try:
            self._compile_ahead()
            self._run()
        finally:
            for pair in self._waiting:
                pair.end()

    def _run(self) -> None:
        self._survey()
        items = kept(self._plan.items, self.surveyed, everything=self._plan.everything)
        self._known = {item.path: known for item in items if (known := self.surveyed[item.path].known)}
        self._surveyed_all(items)
        if not self._plan.gates_time:
            self._blocks(items, range(SHOWN_BLOCKS))
            return
        quiet = [item for item in items if len(screen_steps(self._plan.noise.get(item.path))) == len(SCREEN_STEPS)]
        self._blocks(quiet, range(SCREEN, SCREEN + SCREEN_STEPS[0][0]))
        for blocks in (*(step for step, _ in SCREEN_STEPS[1:]), GATED_BLOCKS[0]):
            self._blocks(self._such(items, "open"), range(SCREEN, SCREEN + blocks))
        for look in LOOKS:
            decided = confirmations(self._values(), self._plan.noise)
            waiting = [item for item in items if decided.get(item.path) == "open"]
            if not waiting:
                break
            self._blocks(waiting, range(FRESH, FRESH + look))

    def against(self, paths: Collection[str], start: Start, commits: Mapping[str, str]) -> None:
        """Some items in blocks against another baseline, the last release."""
        items = [item for item in self._plan.items if item.path in paths]
        self._known = {}
        self._blocks(items, range(RELEASE, RELEASE + RELEASE_BLOCKS), start, commits)

    def _compile_ahead(self) -> None:
        """Whatever is done beforehand, which needs no device, and beside it the start of the survey's workers."""
        begin = time.monotonic()
        if not self._alone:
            self._waiting.append(Pair(self._start, SIDES))
            self._waiting[0].greet()
        self._ahead()
        self.spent_s["warming"] += time.monotonic() - begin

    def _survey(self) -> None:
        plan = self._block_plan([*self._plan.items, *self._plan.fresh], ())
        fresh, all_ = {item.path for item in self._plan.fresh}, self._plan.everything
        begin = time.monotonic()
        with self._display() as display:
            told = (plan, self._start, display, fresh, self._plan.sources, self._plan.commits)
            survey = SurveyInTurns(*told, alone=self._alone) if self._alone else Survey(*told, self._waiting)
            for found in survey.run():
                self.surveyed[found.item.path] = found
                self._sink(found.rows)
                if self._waiting or self._alone or not self._plan.gates_time:
                    continue
                if kept([found.item], self.surveyed, everything=all_):
                    self._waiting.append(Pair(self._start, SIDES))  # to import while the survey goes on
        self.spent_s["survey"] += time.monotonic() - begin

    def _blocks(
        self,
        items: Sequence[Item],
        numbers: Sequence[int],
        start: Start | None = None,
        commits: Mapping[str, str] | None = None,
    ) -> None:
        if not items:
            return
        told_s = self._costs.a_block_s(len(items))
        with self._display() as display:
            running = Blocks(
                self._block_plan(items, numbers),
                start or self._start,
                sink=self._sink,
                progress=display,
                rows=self._rows(),
                commits=self._plan.commits if commits is None else commits,
                begun=self._begun,
                known=self._known,
                waiting=None if start or self._alone else self._waiting,
                expected_s=None if self._pace is None else self._pace * told_s,
                alone=self._alone,
            )
            for _ in running.run():
                pass
        for name, seconds in running.seconds.items():
            self.spent_s[name] += seconds
        if running.blocks_s and told_s > 0:
            self._pace = statistics.fmean(running.blocks_s[1:] or running.blocks_s) / told_s

    def _such(self, items: Sequence[Item], wanted: Screened) -> list[Item]:
        found = self._values()
        return [
            item for item in items if screened_as(found.get(item.path, ()), self._plan.noise.get(item.path)) == wanted
        ]

    def _values(self) -> dict[str, list[BlockValue]]:
        by_path: dict[str, list[BlockValue]] = defaultdict(list)
        for value in values(self._rows()):
            by_path[value.path].append(value)
        return by_path

    def _block_plan(self, items: Sequence[Item], numbers: Sequence[int]) -> BlockPlan:
        plan = self._plan
        return BlockPlan(items, numbers, plan.cache, seed=plan.seed, data=plan.data, seconds=plan.seconds, energy=False)
