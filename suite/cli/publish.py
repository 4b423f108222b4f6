"""`gemmgate publish`: the stored runs as a history."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer

from gemmgate.suite import causes, history, regressions
from gemmgate.suite.cli import _options, _terminal
from gemmgate.suite.cli._stored import gathered
from gemmgate.suite.cli.report import plotly_script
from gemmgate.suite.commits import commit_times
from gemmgate.suite.errors import UnreadableError, UsageError, unknown
from gemmgate.suite.offline import make_offline
from gemmgate.suite.records import Run
from gemmgate.suite.report import text
from gemmgate.suite.report.history import REPORT, SCRIPT, history_page
from gemmgate.suite.report.page import report_page
from gemmgate.suite.report.steps import blocks
from gemmgate.suite.series import collect, method_changes
from gemmgate.suite.store import RunInfo, Store
from gemmgate.suite.workers import own_overlay

ORDER = 70
PAGE = "history.html"


def command(
    machine: Annotated[list[str] | None, typer.Option("--machine", metavar="GLOB,...", help="Machine keys.")] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="DIR", help="Where pages go; emptied first. Default: html in results."),
    ] = None,
    results: _options.Results = None,
) -> None:
    """Write the stored runs out as a history with pages.

    Runs become asv's result files, beside those that `asv run` wrote, and `asv publish` makes its pages of both.
    history.html and report.html, of each machine with its newest versions, stand beside them. No page needs a network.
    Steps found in the series are listed.
    """
    plotly_script()  # or say at once that it is missing
    store = _options.store(results)
    runs = finished(store, _options.globs("--machine", machine))
    series, notes = collect(runs, commit_times(own_overlay()))
    for note in notes:
        _terminal.say(f"left out: {note}.")
    changes = method_changes(series)
    for change in changes:
        _terminal.say(f"{change}; the older times stand apart.")
    if not series:
        raise UsageError(
            f"None of the {len(runs)} runs in {store.root} can be put into the history of this repository."
        )
    folder = _options.writable_folder("--html", html or store.root / "html")
    history.write_asv(series, store.root / "asv")
    steps = history.all_steps(series)
    found = causes.found(series, steps)
    aside = history.publish(own_overlay(), store.root / "asv", folder)
    regressions.list_regressions(folder, series, found)
    for address in make_offline(folder):
        _terminal.say(f"asv's pages load {address}, which this gemmgate has no copy of: they need a network.")
    _write_page(folder, history_page(series, steps, notes, changes))
    (folder / REPORT).write_text(report_page(_newest(runs), plotly_script()), encoding="utf-8")
    _terminal.put(text.render(blocks(found, len(series), {}), width=_terminal.width(), color=_terminal.color()))
    if aside:
        _terminal.say(f"asv shows the main line alone: results of {aside} commits beside it are on {PAGE} only.")
    pages = f"{folder / PAGE}; asv's pages: {folder / 'index.html'}"
    _terminal.say(f"{len(series)} series of {len(runs)} runs: {pages}.")


def finished(store: Store, machines: tuple[str, ...]) -> list[Run]:
    """The finished runs of the machines that match; raises UsageError where there are none.

    Those that go on, were interrupted or cannot be read are said to be left out.
    """

    def matches(info: RunInfo) -> bool:
        return not machines or any(fnmatchcase(info.machine, glob) for glob in machines)

    known = store.runs()
    for info in known:
        if info.state in ("running", "interrupted") and matches(info):
            said = "goes on" if info.state == "running" else "was interrupted"
            _terminal.say(f"left out: run {info.id} {said}; `gemmgate show {info.id}` says how to finish it.")
    infos = [info for info in known if info.state == "unreadable" or (info.state == "finished" and info.rows)]
    if not infos:
        raise UsageError(f"No finished run is stored in {store.root}: `gemmgate run` measures one.")
    for glob in machines:
        if not any(fnmatchcase(info.machine, glob) for info in infos):
            raise unknown("machine", glob, [info.machine for info in infos])
    (runs,) = gathered([store], lambda info: matches(info) and (info.rows > 0 or info.state == "unreadable"))
    if not runs:
        raise UnreadableError(f"No finished run in {store.root} can be read: `gemmgate runs` says why.")
    return list(runs)


def _newest(runs: list[Run]) -> list[Run]:
    """Of each machine the runs of its newest stack and method."""
    newest: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: run.utc):
        newest[run.machine.key] = run
    lasting = {(run.machine.key, run.stack, run.method) for run in newest.values()}
    return [run for run in runs if (run.machine.key, run.stack, run.method) in lasting]


def _write_page(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCRIPT).write_text(plotly_script(), encoding="utf-8")
    (folder / PAGE).write_text(text, encoding="utf-8")
