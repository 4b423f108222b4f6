"""`gemmgate run`: check, measure, store, show."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from gemmgate.suite import catalog, loop
from gemmgate.suite.cli import _options as options
from gemmgate.suite.cli import _terminal
from gemmgate.suite.cli._progress import Display
from gemmgate.suite.commits import describe_commit
from gemmgate.suite.errors import PASS, REGRESSION, CannotMeasureError, UsageError
from gemmgate.suite.outcomes import utc_now
from gemmgate.suite.records import Limits, Run, run_id
from gemmgate.suite.report import show
from gemmgate.suite.store import Journal
from gemmgate.suite.workers import Worker, own_overlay

ORDER = 20
CACHES = ("cold", "hot")
DATA = ("normal", "uniform", "integers", "zeros", "activations")
LIMITS_DEADLINE_S = 120.0


class Format(StrEnum):
    """Formats of a run."""

    TABLE = "table"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"


def command(
    family: options.Family = None,
    case: options.Case = None,
    impl: options.Impl = None,
    tag: options.Tag = None,
    device: options.Device = "auto",
    seconds: Annotated[
        float | None,
        typer.Option(min=1.0, help="Time for the whole run, divided over its cases and filled with longer samples."),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=50.0, metavar="PERCENT", help="Stop sampling once every ratio is known within this."
        ),
    ] = None,
    cache: Annotated[str, typer.Option(help="Cache states, of: cold, hot. Default: both on a GPU, hot on a CPU.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the inputs.")] = 0,
    data: Annotated[str, typer.Option(help=f"Distribution of the inputs, of: {', '.join(DATA)}.")] = "normal",
    commit: Annotated[str, typer.Option(help="Commit to file the run under, where git cannot tell.")] = "",
    resume: Annotated[str, typer.Option(metavar="RUN", help="Measure what is missing in this run.")] = "",
    format: Annotated[Format, typer.Option(help="How the finished run is shown.")] = Format.TABLE,
    results: options.Results = None,
    suite: options.Suite = None,
) -> None:
    """Check, measure, store and show. Without --case and --tag: the cases tagged quick."""
    begun = time.monotonic()
    if data not in DATA:
        raise UsageError(f"--data '{data}' is none of {', '.join(DATA)}.")
    suites = suite or []
    known = options.families(suites)
    store = options.store(results)
    selection = options.selection(family, case, impl, tag)
    wished = _caches(cache)
    if resume:
        earlier = store.load(resume).selection
        _refuse_both(resume, selection, cache)
        selection = catalog.Selection.from_json(earlier)
        wished, seed, data = tuple(earlier["caches"]), earlier["seed"], earlier["data"]
    elif not selection.cases and not selection.tags:
        selection = replace(selection, tags=("quick",))
    choices = known.select(selection)
    committed = describe_commit(own_overlay(), commit)
    console = Console(stderr=True)
    start = partial(Worker, options.device(device), suites=suites)
    worker = start()
    try:
        caches = wished or (CACHES if worker.target.is_gpu else ("hot",))
        utc = utc_now()
        now = Run(
            id=run_id(utc, committed.name, dirty=committed.dirty),
            utc=utc,
            commit=committed.name,
            dirty=committed.dirty,
            machine=worker.machine,
            stack=worker.stack,
            selection={**selection.to_json(), "caches": list(caches), "seed": seed, "data": data},
            command=shlex.join(["gemmgate", *sys.argv[1:]]),
        )
        journal = store.resume(resume, now) if resume else store.begin(now)
        with journal:
            choices = loop.missing(choices, caches, journal.rows)
            plan = loop.Plan(choices, caches, seed, data, seconds, precision / 100 if precision else None)
            skipped = _measure(plan, worker, journal, console, start, begun, store.limits(worker.machine.key))
            path = journal.finish()
    finally:
        worker.kill()
    finished = store.load(str(path))
    _terminal.put(show(finished, format.value, width=_terminal.width(), color=_terminal.color()))
    _terminal.say(f"stored as {path}")
    if skipped:
        _terminal.say(
            f"{len(skipped)} of {len(choices)} cases found no time within --seconds {seconds:g}; "
            f"go on with `gemmgate run --resume {finished.id}`."
        )
    raise typer.Exit(_exit_code(finished))


def _measure(
    plan: loop.Plan,
    worker: Worker,
    journal: Journal,
    console: Console,
    start: partial[Worker],
    begun: float,
    limits: Limits | None,
) -> list[catalog.Choice]:
    """Runs the loop into the journal; returns the cases for which there was no time."""
    if limits is None:
        limits = measured_limits(worker)
        _terminal.say("roofs are a short version, for no calibration of this machine is stored: `gemmgate calibrate`.")
    else:
        _terminal.say(f"roofs and floors are those of calibration {limits.source}.")
    journal.update(limits=limits)
    with Display(console) as display:
        running = loop.Loop(plan, worker, limits, restart=start, sink=journal.append, progress=display, begun=begun)
        running.run()
    journal.update(seconds=running.spent.to_json())
    return running.skipped


def measured_limits(worker: Worker, *, long: bool = False) -> Limits:
    """What the worker's machine can do, measured now."""
    reply = worker.ask("limits", LIMITS_DEADLINE_S, long=long)
    if not reply.get("ok"):
        raise CannotMeasureError(f"This machine's limits could not be measured: {reply['detail']}.")
    return Limits(**reply["limits"])


def _caches(text: str) -> tuple[str, ...]:
    caches = tuple(filter(None, text.split(",")))
    for cache in caches:
        if cache not in CACHES:
            raise UsageError(f"--cache '{cache}' is none of {', '.join(CACHES)}.")
    return caches


def _refuse_both(resume: str, selection: catalog.Selection, cache: str) -> None:
    if selection != catalog.Selection() or cache:
        raise UsageError(
            f"--resume {resume} measures what that run selected: leave out --family, --case, --impl, --tag and --cache."
        )


def _exit_code(run: Run) -> int:
    """1 where something computed a wrong result; an error where nothing could be measured."""
    if any(row.status == "broken" for row in run.rows):
        return REGRESSION
    if not any(row.status == "ok" for row in run.rows):
        raise CannotMeasureError("No implementation could be measured: the table says why for each.")
    return PASS
