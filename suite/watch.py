"""What gates of unchanged code say about the gate itself: how often it rings in vain, and where it may judge. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmgate.suite.block_rule import Standing
from gemmgate.suite.block_values import values
from gemmgate.suite.compare import Verdict
from gemmgate.suite.judged import RELEASE, is_unchanged, judged
from gemmgate.suite.looks import Noise, noise_of
from gemmgate.suite.records import Run
from gemmgate.suite.statistics import Interval, share_interval

FEWEST = 9
"""Blocks that a statement about a case's noise takes."""
NEWEST_BLOCKS = 60
"""Of each case, so that a machine that has changed is seen."""


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
    """`alarms` of `gates` were in vain; `share` is that with its exact interval, None without a gate."""

    gates: int
    alarms: int
    unjudged: int
    share: Interval | None
    alarmed: tuple[tuple[str, str], ...]
    noise: Mapping[str, Noise]
    moves: tuple[Move, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "gates": self.gates,
            "alarms": self.alarms,
            "unjudged": self.unjudged,
            "at_most": self.share.high if self.share else None,
            "alarmed": [{"gate": gate, "item": path} for gate, path in self.alarmed],
            "noise": {path: {"block_sd": n.sd, "blocks": n.blocks} for path, n in self.noise.items()},
            "moves": [vars(move) for move in self.moves],
        }


def watched(runs: Sequence[Run]) -> Watched:
    """What the gates of unchanged code among `runs`, oldest first, amount to."""
    unchanged = [run for run in runs if is_unchanged(run) and run.selection["gates_time"]]
    alarmed: list[tuple[str, str]] = []
    unjudged = 0
    ringing = 0
    for run in unchanged:
        found = [one for one in judged(run) if one.standing in ("gated", "extended")]
        slower = [one.path for one in found if one.comparison.verdict in (Verdict.SLOWER, Verdict.PICK_CHANGED)]
        alarmed += [(run.id, path) for path in slower]
        ringing += bool(slower)
        unjudged += any(one.comparison.verdict is Verdict.UNCLEAR for one in found)
    share = share_interval(ringing, len(unchanged)) if unchanged else None
    return Watched(
        len(unchanged), ringing, unjudged, share, tuple(alarmed), noise_by_case(unchanged), tuple(moves(unchanged))
    )


def noise_by_case(runs: Iterable[Run]) -> dict[str, Noise]:
    """From the newest blocks of unchanged code of each item, in calibrations and in gates; oldest run first."""
    blocks: dict[str, list[float]] = defaultdict(list)
    newest: dict[str, str] = {}
    for run in runs:
        for value in values(run.rows):
            if value.level == 0.0 and not value.spoiled and value.block < RELEASE:
                blocks[value.path].append(value.log_ratio)
                newest[value.path] = run.id
    return {
        path: noise_of(found[-NEWEST_BLOCKS:], newest[path]) for path, found in blocks.items() if len(found) >= FEWEST
    }


def moves(runs: Sequence[Run]) -> list[Move]:
    """Cases whose standing the newest run has changed, by all that was known before it and since."""
    before = {path: noise.rule.standing for path, noise in noise_by_case(runs[:-1]).items()}
    found = []
    for path, noise in noise_by_case(runs).items():
        if path in before and (after := noise.rule.standing) != before[path]:
            found.append(Move(path, before[path], after, noise.sd, noise.blocks))
    return found
