"""What the rows of a tuning say: picks, what they were confirmed against, and what a wider search would have gained.

A tuning's rows differ from a run's in `phase`: `race`, `final`, `confirm`, `sweep` and `oracle` are followed by the
tile; `incumbent` is the tile that is used without a search, `pick` what the search came to; `skipped` stands for a
search that found no time. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gemmgate.suite.compare import newest
from gemmgate.suite.records import Row
from gemmgate.suite.statistics import Interval, ratio_interval

PICK, INCUMBENT, YARDSTICK = "pick", "incumbent", "yardstick"
RACE, FINAL, CONFIRM, SWEEP, ORACLE = "race", "final", "confirm", "sweep", "oracle"
SKIPPED = "skipped"
NO_TIME = "no_time"
"""`reason` of a search, and of a tile of a wider search, that had no turn."""


@dataclass(frozen=True)
class Pick:
    """One implementation's pick for one case, with the rows of its visit.

    Of a wider search `scored` are the rows of the best tiles beside the pick, `swept` and `left_out` count the tiles
    beside the pick that had a turn and that had none.
    """

    row: Row
    incumbent: Row | None
    yardstick: Row | None
    scored: tuple[Row, ...] = ()
    swept: int = 0
    left_out: int = 0

    @property
    def key(self) -> str:
        """As a tuned table calls it."""
        return f"{self.row.case}/{self.row.implementation}"

    @property
    def gain(self) -> Interval | None:
        """Time of the incumbent over the pick's: above 1 the search was worth it."""
        return _over(self.incumbent, self.row)

    @property
    def ratio(self) -> Interval | None:
        """Time of the yardstick over the pick's."""
        return _over(self.yardstick, self.row)

    @property
    def regret(self) -> float | None:
        """The pick's time over that of the best tile of the wider search, less 1; None without one."""
        samples = {_spelled(row): row.samples_s for row in self.scored if row.samples_s}
        pick = _spelled(self.row)
        return regret(samples, pick) if pick in samples and len(samples) > 1 else None


def regret(samples: Mapping[str, Sequence[float]], pick: str) -> float:
    """How much slower `pick` is than the best of these, as a share. The i-th samples come from the same round.

    The best is chosen on the even rounds and scored on the odd ones, the pick on the odd ones too, so that luck
    in choosing does not count as speed. It can be less than 0 by the noise.
    """
    best = min(samples, key=lambda key: statistics.median(samples[key][::2]))
    if best == pick:
        return 0.0
    logs = [math.log(mine / other) for mine, other in zip(samples[pick][1::2], samples[best][1::2], strict=True)]
    return math.exp(statistics.median(logs)) - 1


def picks(rows: Iterable[Row]) -> list[Pick]:
    """The picks among rows, in their order; of one that was searched again the newest."""
    kept = list(rows)
    beside: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in kept:
        if row.phase in (INCUMBENT, YARDSTICK) and row.status == "ok":
            beside[row.visit][row.phase] = row
    wider: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in newest(row for row in kept if row.phase.startswith((SWEEP, ORACLE))):
        wider[_place(row)].append(row)
    return [
        _pick(row, beside[row.visit], wider[_place(row)]) for row in newest(row for row in kept if row.phase == PICK)
    ]


def _pick(row: Row, beside: Mapping[str, Row], wider: Sequence[Row]) -> Pick:
    """`wider` are the rows of its wider search."""
    swept = [one for one in wider if one.phase.startswith(SWEEP)]
    left_out = sum(one.reason == NO_TIME for one in swept)
    scored = tuple(one for one in wider if one.phase.startswith(ORACLE))
    return Pick(row, beside.get(INCUMBENT), beside.get(YARDSTICK), scored, len(swept) - left_out, left_out)


def _place(row: Row) -> tuple[str, str, str]:
    return row.family, row.case, row.implementation


def _spelled(row: Row) -> str:
    """Its tile, whatever the order of its fields."""
    return str(sorted((row.tile or {}).items()))


def searched(rows: Iterable[Row]) -> set[tuple[str, str, str]]:
    """(family, case, implementation) of what needs no further search."""
    return {_place(row) for row in rows if row.phase == PICK}


def skipped(rows: Iterable[Row]) -> int:
    """Searches that were asked for, found no time, and were not made up for later."""
    kept = list(rows)
    return len({_place(row) for row in kept if row.phase == SKIPPED} - searched(kept))


def _over(baseline: Row | None, row: Row) -> Interval | None:
    if baseline is None or row.status != "ok":
        return None
    paired = baseline.samples_n == row.samples_n
    return ratio_interval(baseline.samples_s, row.samples_s, paired=paired)
