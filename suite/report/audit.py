"""What an implementation's own tuner chose, against the fastest of its choices, from the rows of a run.

Two rows of one visit belong together where they hold the same readings: one is what the tuner picked,
the other was chosen by the harness among the same choices, timed as everything here is timed. Their
ratio comes from fresh samples of both, so the search's luck with its screening is not in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gemmgate.suite.compare import newest
from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import Row, Run
from gemmgate.suite.report import markdown, units
from gemmgate.suite.report.layout import Column, Notes, Table, cells
from gemmgate.suite.report.measured import where
from gemmgate.suite.statistics import Interval, geometric_mean, ratio_interval

APART = 0.03
"""Two choices whose times differ by less have no order worth getting right."""


@dataclass(frozen=True)
class Audited:
    """One case in one cache state. `screened_s` has the harness's time of each choice under the tuner's name for it."""

    pick: Row
    best: Row
    screened_s: Mapping[str, float]

    @property
    def regret(self) -> Interval:
        """The time of the tuner's pick over that of the fastest choice: 1.1 is a tenth slower than need be."""
        paired = self.pick.samples_n == self.best.samples_n
        return ratio_interval(self.pick.samples_s, self.best.samples_s, paired=paired)

    @property
    def is_same(self) -> bool:
        """Whether the pick is the fastest choice by name: a regret is then of the code around it."""
        return self.pick.algorithm == self.best.algorithm

    @property
    def reading_s(self) -> float | None:
        """What the tuner read for its own pick."""
        return (self.pick.readings_s or {}).get(self.pick.algorithm)

    @property
    def order(self) -> tuple[int, int]:
        """Of the pairs of choices that are apart: how many the readings put in the right order, and how many there are.

        Timed outside the rounds that give the two rows, but all in the same rounds as each other.
        """
        readings = self.pick.readings_s or {}
        names = [name for name in self.screened_s if name in readings]
        right = pairs = 0
        for index, one in enumerate(names):
            for other in names[index + 1 :]:
                true = math.log(self.screened_s[one] / self.screened_s[other])
                if abs(true) > math.log1p(APART):
                    pairs += 1
                    right += (readings[one] - readings[other]) * true > 0
        return right, pairs


def audited(run: Run) -> list[Audited]:
    """The pairs of rows that a run holds, in its order."""
    return list(_pairs(newest(run.rows)))


def audit_page(run: Run) -> str:
    """A page of Markdown. Raises UsageError where the run holds no such pair."""
    found = audited(run)
    if not found:
        raise UsageError(
            f"Run {run.id} has no row of a tuner's pick with a row of a search over the same choices beside it. "
            "Measure both together, such as `--tag audit --impl inductor_max_autotune,inductor_best_choice`."
        )
    names = {(one.pick.implementation, one.best.implementation) for one in found}
    title = "; ".join(f"{pick} against {best}" for pick, best in sorted(names))
    intro = (
        f"# What the tuner chose, and what it could have: {title}",
        "Written by `gemmgate audit` from the run named below; write it again rather than edit it.",
    )
    blocks = (_table(found), Notes(_conclusions(found)), where(run))
    return "\n\n".join(intro) + "\n\n" + markdown.render(blocks) + "\n" + _EXPLAINED


_EXPLAINED = f"""\
## How to read it

- *reads* is what the tuner measured for its own pick while it compiled, *takes* the same code's median
  by this project's method (`docs/method.md`).
- *fastest* is the choice with the lowest time among all that the tuner had, each timed by this project's
  method; *regret* is the pick's time over that one's, from fresh samples of both in the same rounds.
  Where it is within its interval of 1, the pick was as good as any. Where both have one name the choice was right;
  a regret is then that of the code that the compiler put around it, which need not be that around a choice of its
  own, and counts for nothing below.
- *ordered* counts the pairs of choices whose times differ by more than {APART:.0%} and of those the ones that the
  tuner's readings put in the right order. Half of them is what a coin would do.
- *timed* is how many of the choices that the tuner read could be timed one by one.
"""


def _pairs(rows: Sequence[Row]) -> Iterator[Audited]:
    ok = [row for row in rows if row.status == "ok" and row.readings_s]
    for best in ok:
        if not best.screened_s:
            continue
        for pick in ok:
            place = (pick.family, pick.case, pick.cache, pick.visit)
            same = place == (best.family, best.case, best.cache, best.visit) and pick.readings_s == best.readings_s
            if same and not pick.screened_s:
                # A tile with one field is written `field=value`.
                screened = {name.partition("=")[2]: seconds for name, seconds in best.screened_s.items()}
                yield Audited(pick, best, screened)


def _table(found: Sequence[Audited]) -> Table:
    caches = {one.pick.cache for one in found}
    columns = (
        Column("case"),
        Column("cache"),
        Column("pick"),
        Column("reads us", right=True),
        Column("takes us", right=True),
        Column("fastest"),
        Column("takes us", right=True),
        Column("regret", right=True),
        Column("ordered", right=True),
        Column("timed", right=True),
    )
    rows = []
    for one in found:
        right, pairs = one.order
        regret = one.regret
        line = [
            one.pick.case,
            one.pick.cache if len(caches) > 1 else "",
            one.pick.algorithm,
            units.microseconds(one.reading_s),
            units.microseconds(one.pick.median_s),
            one.best.algorithm,
            units.microseconds(one.best.median_s),
            f"{units.speedup(regret.estimate)} {units.plus_minus(regret)}",
            f"{right} of {pairs}",
            f"{len(one.screened_s)} of {len(one.pick.readings_s or {})}",
        ]
        rows.append(cells(line))
    return Table("", columns, tuple(rows)).without_empty_columns()


def _conclusions(found: Sequence[Audited]) -> tuple[str, ...]:
    regrets = [1.0 if one.is_same else one.regret.estimate for one in found]
    worst = max(range(len(found)), key=lambda index: regrets[index])
    costly = sum(one.regret.low > 1 + APART for one in found if not one.is_same)
    lines = [
        f"{units.counted(len(found), 'case')}: the pick was the fastest choice by name in "
        f"{sum(one.is_same for one in found)}, and another that costs more than {APART:.0%} in {costly}.",
        f"Regret: geometric mean {units.speedup(geometric_mean(regrets))}, "
        f"worst {units.speedup(regrets[worst])} ({found[worst].pick.case}).",
    ]
    shares = [one.reading_s / one.pick.median_s for one in found if one.reading_s and one.pick.median_s]
    if shares:
        lines.append(
            f"The tuner's reading of its pick is {units.multiple(min(shares))} to {units.multiple(max(shares))} times "
            f"the time taken (geometric mean {units.multiple(geometric_mean(shares))})."
        )
    right, pairs = (sum(counts) for counts in zip(*(one.order for one in found), strict=True))
    if pairs:
        lines.append(
            f"Of {pairs} pairs of choices that are apart, its readings order {right} rightly ({right / pairs:.0%})."
        )
    return tuple(lines)
