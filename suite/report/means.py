"""What a family's ratios come to: geometric means, always with how many cases they are of and which they leave out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from gemmgate.suite.compare import Rated
from gemmgate.suite.records import Row
from gemmgate.suite.report import units
from gemmgate.suite.report.best import SAME, counts
from gemmgate.suite.report.layout import Block, Column, Notes, Table, cells
from gemmgate.suite.statistics import geometric_mean


def means(rated: Sequence[Rated], caches: Sequence[str], cases: int) -> list[Block]:
    """One line an implementation. `cases` is how many the family has in this run."""
    first = caches[0]
    arithmetic = _arithmetic([r.row for r in rated])
    groups = list(dict.fromkeys(arithmetic.values()))
    shown_groups = groups if len(groups) > 1 else []
    by_name: dict[str, list[Rated]] = defaultdict(list)
    for r in rated:
        if r.row.implementation != r.yardstick:
            by_name[r.row.implementation].append(r)
    rows = []
    for name, mine in by_name.items():
        if not any(r.ratio for r in mine):
            continue
        here = [r for r in mine if r.row.cache == first]
        line = [name, mean_text(here)]
        line += [
            mean_text([r for r in here if arithmetic[r.row.dtype, r.row.precision] == group]) for group in shown_groups
        ]
        line += [mean_text([r for r in mine if r.row.cache == cache]) for cache in caches[1:]]
        rows.append(cells((*line, *outcomes(here), left_out(here, cases))))
    if not rows:
        return []
    headers = [first or "all", *shown_groups, *caches[1:], "faster", "same", "slower"]
    columns = (
        Column("implementation"),
        *(Column(name, right=True, drop=2 if name in shown_groups else 0) for name in headers),
        Column("not counted", wraps=True),
    )
    table = Table("Geometric mean of the ratio (of so many cases)", columns, tuple(rows))
    differ = len({row[1].text.partition("(")[2] for row in rows}) > 1
    more = ("Means of different sets of cases cannot be compared with each other.",) if differ else ()
    return [table, Notes((SAME, *more))]


def mean_text(rated: Sequence[Rated]) -> str:
    """`1.234 (32)`: the geometric mean and the count it is of."""
    ratios = [r.ratio.estimate for r in rated if r.ratio]
    return f"{units.speedup(geometric_mean(ratios))} ({len(ratios)})" if ratios else units.NONE


def left_out(rated: Sequence[Rated], cases: int) -> str:
    """Why cases are missing from a mean: `3 unsupported, 1 broken, 2 not run`."""
    counts = Counter("no ratio" if r.row.status == "ok" else r.row.status for r in rated if r.ratio is None)
    not_run = cases - len({r.row.case for r in rated})
    said = [f"{count} {status}" for status, count in counts.items()] + ([f"{not_run} not run"] if not_run else [])
    return ", ".join(said) or "none"


def _arithmetic(rows: Sequence[Row]) -> dict[tuple[str, str], str]:
    """What to call each dtype and precision: the dtype alone where it has one precision."""
    pairs = dict.fromkeys((row.dtype, row.precision) for row in rows)
    several = Counter(dtype for dtype, _ in pairs)
    return {(dtype, precision): f"{dtype} {precision}" if several[dtype] > 1 else dtype for dtype, precision in pairs}


def outcomes(rated: Sequence[Rated]) -> tuple[str, str, str]:
    """In how many cases it is faster, the same, slower."""
    faster, same, slower = counts([r.ratio for r in rated if r.ratio])
    return str(faster), str(same), str(slower)
