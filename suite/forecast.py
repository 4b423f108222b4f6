"""What a gate will take: its stages, how many items are in each, and their seconds. Pure.

Seconds an item and block follow from what earlier gates and calibrations of the machine were busy with. How many items
each stage still has, if nothing changed, is found by playing gates with the rule itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gemmgate.suite.block_rule import GATED_BLOCKS
from gemmgate.suite.block_values import values
from gemmgate.suite.looks import LOOKS, SCREEN_STEPS, Noise
from gemmgate.suite.records import Run
from gemmgate.suite.rehearsal import rehearse
from gemmgate.suite.stages import SHOWN_BLOCKS

PLAYED = 20
"""Gates that are played to find how many items a stage has."""
TYPICAL_SD = 0.005
"""Block standard deviation of an item of which none is known: the middle of what was seen on an H200."""
_SEED = 20250331
_FIRST = SCREEN_STEPS[0][0]
"""Blocks that every item has; what needs more before it may be let go counts as not clear."""
_TYPICAL_LOOK = LOOKS[1]
_IN_BLOCKS = ("prepare", "mount", "settle", "lead", "visits")
_TODAY = "lead"
"""Seconds of blocks as they are today have this among them; others tell nothing of an item in a block."""


AHEAD_S = 20.0
"""Of compiling beforehand: the start of its workers, and some hundred kernels by twelve of them."""


@dataclass(frozen=True)
class Costs:
    """Seconds: before the survey, of an item in the survey, of an item in a block, of a block besides."""

    setup_s: float
    survey_s: float
    item_s: float
    block_s: float
    source: str
    turns: int = 0
    """Processes that hold the device one after the other in a block; 0 where they share it."""
    ahead_s: float = AHEAD_S
    """Of compiling beforehand, where anything is."""

    def a_block_s(self, items: float) -> float:
        """Seconds of a block of so many items."""
        return items * self.item_s + self.block_s


ON_A_GPU = Costs(15.0, 0.3, 0.25, 0.5, "an H200, by arithmetic")
IN_TURNS = Costs(15.0, 0.9, 0.8, 7.5, "an H200, by arithmetic for three processes in turns", 3)
ON_A_CPU = Costs(10.0, 1.0, 1.0, 4.0, "a CPU of two cores")
"""Where no run of the machine tells."""


@dataclass(frozen=True)
class Stage:
    """`items` as expected, on average where not all; `visits` are timed intervals, four an item and block."""

    name: str
    items: float
    blocks: str
    visits: int
    seconds: float


@dataclass(frozen=True)
class Forecast:
    """Of a gate that finds nothing. `changed_s` is what each item that did change adds, at least and at most."""

    stages: tuple[Stage, ...]
    changed_s: tuple[float, float]
    costs: Costs
    unknown: int = 0
    """Items whose noise nothing tells: they have more blocks."""

    @property
    def total_s(self) -> float:
        return sum(stage.seconds for stage in self.stages)


def costs_of(runs: Sequence[Run], default: Costs) -> Costs:
    """From gates and calibrations of one machine, oldest first; the newest that says a thing tells it."""
    costs = default
    for run in runs:
        found = [value for value in values(run.rows) if not value.edited]
        spent = run.seconds
        if found and _TODAY in spent and not any(value.level for value in found):
            item_s = sum(spent.get(name, 0.0) for name in _IN_BLOCKS) / len(found)
            block_s = spent.get("start", 0.0) / len({value.block for value in found})
            costs = replace(costs, item_s=item_s, block_s=block_s, source=run.id)
        surveyed = len({row.path for row in run.rows if row.kind == "count"})
        if surveyed and "survey" in spent:
            costs = replace(costs, setup_s=spent.get("setup", costs.setup_s))
            if "warming" in spent:  # else what was compiled is part of the survey
                costs = replace(costs, survey_s=spent["survey"] / surveyed)
    return costs


def forecast(
    surveyed: int, noise: Sequence[Noise | None], costs: Costs, *, gates_time: bool, compiled: int = 0
) -> Forecast:
    """Of a gate that surveys so many items and times those of which `noise` is given, None where it is not known.

    `compiled` are pairs of case and kernel that workers compile beforehand.
    """
    first = [
        Stage("sides, interpreters, lists", 0, "", 0, costs.setup_s),
        *([Stage("compile beforehand", compiled, "", 0, costs.ahead_s)] if compiled else []),
        Stage("survey", surveyed, "", 0, surveyed * costs.survey_s),
    ]
    if not gates_time:
        return Forecast((*first, _stage("shown", len(noise), SHOWN_BLOCKS, costs)), (0.0, 0.0), costs)
    later, fresh = _expected(noise)
    share = later / (len(noise) * (GATED_BLOCKS[0] - _FIRST)) if noise else 0.0
    steps = (
        _stage("screen, all", len(noise), _FIRST, costs),
        Stage(
            "screen, what is not clear",
            share * len(noise),
            f"{GATED_BLOCKS[0] - _FIRST}",
            round(4 * later),
            later * costs.item_s + ((GATED_BLOCKS[0] - _FIRST) * costs.block_s if later >= 1 else 0.0),
        ),
        Stage(
            "confirm, flagged in vain",
            fresh / _TYPICAL_LOOK,
            f"{LOOKS[0]} to {LOOKS[-1]}",
            round(4 * fresh),
            fresh * costs.item_s + (_TYPICAL_LOOK * costs.block_s if fresh >= 1 else 0.0),
        ),
    )
    most = GATED_BLOCKS[0] - _FIRST + LOOKS[-1]
    changed_s = LOOKS[0] * costs.item_s, most * costs.item_s
    return Forecast((*first, *steps), changed_s, costs, sum(one is None for one in noise))


def _stage(name: str, items: float, blocks: int, costs: Costs) -> Stage:
    seconds = blocks * costs.a_block_s(items) if items else 0.0
    return Stage(name, items, str(blocks), round(4 * items * blocks), seconds)


def _expected(noise: Sequence[Noise | None]) -> tuple[float, float]:
    """Without a change: blocks of the screen beyond the first of all items, and of confirmation in all."""
    if not noise:
        return 0.0, 0.0
    source = np.random.default_rng(_SEED)
    sds = [TYPICAL_SD if one is None else one.sd for one in noise]
    played = rehearse(
        lambda case, blocks: source.normal(0.0, sds[case], size=blocks), noise, [0.0] * len(noise), PLAYED
    )
    return played.screen_blocks / PLAYED - _FIRST * len(noise), played.confirm_blocks / PLAYED
