"""What the router's dispatcher is to reach on a machine, and where a run stands: one line a goal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import Row, Run
from gemmgate.suite.report import units
from gemmgate.suite.report.best import is_same
from gemmgate.suite.report.choices import DRAWN, FEW, Chosen, chosen_of, newest, regrets
from gemmgate.suite.report.layout import Block, Cell, Column, Notes, Table, cells
from gemmgate.suite.report.measured import where
from gemmgate.suite.statistics import geometric_mean, ratio_interval

FAMILY, AFTER = "router", "router_topk"
CACHE, DISPATCHER = "serving", "dispatch"
LIBRARY = ("linear_float", "mm_out_dtype", "linear")
"""Calls of cuBLAS; a case has those of its dtype rule."""
WHOLE = {"models": 21 * 22, "few": 21 * 9, "float": 5 * 9, "drawn": 12 * 5, "after": 7 * 7, "both": 6 * 7}
"""Cases of each set: of the models, of those with few tokens, of those of them that `linear_float` is the call of, of
the drawn ones, of what follows with few tokens, and of those of them that are models here too.
"""
MOST_AFTER = 64
_NOTE = (
    "Means are geometric. Beyond noise: the whole interval of the ratio is below 1, and by 1 % or more. Regret is "
    "the time over that of the fastest that could be chosen, which is partly luck. A part of a set says nothing of its "
    "goal."
)


@dataclass(frozen=True)
class Line:
    """One goal. `found` is in the words of the goal; `good` is None where the run has nothing of it."""

    name: str
    asked: str
    found: str = ""
    cases: int = 0
    whole: int = 0
    good: bool | None = None

    @property
    def so(self) -> Cell:
        if self.good is None:
            return Cell("not run", "dim")
        if self.cases < self.whole:
            return Cell("in part", "dim")
        return Cell("reached", "win") if self.good else Cell("missed", "loss")


def has_goals(run: Run) -> bool:
    """Whether a run has times of the dispatcher that these goals are of, or of what goes on from it."""
    return any(row.family in (FAMILY, AFTER) and row.kind == "time" for row in run.rows)


def blocks(run: Run) -> list[Block]:
    """A line a goal, whether or not the run has its cases; then what loses, and where it was measured."""
    found: list[Chosen] = []
    missing = []
    try:
        found = chosen_of(run, FAMILY, DISPATCHER, CACHE)
    except UsageError as error:  # too few cases, or no dispatcher among them
        missing = [str(error)]
    lines = [*_speed(found), *_losses(found, run), *_regrets(found), *_after(found, run)]
    columns = (
        Column("goal"),
        Column("asked", right=True),
        Column("found", right=True),
        Column("cases", right=True),
        Column("so"),
    )
    rows = [(*cells((one.name, one.asked, one.found, _count(one))), one.so) for one in lines]
    losing = [one.row.case for one in found if _is_slower(one, run)]
    notes = missing + [f"Slower than the library beyond noise: {', '.join(losing)}." for _ in losing[:1]]
    return [
        Table(f"{FAMILY}, {CACHE}: goals of {DISPATCHER}", columns, tuple(rows)),
        Notes((_NOTE, *notes)),
        where(run),
    ]


def _count(line: Line) -> str:
    return f"{line.cases} of {line.whole}" if line.cases else units.NONE


def _speed(found: Sequence[Chosen]) -> list[Line]:
    few = [one for one in found if one.size <= FEW and DRAWN not in one.row.tags]
    drawn = [one for one in found if one.size <= FEW and DRAWN in one.row.tags]
    return [
        _mean(f"t up to {FEW}, over linear_float", 3.0, few, lambda one: one.over("linear_float"), WHOLE["float"]),
        _mean(f"t up to {FEW}, over the best library call", 2.2, few, _over_best, WHOLE["few"]),
        _mean(f"{DRAWN}, t up to {FEW}, over the best library call", 1.8, drawn, _over_best, WHOLE["drawn"]),
    ]


def _mean(name: str, least: float, of: Iterable[Chosen], over: Callable[[Chosen], float | None], whole: int) -> Line:
    ratios = [ratio for one in of if (ratio := over(one))]
    if not ratios:
        return Line(name, f"{least:g} or more", whole=whole)
    mean = geometric_mean(ratios)
    said = f"{units.speedup(mean)}, least {units.speedup(min(ratios))}"
    return Line(name, f"{least:g} or more", said, len(ratios), whole, mean >= least)


def _over_best(one: Chosen) -> float | None:
    return min(filter(None, map(one.over, LIBRARY)), default=None)


def _losses(found: Sequence[Chosen], run: Run) -> list[Line]:
    models = [one for one in found if DRAWN not in one.row.tags and _over_best(one)]
    name, asked = "slower than the best library call, beyond noise", "0"
    if not models:
        return [Line(name, asked, whole=WHOLE["models"])]
    slower = sum(_is_slower(one, run) for one in models)
    left = sum(one.pick in (*LIBRARY, "upcast_fp32") for one in models)
    return [Line(name, asked, f"{slower}, {left} left to the library", len(models), WHOLE["models"], slower == 0)]


def _is_slower(one: Chosen, run: Run) -> bool:
    """Than the fastest call of the library that was sampled beside it; within 1 %, a call left to it is that call."""
    rivals = [
        row
        for row in run.rows
        if (row.family, row.case, row.cache, row.visit) == (FAMILY, one.row.case, CACHE, one.row.visit)
        and row.implementation in LIBRARY
        and row.status == "ok"
        and row.median_s
    ]
    if not rivals:
        return False
    rival = min(rivals, key=lambda row: row.median_s or 0.0)
    paired = rival.samples_n == one.row.samples_n
    ratio = ratio_interval(rival.samples_s, one.row.samples_s, paired=paired)
    return ratio.estimate < 1.0 and not is_same(ratio)


def _regrets(found: Sequence[Chosen]) -> list[Line]:
    known = regrets([one for one in found if DRAWN not in one.row.tags])
    whole = WHOLE["models"]
    if not known:
        return [Line("mean regret", "1.005 or less", whole=whole), Line("worst regret", "1.02 or less", whole=whole)]
    mean = geometric_mean([regret for regret, _ in known])
    worst, case = max(known, key=itemgetter(0))
    return [
        Line("mean regret", "1.005 or less", f"{mean:.4f}", len(known), whole, mean <= 1.005),
        Line("worst regret", "1.02 or less", f"{worst:.3f} {case}", len(known), whole, worst <= 1.02),
    ]


def _after(found: Sequence[Chosen], run: Run) -> list[Line]:
    """Of the experts' choice that follows: against torch, and beyond the logits alone."""
    rows = [row for row in run.rows if (row.family, row.cache, row.status) == (AFTER, CACHE, "ok") and row.median_s]
    few = [row for row in newest(rows) if not row.phase and next(iter(row.dims.values())) <= MOST_AFTER]
    held = {(row.case, row.implementation): row.median_s or 0.0 for row in few}
    own = {case: min(some) for case in dict.fromkeys(row.case for row in few) if (some := _own_of(few, case))}
    alone = {one.row.case: one.row.median_s or 0.0 for one in found}
    beyond = {case: seconds - alone[case] for case, seconds in own.items() if alone.get(case)}
    name, whole = f"top-k, t up to {MOST_AFTER}", WHOLE["after"]
    lines = []
    for rival, least in (("eager", 5.0), ("inductor", 2.0)):
        ratios = [held[case, rival] / seconds for case, seconds in own.items() if (case, rival) in held]
        mean = geometric_mean(ratios) if ratios else 0.0
        said = f"{units.speedup(mean)}, least {units.speedup(min(ratios))}" if ratios else ""
        good = mean >= least if ratios else None
        lines.append(Line(f"{name}, over {rival}", f"{least:g} or more", said, len(ratios), whole, good))
    most = max(beyond.values(), default=0.0)
    said = f"at most {units.microseconds(most)}" if beyond else ""
    good = most <= 2.5e-6 if beyond else None
    lines.append(Line(f"{name}, us beyond the logits", "2.5 or less", said, len(beyond), WHOLE["both"], good))
    return lines


def _own_of(rows: Sequence[Row], case: str) -> list[float]:
    return [
        row.median_s
        for row in rows
        if row.case == case and row.implementation.endswith(("launch", "launches")) and row.median_s
    ]
