"""`gemmgate run`: check, measure, store, show."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gemmgate.suite import catalog, loop, warming
from gemmgate.suite.again import go_on
from gemmgate.suite.case_rows import missing
from gemmgate.suite.cli import _options as options
from gemmgate.suite.cli import _terminal
from gemmgate.suite.cli._beginning import begin_run
from gemmgate.suite.cli._measuring import known_limits, run_loop, short_of_time, too_short, usual_caches
from gemmgate.suite.commits import describe_commit
from gemmgate.suite.errors import PASS, REGRESSION, CannotMeasureError, UsageError
from gemmgate.suite.records import Run
from gemmgate.suite.report import show
from gemmgate.suite.shapes import Made
from gemmgate.suite.tuning.pool import WITHOUT_DEVICE
from gemmgate.suite.workers import Worker, own_overlay, private_caches

ORDER = 20
ALL_CACHES = ("cold", "hot", "serving")
DATA = ("normal", "uniform", "integers", "zeros", "activations")
TIMERS = ("events",)
_LEAST_WARMED_S = 30.0
"""With fewer seconds, workers that compile beforehand would be ended before they have compiled anything."""


@options.grouped
def command(
    context: typer.Context,
    selected: options.Selected,
    given: options.Given,
    device: options.Device = "auto",
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            max=1e6,
            help="Time for the whole run, divided over its cases and filled with longer samples. "
            "Starting takes 5 to 15 of them, and one case is measured in any case.",
        ),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=50.0, metavar="PERCENT", help="Stop sampling once every ratio is known within this."
        ),
    ] = None,
    cache: Annotated[
        str, typer.Option(help=f"Cache states, of: {', '.join(ALL_CACHES)}. Default: cold,hot on a GPU, hot on a CPU.")
    ] = "",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the inputs.")] = 0,
    data: Annotated[str, typer.Option(help=f"Distribution of the inputs, of: {', '.join(DATA)}.")] = "normal",
    sweep_data: Annotated[
        bool, typer.Option("--sweep-data", help="Every distribution in turn: shows time and error by it.")
    ] = False,
    cross_check: Annotated[
        bool, typer.Option("--cross-check", help="Time by blocked events and by CUPTI too, and explain what differs.")
    ] = False,
    energy: Annotated[
        bool, typer.Option("--energy", help="Joules of a call too, where the board counts them: 0.4 s of each.")
    ] = False,
    timer: Annotated[
        str, typer.Option(metavar="NAME", help="events: also time calls one by one, as published figures are.")
    ] = "",
    compile_workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Workers that first compile our kernels, and what takes long, such as Inductor's ways; 0: none. "
            "Default: by cores.",
        ),
    ] = None,
    commit: Annotated[str, typer.Option(help="Commit to file the run under, where git cannot tell.")] = "",
    resume: Annotated[str, typer.Option(metavar="RUN", help="Measure what is missing in this run.")] = "",
    format: Annotated[options.Format, typer.Option(help="How the finished run is shown.")] = options.Format.TABLE,
    results: options.Results = None,
    suite: options.Suite = None,
) -> None:
    """Check, measure, store and show. Without --case and --tag: the cases tagged quick.

    With --config or --shapes, the products of a model or of a file instead, each as one call and summed up as
    often as it is called.
    """
    begun = time.monotonic()
    options.refuse_beside(context, {"sweep_data": {str(one.name) for one in context.command.params} - {"data"}})
    if data not in DATA:
        raise UsageError(f"--data '{data}' is none of {', '.join(DATA)}.")
    if timer not in ("", *TIMERS):
        raise UsageError(f"--timer '{timer}' is none of {', '.join(TIMERS)}.")
    store = options.store(results)
    reading = store.read(resume) if resume else None
    suites = suite or [Path(folder) for folder in (reading.run.selection.get("suites", ()) if reading else ())]
    known = options.families(suites)
    selection = selected.selection()
    made = given.made(known, selection.families)
    wished = _caches(cache)
    if reading:
        earlier = reading.run.selection
        if not {"caches", "seed", "data"} <= earlier.keys():
            raise UsageError(f"Run {reading.run.id} does not say what it selected: `gemmgate run` did not begin it.")
        other_inputs = seed not in (0, earlier["seed"]) or data not in ("normal", earlier["data"])
        flags = {"sweep_data": sweep_data, "cross_check": cross_check, "energy": energy}
        other_flags = any(flag and not earlier.get(name) for name, flag in flags.items())
        _refuse_both(resume, selection, other=bool(cache or made) or other_inputs or other_flags)
        selection = catalog.Selection.from_json(earlier)
        made = Made.from_json(earlier["made"]) if "made" in earlier else None
        wished, seed, data = tuple(earlier["caches"]), earlier["seed"], earlier["data"]
        sweep_data, cross_check = earlier.get("sweep_data", False), earlier.get("cross_check", False)
        energy = earlier.get("energy", False)
        timer = timer or earlier.get("timer", "")
    elif made is None and not selection.cases and not selection.tags:
        selection = replace(selection, tags=("quick",))
    distributions = DATA if sweep_data else (data,)
    choices = (known.with_cases(made.cases) if made else known).select(selection)
    if reading and reading.state == "finished" and not missing(choices, wished, reading.run.rows, distributions):
        _terminal.say(f"nothing is missing in run {reading.run.id}: nothing was measured or stored.")
        raise typer.Exit(PASS)
    committed = describe_commit(own_overlay(), commit)
    console = Console(stderr=True)
    start = partial(_started, options.device(device), suites, choices)
    worker = start()
    try:
        if cross_check and not worker.target.is_gpu:
            raise UsageError("--cross-check compares the timers of a GPU; on a CPU there is one. Leave it out.")
        if timer and not worker.target.is_gpu:
            raise UsageError(f"--timer {timer} is for a GPU; a CPU has one timer. Leave it out.")
        caches = wished or usual_caches(worker)
        conditions = {
            **selection.to_json(),
            **({"made": made.to_json()} if made else {}),
            "caches": list(caches),
            "seed": seed,
            "data": data,
            "sweep_data": sweep_data,
            "cross_check": cross_check,
            "energy": energy,
            "timer": timer,
            **({"suites": [str(folder) for folder in suites]} if suites else {}),
        }
        now = begin_run(worker.machine, worker.stack, conditions, committed)
        journal = store.resume(resume, now) if resume else store.begin(now)
        with journal:
            choices = missing(choices, caches, journal.rows, distributions)
            share = precision / 100 if precision else None
            singly = timer == "events"
            plan = loop.Plan(choices, caches, seed, distributions, seconds, cross_check, share, energy, singly)
            warmed_s = _warm(choices, worker, suites, compile_workers, seconds)
            limits = known_limits(worker, store)
            journal.update(limits=limits)
            if seconds and (remark := short_of_time(time.monotonic() - begun, seconds, len(choices))):
                _terminal.say(remark)
            done = run_loop(plan, worker, limits, restart=start, sink=journal.extend, console=console, begun=begun)
            journal.update(seconds=_spent(done.spent, warmed_s))
            if len(done.skipped) == len(choices) and not journal.rows:
                raise CannotMeasureError(too_short(done, seconds or 0.0))
            path = journal.finish()
    finally:
        worker.kill()
    finished = store.load(str(path))
    _terminal.put(show(finished, format.value, width=_terminal.width(), color=_terminal.color()))
    _terminal.say(f"stored as {path}")
    if done.skipped:
        _terminal.say(
            f"{len(done.skipped)} of {len(choices)} cases found no time within --seconds {seconds:g}; "
            f"go on with `{go_on(finished, store.root)}`."
        )
    raise typer.Exit(_exit_code(finished))


def _started(device: str, suites: Sequence[Path], choices: Sequence[catalog.Choice]) -> Worker:
    """The worker that measures, all imported and its device touched, so that the first case is like the others.

    Where that ends it, as a module can that is imported, one starts without: each import then costs its own row.
    """
    modules = sorted({(choice.family.name, name) for choice in choices for name in choice.implementations})
    try:
        worker = Worker(device, suites=suites, warm=True, modules=modules)
        worker.greet()
        worker.meet()
    except CannotMeasureError:
        return Worker(device, suites=suites)
    return worker


def _warm(
    choices: Sequence[catalog.Choice], worker: Worker, suites: Sequence[Path], count: int | None, seconds: float | None
) -> float:
    """Compiles beforehand where that pays, for a third of `seconds` at most, and says so. Seconds that it took."""
    if count == 0 or (count is None and seconds is not None and seconds < _LEAST_WARMED_S):
        return 0.0
    folder = Path(private_caches()["TRITON_CACHE_DIR"])
    known = warming.Known(folder, worker.kernels_tree, suites, worker.target)
    without = known.lacking(warming.without_device(choices)) if worker.target.is_gpu else []
    slow, cores = warming.on_device(choices), len(os.sched_getaffinity(0))
    if count is None:
        own = warming.own_worker_count(worker.target, cores, without)
        counts = warming.shared([warming.worker_count(worker.target, cores, len(slow)), own])
    else:
        counts = warming.shared([min(count, len(slow)), min(count, len(without))])
    if not any(counts):
        return 0.0
    with tempfile.TemporaryDirectory(prefix="gemmgate-claims-") as claims:
        alone = partial(Worker, "cpu", suites=suites, warm=True, environment=WITHOUT_DEVICE)
        compile_only = partial(warming.compile_only, worker.target, Path(claims), known)
        crews = (
            warming.Crew(
                slow, counts[0], partial(Worker, worker.device, suites=suites, warm=True), warming.prepare, True
            ),
            warming.Crew(without, counts[1], alone, compile_only, False),
        )
        working = [crew for crew in crews if crew.count]
        cases = {(choice.family.name, choice.case.name) for crew in working for choice in crew.choices}
        _terminal.say(f"compiling beforehand for {len(cases)} cases, with {sum(counts)} workers.")
        warmed = warming.warm(working, seconds / 3 if seconds else None)
    if warmed.problem:
        _terminal.say(f"compiled for {warmed.cases} of {warmed.of} cases; {warmed.problem}")
    return warmed.seconds


def _spent(spent: loop.Spent, warmed_s: float) -> dict[str, float]:
    """Where the seconds went, with those of compiling beforehand taken out of the waiting."""
    seconds = spent.to_json()
    if warmed_s:
        seconds = {"warming": warmed_s, **seconds, "waiting": max(seconds["waiting"] - warmed_s, 0.0)}
    return seconds


def _caches(text: str) -> tuple[str, ...]:
    caches = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    for cache in caches:
        if cache not in ALL_CACHES:
            raise UsageError(f"--cache '{cache}' is none of {', '.join(ALL_CACHES)}.")
    return caches


def _refuse_both(resume: str, selection: catalog.Selection, *, other: bool) -> None:
    if selection != catalog.Selection() or other:
        raise UsageError(
            f"--resume {resume} measures what that run selected: leave out --family, --case, --impl, --tag, --cache, "
            "--config, --shapes, --seed, --data, --sweep-data, --cross-check and --energy."
        )


def _exit_code(run: Run) -> int:
    """1 where something computed a wrong result; an error where nothing could be measured."""
    if any(row.status == "broken" for row in run.rows):
        return REGRESSION
    if not any(row.status == "ok" for row in run.rows):
        raise CannotMeasureError("No implementation could be measured: the table says why for each.")
    return PASS
