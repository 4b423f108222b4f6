"""The first thing a reader asks: is it faster, for which shapes, on which machine, and where does it lose."""

from __future__ import annotations

from collections.abc import Sequence

from gemmgate.suite.compare import Rated
from gemmgate.suite.records import Run
from gemmgate.suite.report import markdown, units
from gemmgate.suite.report.best import SAME, is_same
from gemmgate.suite.report.layout import Block, Column, Notes, Row, Table, cells
from gemmgate.suite.report.means import left_out, mean_text, outcomes
from gemmgate.suite.report.measured import times_of, where

_MOST_LOSSES = 4


def markdown_answer(run: Run, implementations: Sequence[str] = (), cache: str = "cold") -> str:
    """A Markdown table a family: a line for each format of each of `implementations` (of all by default).

    Raises UsageError for a name that the run does not have.
    """
    rated = times_of(run, implementations, cache)
    names = implementations or list(dict.fromkeys(r.row.implementation for r in rated))
    found: list[Block] = []
    for family in dict.fromkeys(r.row.family for r in rated):
        mine = [r for r in rated if r.row.family == family]
        rows = [line for name in names for line in _lines(name, mine)]
        if rows:
            found.append(_table(family, mine, rows, cache, run))
    nothing = Notes((f"This run has no ratios in cache state '{cache}'.",))
    return markdown.render([*([*found, Notes((SAME,))] if found else [nothing]), where(run)])


def _table(family: str, rated: Sequence[Rated], rows: Sequence[Row], cache: str, run: Run) -> Table:
    against = " or ".join(dict.fromkeys(r.yardstick for r in rated if r.yardstick))
    headers = ("", "shapes", "times as fast (cases)", "faster", "same", "slower", "slower in", "not counted")
    numbers = headers[2:6]
    columns = tuple(Column(name or "implementation", right=name in numbers) for name in headers)
    return Table(f"{family} against {against}, {cache}, on {run.machine.model}", columns, tuple(rows))


def _lines(name: str, rated: Sequence[Rated]) -> list[Row]:
    """A line for each format in which an implementation has a ratio to something else."""
    formats = dict.fromkeys((r.row.dtype, r.row.precision) for r in rated)
    made = []
    for form in formats:
        here = [r for r in rated if (r.row.dtype, r.row.precision) == form]
        mine = [r for r in here if r.row.implementation == name and r.row.implementation != r.yardstick]
        if not any(r.ratio for r in mine):
            continue
        cases = len({r.row.case for r in here})
        said = (name, _shapes(mine), mean_text(mine), *outcomes(mine), _losses(mine), left_out(mine, cases))
        made.append(cells(said))
    return made


def _shapes(rated: Sequence[Rated]) -> str:
    """`bf16, m 16-256, n 16-512, k 8192-65536`: the sizes of what has a ratio."""
    rows = [r.row for r in rated if r.ratio]
    sizes = []
    for dim in rows[0].dims:
        values = sorted({row.dims[dim] for row in rows if dim in row.dims})
        sizes.append(f"{dim} {values[0]}" + (f"-{values[-1]}" if len(values) > 1 else ""))
    first = rows[0]
    form = f"{first.dtype} {first.precision}" if first.dtype == "fp32" else first.dtype
    return ", ".join([form, *sizes])


def _losses(rated: Sequence[Rated]) -> str:
    """The cases that are slower, the worst first."""
    lost = [(r.ratio.estimate, r.row.case) for r in rated if r.ratio and not is_same(r.ratio) and r.ratio.estimate < 1]
    said = [f"{case} ({units.speedup(ratio)})" for ratio, case in sorted(lost)]
    more = [f"{len(said) - _MOST_LOSSES} more"] if len(said) > _MOST_LOSSES else []
    return ", ".join(said[:_MOST_LOSSES] + more) or "none"
