"""A run in a few columns, for a README: one line a case, losses included."""

from __future__ import annotations

from collections.abc import Sequence

from gemmgate.suite.compare import Rated
from gemmgate.suite.records import Run
from gemmgate.suite.report import markdown, units
from gemmgate.suite.report.best import fastest
from gemmgate.suite.report.layout import Block, Cell, Column, Notes, Style, Table
from gemmgate.suite.report.means import left_out, mean_text
from gemmgate.suite.report.measured import times_of, where


def markdown_summary(run: Run, implementations: Sequence[str] = (), cache: str = "cold") -> str:
    """A Markdown table a family: cases down, the chosen implementations across (all of them by default), a mean below.

    Raises UsageError for a name that the run does not have.
    """
    rated = times_of(run, implementations, cache)
    blocks: list[Block] = [
        _family(family, [r for r in rated if r.row.family == family], implementations, cache)
        for family in dict.fromkeys(r.row.family for r in rated)
    ]
    return markdown.render([*(blocks or [Notes((f"This run has no times in cache state '{cache}'.",))]), where(run)])


def _family(family: str, rated: Sequence[Rated], chosen: Sequence[str], cache: str) -> Table:
    present = list(dict.fromkeys(r.row.implementation for r in rated))
    names = [name for name in chosen if name in present] or present
    cases = list(dict.fromkeys(r.row.case for r in rated))
    found = {(r.row.case, r.row.implementation): r for r in rated}
    rows = [_case(case, [found.get((case, name)) for name in names]) for case in cases]
    mean = [Cell("geometric mean (cases)")]
    missing = [Cell("not counted")]
    for name in names:
        mine = [r for r in rated if r.row.implementation == name and r.row.implementation != r.yardstick]
        mean.append(Cell(mean_text(mine) if mine else ""))
        missing.append(Cell(left_out(mine, len(cases)) if mine else ""))
    columns = (Column("case"), *(Column(name, right=True) for name in names))
    title = f"{family}, {cache}: us (speed-up over {' or '.join(_yardsticks(rated)) or 'nothing'})"
    return Table(title, columns, (*rows, tuple(mean), tuple(missing)))


def _yardsticks(rated: Sequence[Rated]) -> list[str]:
    return list(dict.fromkeys(r.yardstick for r in rated if r.yardstick))


def _case(case: str, rated: Sequence[Rated | None]) -> tuple[Cell, ...]:
    best = {id(r) for r in fastest([r for r in rated if r is not None])}
    return (Cell(case), *(_cell(r, "best" if id(r) in best else "") for r in rated))


def _cell(rated: Rated | None, style: Style) -> Cell:
    if rated is None:
        return Cell(units.NONE)
    if rated.row.median_s is None:
        return Cell(rated.row.status)
    text = units.microseconds(rated.row.median_s)
    if rated.ratio is None or rated.row.implementation == rated.yardstick:
        return Cell(text, style)
    return Cell(f"{text} ({'~' if 1.0 in rated.ratio else ''}{rated.ratio.estimate:.2f}x)", style)
