"""Goals and where a run stands, as blocks: one line a goal."""

from __future__ import annotations

from gemmgate.suite.goals import Goal, Standing, standings
from gemmgate.suite.records import Run
from gemmgate.suite.report import units
from gemmgate.suite.report.layout import Block, Cell, Column, Notes, Table, cells
from gemmgate.suite.report.measured import where

_NOTE = (
    "Own: cases that a kernel of ours computed, of those measured; the rest were left to the library and count as they "
    "are. Floor: the measured roofs and one launch. Slower: beyond noise, of our own."
)


def goals_blocks(run: Run, implementation: str = "dispatch", cache: str = "cold") -> list[Block]:
    """A line a goal, whether or not the run has its cases; then which are slower, and where it was measured."""
    found = standings(run, implementation, cache)
    columns = (
        Column("set"),
        Column("against"),
        Column("goal", right=True),
        Column("mean (cases)", right=True),
        Column("own", right=True, drop=1),
        Column("mean of own", right=True, drop=2),
        Column("of the floor", right=True, drop=3),
        Column("least", right=True, drop=4),
        Column("slower", right=True),
        Column("so"),
    )
    table = Table(f"{implementation}, {cache}: goals", columns, tuple(_row(each) for each in found))
    slower = [f"{each.goal.name}, slower than {each.goal.against}: {', '.join(each.slower)}." for each in found]
    notes = [line for line, each in zip(slower, found, strict=True) if each.slower]
    notes += [f"{each.goal.name}, without a time: {', '.join(each.failed)}." for each in found if each.failed]
    return [table, Notes((_NOTE, *notes)), where(run)]


def _row(found: Standing) -> tuple[Cell, ...]:
    goal = found.goal
    if found.mean is None:
        return (*cells((goal.name, goal.against, _asked(goal))), *cells(("",) * 6), Cell("not run", "dim"))
    said = (
        goal.name,
        goal.against,
        _asked(goal),
        f"{units.speedup(found.mean)} ({len(found.ratios)} of {goal.cases})",
        f"{len(found.own)} of {len(found.ratios)}",
        units.NONE if found.mean_of_own is None else units.speedup(found.mean_of_own),
        units.share(found.share),
        units.speedup(min(found.ratios.values())),
        str(len(found.slower)),
    )
    if not found.is_whole:
        return (*cells(said), Cell("in part", "dim"))
    return (*cells(said), Cell("reached", "win") if found.reached else Cell("missed", "loss"))


def _asked(goal: Goal) -> str:
    """`1.5, 28 own` or `1.15 or 75%`"""
    own = f", {goal.own} own" if goal.own else ""
    floor = f" or {units.share(goal.floor)}" if goal.floor else ""
    return f"{goal.least:g}{floor}{own}"
