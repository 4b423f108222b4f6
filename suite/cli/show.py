"""`gemmgate show`: a run as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from gemmgate.suite import report
from gemmgate.suite.cli import _options, _terminal
from gemmgate.suite.cli._stored import loaded
from gemmgate.suite.errors import UsageError, unknown
from gemmgate.suite.records import Row, Run

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
    shown = narrowed(loaded(store, run), wanted)
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


def _matches(name: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(name, glob) for glob in globs)


def _place(row: Row, implementation: str) -> tuple[str, ...]:
    return (row.visit, row.family, row.case, row.cache, implementation)
