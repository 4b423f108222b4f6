"""`gemmgate show`: a run as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer

from gemmgate.suite import report
from gemmgate.suite.again import go_on
from gemmgate.suite.cli import _options, _terminal
from gemmgate.suite.errors import UsageError, unknown
from gemmgate.suite.records import Row, Run
from gemmgate.suite.store import Reading

ORDER = 30
Status = Annotated[
    list[str] | None, typer.Option("--status", metavar="GLOB,...", help="Statuses, such as 'broken,error'.")
]


def command(
    run: Annotated[
        str, typer.Argument(help="A path, an id, latest, latest:<machine> or baseline:<machine>; several with commas.")
    ] = "latest",
    format: Annotated[_options.Format, typer.Option("--format")] = _options.Format.TABLE,
    family: _options.Family = None,
    case: _options.Case = None,
    impl: _options.Impl = None,
    status: Status = None,
    goals: Annotated[
        bool,
        typer.Option("--goals", help="Where the run stands against what split-K products or the router are to reach."),
    ] = False,
    results: _options.Results = None,
) -> None:
    """Show a run, also one that goes on or was interrupted.

    Options narrow it to rows that have every property asked for. The yardstick that such a row is quoted
    against stays beside it. The JSON, {"run": {...}, "rows": [...]}, is a versioned interface: see docs/format.
    """
    wanted = {
        "family": _options.globs("--family", family),
        "case": _options.globs("--case", case),
        "implementation": _options.globs("--impl", impl),
        "status": _options.globs("--status", status),
    }
    store = _options.store(results)
    reading = store.read(run)
    shown = narrowed(reading.run, wanted)
    for remark in remarks(reading, store.root):
        _terminal.say(remark)
    made = report.show_goals if goals else report.show
    _terminal.put(made(shown, format.value, width=_terminal.width(), color=_terminal.color()))


def narrowed(run: Run, wanted: dict[str, tuple[str, ...]]) -> Run:
    """The rows whose fields match one of the globs each, with the yardsticks they are quoted against."""
    for field, globs in wanted.items():
        names = {str(getattr(row, field)) for row in run.rows}
        for glob in globs:
            if not any(fnmatchcase(name, glob) for name in names):
                raise unknown(field, glob, names)
    chosen = [row for row in run.rows if all(_matches(getattr(row, field), globs) for field, globs in wanted.items())]
    if run.rows and not chosen:
        asked = ", ".join(f"{field} '{','.join(globs)}'" for field, globs in wanted.items() if globs)
        raise UsageError(f"No row of run {run.id} has all of {asked}, though each exists. Ask for less.")
    quoted = {_place(row, row.yardstick) for row in chosen if row.status == "ok" and row.yardstick}
    ids = {id(row) for row in chosen}
    return replace(
        run, rows=tuple(row for row in run.rows if id(row) in ids or _place(row, row.implementation) in quoted)
    )


def remarks(reading: Reading, root: Path) -> list[str]:
    """What a reader should know about a run that is not finished, or not all there."""
    run, rows = reading.run, len(reading.run.rows)
    command = go_on(run, root)
    said = {
        "running": f"run {run.id} goes on: {rows} rows so far.",
        "interrupted": f"run {run.id} was interrupted after {rows} rows{f': `{command}` goes on' if command else ''}.",
    }
    return [*([said[reading.state]] if reading.state in said else []), *reading.notes]


def _matches(name: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(name, glob) for glob in globs)


def _place(row: Row, implementation: str) -> tuple[str, ...]:
    return (row.visit, row.family, row.case, row.cache, implementation)
