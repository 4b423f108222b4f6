"""`gemmgate publish`: the stored runs as a history."""

from __future__ import annotations

from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from gemmgate.suite import history
from gemmgate.suite.cli import _options, _terminal
from gemmgate.suite.commits import commit_times
from gemmgate.suite.errors import UsageError, unknown
from gemmgate.suite.records import Run
from gemmgate.suite.report.history import SCRIPT, history_page
from gemmgate.suite.series import Place, collect
from gemmgate.suite.store import Store
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
    history.html, beside them, needs no network. Steps found in the series are listed.
    """
    if find_spec("plotly") is None:
        raise UsageError("plotly is not installed here: `nox -s publish` installs it, or `pip install asv plotly`.")
    store = _options.store(results)
    runs = _finished(store, _options.globs("--machine", machine))
    series, notes = collect(runs, commit_times(own_overlay()))
    for note in notes:
        _terminal.say(f"left out: {note}.")
    if not series:
        raise UsageError(
            f"None of the {len(runs)} runs in {store.root} can be put into the history of this repository."
        )
    folder = html or store.root / "html"
    history.write_asv(series, store.root / "asv")
    aside = history.publish(own_overlay(), store.root / "asv", folder)
    steps = {place: history.steps([point.value for point in points]) for place, points in series.items()}
    _write_page(folder, history_page(series, steps, notes))
    for place, found in steps.items():
        for step in found:
            _terminal.put(f"{_name(place)}: {step.ratio - 1:+.1%} at {series[place][step.index].commit[:10]}")
    if aside:
        _terminal.say(f"asv shows the main line alone: results of {aside} commits beside it are on {PAGE} only.")
    pages = f"{folder / PAGE}; asv's pages: {folder / 'index.html'}"
    _terminal.say(f"{len(series)} series of {len(runs)} runs: {pages}.")


def _finished(store: Store, machines: tuple[str, ...]) -> list[Run]:
    infos = [info for info in store.runs() if info.state == "finished" and info.rows]
    if not infos:
        raise UsageError(f"No finished run is stored in {store.root}: `gemmgate run` measures one.")
    for glob in machines:
        if not any(fnmatchcase(info.machine, glob) for info in infos):
            raise unknown("machine", glob, [info.machine for info in infos])
    chosen = [info for info in infos if not machines or any(fnmatchcase(info.machine, glob) for glob in machines)]
    return [store.load(str(info.path)) for info in chosen]


def _name(place: Place) -> str:
    return f"{place.family}/{place.implementation}/{place.case} {place.conditions} {place.quantity} on {place.machine}"


def _write_page(folder: Path, text: str) -> None:
    from plotly.offline import get_plotlyjs

    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCRIPT).write_text(get_plotlyjs(), encoding="utf-8")
    (folder / PAGE).write_text(text, encoding="utf-8")
