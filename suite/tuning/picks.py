"""What the rows of a tuning say: picks, what they were confirmed against, and what a wider search would have gained.

A tuning's rows differ from a run's in `phase`: `race`, `final`, `confirm`, `sweep` and `oracle` are followed by the
tile; `incumbent` is the tile that is used without a search, `pick` what the search came to. Pure.
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


@dataclass(frozen=True)
class Pick:
    """One implementation's pick for one case, with the rows of its visit; `swept` are the rows of a wider search."""

    row: Row
    incumbent: Row | None
    yardstick: Row | None
    swept: tuple[Row, ...] = ()

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
        samples = {str(row.tile): row.samples_s for row in self.swept if row.samples_s}
        return regret(samples, str(self.row.tile)) if str(self.row.tile) in samples else None


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
    swept: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in newest(row for row in kept if row.phase.startswith(ORACLE)):
        swept[row.family, row.case, row.implementation].append(row)
    return [
        Pick(
            row,
            beside[row.visit].get(INCUMBENT),
            beside[row.visit].get(YARDSTICK),
            tuple(swept[row.family, row.case, row.implementation]),
        )
        for row in newest(row for row in kept if row.phase == PICK)
    ]


def searched(rows: Iterable[Row]) -> set[tuple[str, str, str]]:
    """(family, case, implementation) of what needs no further search."""
    return {(row.family, row.case, row.implementation) for row in rows if row.phase == PICK}


def _over(baseline: Row | None, row: Row) -> Interval | None:
    if baseline is None or row.status != "ok":
        return None
    paired = baseline.samples_n == row.samples_n
    return ratio_interval(baseline.samples_s, row.samples_s, paired=paired)
