"""`gemmgate runs`: what is stored."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from gemmgate.suite.cli import _options, _terminal
from gemmgate.suite.errors import unknown
from gemmgate.suite.store import RunInfo

ORDER = 40
COLUMNS = ("id", "machine", "gpu", "utc", "commit", "families", "rows", "state")


def command(
    format: Annotated[_options.Listing, typer.Option("--format")] = _options.Listing.TABLE,
    machine: Annotated[list[str] | None, typer.Option("--machine", metavar="GLOB,...", help="Machine keys.")] = None,
    results: _options.Results = None,
) -> None:
    """List the stored runs, oldest first.

    The JSON is a list of objects with the keys id, machine, gpu, utc, commit, families, rows, state, path
    and note. Files that cannot be read are among them, with the state "unreadable" and the reason as note.
    """
    store = _options.store(results)
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
    table = Table(box=None, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="right" if column == "rows" else "left", overflow="fold")
    for info in infos:
        table.add_row(info.id, info.machine, info.gpu, info.utc, info.commit[:10], *_sizes(info), info.state)
    console = Console(file=io.StringIO(), width=_terminal.width() or 1000, force_terminal=_terminal.color())
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _sizes(info: RunInfo) -> tuple[str, str]:
    return ", ".join(info.families), str(info.rows)
