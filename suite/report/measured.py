"""A run as blocks: a table a family, what failed and why, what it comes to, and where it was measured."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from gemmgate.suite.compare import Rated, rate
from gemmgate.suite.errors import unknown
from gemmgate.suite.records import Row, Run
from gemmgate.suite.report import units
from gemmgate.suite.report.checks import by_data, cross_checks, timed_singly, without_checks
from gemmgate.suite.report.decisions import decisions
from gemmgate.suite.report.layout import Block, Cell, Column, Notes, Table, cells
from gemmgate.suite.report.means import means
from gemmgate.suite.report.static import static_blocks
from gemmgate.suite.report.times import cache_states, group, legend, times
from gemmgate.suite.report.totals import totals

_PARTS = ("warming", "compiling", "checking", "measuring", "waiting", "total")
_LEAST_SHARE = 0.05
"""Of the whole, for a step of the workers to be named."""


def blocks(run: Run) -> list[Block]:
    """All of a run, family by family."""
    by_family: dict[str, list[Rated]] = defaultdict(list)
    for rated in rate(run.rows):
        by_family[rated.row.family].append(rated)
    found: list[Block] = []
    for family, members in by_family.items():
        static = all(rated.row.kind == "static" for rated in members)
        found += static_blocks([rated.row for rated in members]) if static else _family(family, members, run)
    return [*(found or [Notes(("This run has no rows.",), "")]), where(run)]


def where(run: Run) -> Notes:
    """Machine, versions, commit, date, and where the seconds went."""
    machine, stack = run.machine, run.stack
    names = ("torch", "triton", "cuda", "driver", "cublas", "blas", "python")
    versions = [f"{name} {getattr(stack, name)}" for name in names if getattr(stack, name)]
    versions += [units.counted(stack.threads, "thread")] if stack.threads else []
    boards = sorted({row.board for row in run.rows if row.board}) or [machine.board]
    board = f", board{'s' if len(boards) > 1 else ''} {', '.join(boards)}" if any(boards) else ""
    commit = (run.commit[:10] or "no commit") + (" with uncommitted changes" if run.dirty else "")
    lines = [
        f"{machine.model} ({machine.key}{board}) · {' · '.join(versions) or 'unknown versions'}",
        f"commit {commit} · {run.utc} · method {run.method} · run {run.id}",
    ]
    if run.seconds:
        least_s = run.seconds.get("total", 0.0) * _LEAST_SHARE
        spent = [(name, value) for name, value in run.seconds.items() if name in _PARTS or value >= least_s]
        lines.append("Seconds: " + ", ".join(f"{name} {value:.1f}" for name, value in spent))
    return Notes(tuple(lines))


def times_of(run: Run, implementations: Sequence[str], cache: str) -> list[Rated]:
    """The rows of a run that a page shows: times in one cache state, without those of other timers.

    Raises UsageError for a name in `implementations` that the run does not have.
    """
    known = {row.implementation for row in run.rows}
    for name in implementations:
        if name not in known:
            raise unknown("implementation", name, known)
    return without_checks([r for r in rate(run.rows) if r.row.kind == "time" and r.row.cache == cache])


def _family(family: str, rated: Sequence[Rated], run: Run) -> list[Block]:
    timed = without_checks([r for r in rated if r.row.kind == "time"])
    lines = group(timed)
    shown = [line for line in lines if line.first_ok()]
    cases = len({r.row.case for r in rated})
    caches = cache_states(r.row for r in timed if r.row.status == "ok")
    yardsticks = list(dict.fromkeys(r.yardstick for r in timed if r.yardstick))
    title = f"{family}: {units.counted(cases, 'case')}" + (f", against {' or '.join(yardsticks)}" if yardsticks else "")
    found: list[Block] = []
    if shown:
        found += [times(title, shown, caches, yardsticks, run.limits), legend(shown, caches)]
    values = [r for r in rated if r.row.kind != "time" and r.row.status == "ok"]
    if values:
        found.append(_values(f"{family}: values" if shown else title, values))
    if not found:
        found.append(Notes((f"{title}: nothing was measured.",), "head"))
    found += cross_checks(rated) + timed_singly(rated) + by_data(rated) + decisions(rated) + _failures(rated)
    if shown:
        found += means(timed, caches, cases)
        found += totals(family, timed, run.selection, caches)
    return found


def _values(title: str, rated: Sequence[Rated]) -> Table:
    headers = ("case", "implementation", "kind", "phase", "target", "cache", "value", "unit", "marks")
    columns = tuple(Column(name, right=name == "value") for name in headers)
    rows = []
    for r in rated:
        marks = ", ".join(r.row.marks)
        said = (r.row.case, r.row.implementation, r.row.kind, r.row.phase, r.row.target, r.row.cache)
        rows.append(cells((*said, units.plain(r.row.value), r.row.unit, marks)))
    return Table(title, columns, tuple(rows)).without_empty_columns()


def _failures(rated: Sequence[Rated]) -> list[Block]:
    """What is not ok: refusals folded by reason and the cases it holds for, everything else case by case."""
    refused: dict[str, list[Row]] = defaultdict(list)
    failed: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for row in (r.row for r in rated if r.row.status != "ok"):
        if row.status == "unsupported":
            refused[row.reason].append(row)
        else:
            failed[row.status, row.case, row.implementation, row.phase, row.reason, row.detail].append(row.cache)
    found: list[Block] = []
    if failed:
        headers = ("status", "case", "implementation", "phase", "cache", "reason", "detail")
        rows = tuple(
            (Cell(key[0], "bad"), *cells((*key[1:4], " ".join(dict.fromkeys(caches)), *key[4:])))
            for key, caches in failed.items()
        )
        table = Table("Failed", tuple(Column(name, wraps=name == "detail") for name in headers), rows)
        found.append(table.without_empty_columns())
    if refused:
        columns = (
            Column("implementation", wraps=True),
            Column("cases", right=True),
            Column("reason"),
            Column("for example", wraps=True),
        )
        lines = tuple(
            cells((_folded(rows), str(len({row.case for row in rows})), reason, f"{rows[0].case}: {rows[0].detail}"))
            for reason, rows in refused.items()
        )
        found.append(Table("Unsupported", columns, lines))
    return found


def _folded(rows: Sequence[Row]) -> str:
    """Names of implementations, those that differ by a number once: `cublas, decompose_k_* (8)`."""
    names = dict.fromkeys(row.implementation for row in rows)
    stems: dict[str, list[str]] = defaultdict(list)
    for name in names:
        stems[re.sub(r"\d+$", "*", name)].append(name)
    return ", ".join(f"{stem} ({len(found)})" if len(found) > 1 else found[0] for stem, found in stems.items())
