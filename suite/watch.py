"""What gates of unchanged code say about the gate itself: how often it rings in vain, and where it may judge. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gemmgate.suite.block_rule import Standing
from gemmgate.suite.block_values import values
from gemmgate.suite.compare import Verdict
from gemmgate.suite.judged import is_unchanged, judged
from gemmgate.suite.looks import Noise, noise_of
from gemmgate.suite.records import Run
from gemmgate.suite.rehearsal import Rehearsed, from_recorded
from gemmgate.suite.resampling import GATE_CASES
from gemmgate.suite.stages import RELEASE
from gemmgate.suite.statistics import Interval, share_interval

FEWEST = 9
"""Blocks that a statement about a case's noise takes."""
REHEARSED = 300
"""Gates that are played on recorded blocks."""
NEWEST_BLOCKS = 60
"""Of each case, so that a machine that has changed is seen."""
_SEED = 20250331


@dataclass(frozen=True)
class Move:
    """A case whose standing has changed with its noise."""

    path: str
    before: Standing
    after: Standing
    sd: float
    blocks: int


@dataclass(frozen=True)
class Watched:
    """`alarms` of `gates` were in vain; `share` is that with its exact interval, None without a gate.

    `untimed` gates of unchanged code judge no times, as on a CPU, and so can call nothing slower: they prove nothing.
    `resampled` are gates over `GATE_CASES` cases, played on the blocks that were recorded, of which the case with
    the fewest has `resampled_blocks`.
    """

    gates: int
    alarms: int
    unjudged: int
    share: Interval | None
    alarmed: tuple[tuple[str, str], ...]
    noise: Mapping[str, Noise]
    moves: tuple[Move, ...]
    resampled: Rehearsed | None
    resampled_blocks: int
    untimed: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "gates": self.gates,
            "alarms": self.alarms,
            "unjudged": self.unjudged,
            "untimed": self.untimed,
            "at_most": self.share.high if self.share else None,
            "alarmed": [{"gate": gate, "item": path} for gate, path in self.alarmed],
            "noise": {path: {"block_sd": n.sd, "blocks": n.blocks} for path, n in self.noise.items()},
            "moves": [vars(move) for move in self.moves],
            "resampled": asdict(self.resampled) if self.resampled else None,
            "resampled_blocks": self.resampled_blocks,
        }


def watched(gates: Sequence[Run], calibrations: Sequence[Run] = ()) -> Watched:
    """What the gates of unchanged code among `gates` amount to; calibrations add their blocks. All of one machine.

    A gate of which the identical was not timed says nothing about false alarms.
    """
    same = [run for run in gates if is_unchanged(run) and run.selection["everything"]]
    unchanged = [run for run in same if run.selection["gates_time"]]
    alarmed: list[tuple[str, str]] = []
    unjudged = 0
    ringing = 0
    for run in unchanged:
        found = [one for one in judged(run) if one.standing in ("gated", "extended")]
        slower = [one.path for one in found if one.comparison.verdict in (Verdict.SLOWER, Verdict.PICK_CHANGED)]
        alarmed += [(run.id, path) for path in slower]
        ringing += bool(slower)
        unjudged += any(one.comparison.verdict is Verdict.UNCLEAR for one in found)
    runs = sorted([*calibrations, *unchanged], key=lambda run: run.utc)
    noise = noise_by_case(runs)
    series = [np.array(found) for path, found in _blocks(runs).items() if _is_due(noise.get(path))]
    return Watched(
        len(unchanged),
        ringing,
        unjudged,
        share_interval(ringing, len(unchanged)) if unchanged else None,
        tuple(alarmed),
        noise,
        tuple(moves(runs)),
        from_recorded(series, REHEARSED, GATE_CASES, np.random.default_rng(_SEED)),
        min(map(len, series), default=0),
        len(same) - len(unchanged),
    )


def whole(runs: Sequence[Run]) -> list[Run]:
    """Each row once: without runs that another was resumed from, whose rows it holds, and those that two such share."""
    earlier = {run.resumed for run in runs}
    seen: set[tuple[str, str]] = set()
    found = []
    for run in runs:
        if run.id not in earlier:
            rows = tuple(row for row in run.rows if not row.visit or (row.run_id, row.visit) not in seen)
            seen |= {(row.run_id, row.visit) for row in rows}
            found.append(replace(run, rows=rows))
    return found


def _is_due(noise: Noise | None) -> bool:
    return noise is not None and noise.rule.standing != "reported"


def noise_by_case(runs: Iterable[Run]) -> dict[str, Noise]:
    """From the newest blocks of unchanged code of each item, in calibrations and in gates; oldest run first."""
    runs = list(runs)
    newest = {row.path: run.id for run in runs for row in run.rows}
    return {path: noise_of(found, newest[path]) for path, found in _blocks(runs).items() if len(found) >= FEWEST}


def _blocks(runs: Iterable[Run]) -> dict[str, list[float]]:
    """The newest log-ratios of each item with unchanged code."""
    blocks: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for value in values(run.rows):
            if value.is_plain and not value.spoiled and value.block < RELEASE:
                blocks[value.path].append(value.log_ratio)
    return {path: found[-NEWEST_BLOCKS:] for path, found in blocks.items()}


def moves(runs: Sequence[Run]) -> list[Move]:
    """Cases whose standing the newest run has changed, by all that was known before it and since."""
    before = {path: noise.rule.standing for path, noise in noise_by_case(runs[:-1]).items()}
    found = []
    for path, noise in noise_by_case(runs).items():
        if path in before and (after := noise.rule.standing) != before[path]:
            found.append(Move(path, before[path], after, noise.sd, noise.blocks))
    return found
