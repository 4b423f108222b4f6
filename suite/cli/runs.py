"""`gemmgate runs`: what is stored."""

from __future__ import annotations

import json
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from gemmgate.suite.cli import _options, _terminal
from gemmgate.suite.errors import unknown
from gemmgate.suite.report.layout import Column, Table, cells
from gemmgate.suite.report.text import render
from gemmgate.suite.store import RunInfo

ORDER = 40
COLUMNS = {"id": 0, "machine": 0, "gpu": 2, "utc": 3, "commit": 4, "families": 1, "rows": 0, "state": 0}
"""In their order; where the terminal is narrow the highest number gives way first, 0 never."""


def command(
    context: typer.Context,
    format: Annotated[_options.Listing, typer.Option("--format")] = _options.Listing.TABLE,
    machine: Annotated[list[str] | None, typer.Option("--machine", metavar="GLOB,...", help="Machine keys.")] = None,
    finish: Annotated[
        str,
        typer.Option("--finish", metavar="RUN", help="Write the file of an interrupted run, with the rows it has."),
    ] = "",
    results: _options.Results = None,
) -> None:
    """List the stored runs, oldest first.

    The JSON is a list of objects with the keys id, machine, gpu, utc, commit, families, rows, state, path
    and note. Files that cannot be read are among them, with the state "unreadable" and the reason as note.
    A run that `--finish` ends needs no GPU for it and can be shown on pages; `gemmgate run --resume` still measures
    what it lacks, as another run.
    """
    _options.refuse_beside(context, {"finish": ("results",)})
    store = _options.store(results)
    if finish:
        _terminal.say(f"stored as {store.finish(finish)}")
        return
    infos = store.runs()
    wanted = _options.globs("--machine", machine)
    for glob in wanted if infos else ():
        if not any(fnmatchcase(info.machine, glob) for info in infos):
            raise unknown("machine", glob, [info.machine for info in infos])
    infos = [info for info in infos if not wanted or any(fnmatchcase(info.machine, glob) for glob in wanted)]
    for info in infos:
        if info.note:
            _terminal.say(info.note)
    if format is _options.Listing.JSON:
        _terminal.put(json.dumps([_plain(info) for info in infos], indent=2))
    elif infos:
        _terminal.put(_table(infos))
    else:
        _terminal.say(f"no run is stored in {store.root}. `gemmgate run` measures one.")


def _plain(info: RunInfo) -> dict[str, Any]:
    return {**asdict(info), "path": str(info.path)}


def _table(infos: list[RunInfo]) -> str:
    columns = tuple(Column(name, right=name == "rows", drop=drop) for name, drop in COLUMNS.items())
    rows = tuple(cells(_texts(info)) for info in infos)
    return render([Table("", columns, rows)], width=_terminal.width(), color=_terminal.color())


def _texts(info: RunInfo) -> tuple[str, ...]:
    families = ", ".join(info.families)
    return (info.id, info.machine, info.gpu, info.utc, info.commit[:10], families, str(info.rows), info.state)
