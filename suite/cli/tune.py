"""`gemmgate tune`: find the best tiles for this device and write its tuned tables."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gemmgate.suite import profiles, report
from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import Catalog, Item, Selection
from gemmgate.suite.cli import _options as options
from gemmgate.suite.cli import _terminal
from gemmgate.suite.cli._beginning import begin_run
from gemmgate.suite.cli._measuring import known_limits
from gemmgate.suite.cli._stored import loaded
from gemmgate.suite.commits import describe_commit
from gemmgate.suite.errors import PASS, CannotMeasureError, UsageError
from gemmgate.suite.records import Limits, Row, Run
from gemmgate.suite.report import units
from gemmgate.suite.store import Journal, Reading
from gemmgate.suite.tuning import tables
from gemmgate.suite.tuning.picks import picks, searched
from gemmgate.suite.tuning.planned import planned
from gemmgate.suite.tuning.pool import WITHOUT_DEVICE, Pool
from gemmgate.suite.tuning.racing import Search
from gemmgate.suite.tuning.tuner import NO_TILES, Tuner
from gemmgate.suite.workers import Worker, own_overlay

ORDER = 65
_SPARED_CORES = 2
"""For the worker that times, and for this process."""
MEANT = {
    "show": ("format", "results"),
    "plan": ("family", "case", "impl", "tag", "jobs", "resume", "format", "results", "suite"),
}
"""Parameters that have a meaning beside those that search nothing."""


@options.grouped
def command(
    context: typer.Context,
    selected: options.Selected,
    device: options.Device = "auto",
    seconds: Annotated[
        float | None, typer.Option(min=1.0, max=1e6, help="Time for all searches; it settles how wide each is.")
    ] = None,
    profile: Annotated[str, typer.Option(help="Name of the table. Default: the device's, such as nvidia-h200.")] = "",
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Time every legal tile too, and say what each pick costs against the best.")
    ] = False,
    plan: Annotated[
        str,
        typer.Option(metavar="GPU", help="Only list the searches for a GPU such as h200, with an estimate of time."),
    ] = "",
    show: Annotated[
        str, typer.Option(metavar="ID", help="Only show a stored one: an id, a path, latest, latest:<machine>.")
    ] = "",
    jobs: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes that compile. Default: the cores less two.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the inputs.")] = 0,
    commit: Annotated[str, typer.Option(help="Commit to file it under, where git cannot tell.")] = "",
    resume: Annotated[str, typer.Option(metavar="ID", help="Search what this tuning lacks.")] = "",
    table_folder: Annotated[
        Path | None,
        typer.Option("--tables", metavar="DIR", help="Write tables here, a folder a family, not beside the kernels."),
    ] = None,
    format: Annotated[options.Page, typer.Option(help="How it is shown.")] = options.Page.TABLE,
    results: options.Results = None,
    suite: options.Suite = None,
) -> None:
    """Find the best tiles for this device, and write its tuned tables.

    Without --case and --tag: the cases tagged quick. Every candidate's time is kept below results/tunings.
    """
    begun = time.monotonic()
    options.refuse_beside(context, MEANT)
    store = options.store(results).tunings
    if show:
        _put(loaded(store, show), format)
        return
    known = options.families(suite or [])
    selection = selected.selection()
    reading = store.read(resume) if resume else None
    earlier = reading.run if reading else None
    if earlier and selection != Selection():
        raise UsageError(
            f"--resume {resume} searches what it began with: leave out --family, --case, --impl and --tag."
        )
    if earlier:
        selection = Selection.from_json(earlier.selection)
    elif not selection.cases and not selection.tags:
        selection = replace(selection, tags=("quick",))
    asked = _items(known, selection)
    done = searched(earlier.rows) if earlier else set()
    items = [item for item in asked if (item.family.name, item.case.name, item.implementation) not in done]
    if not items and reading and reading.state == "finished":
        _terminal.say(f"nothing is missing in tuning {resume}: nothing was searched.")
        raise typer.Exit(PASS)
    cores = len(os.sched_getaffinity(0))
    count = jobs or (cores if plan else max(1, cores - _SPARED_CORES))
    modules = sorted({(item.family.name, item.implementation) for item in items})
    compiler = partial(Worker, "cpu", suites=suite or [], warm=True, modules=modules, environment=WITHOUT_DEVICE)
    pool = Pool(compiler, count if items else 0)  # of a tuning that was searched to its end only tables may lack
    if plan:
        _show_plan(pool, items, plan, format)
        return
    start = partial(_started, options.device(device), suite or [], modules)
    try:
        worker = start()
        pool.target = worker.target
        own_tables = _Tables(known, asked, worker.target, profile, table_folder)
        # Its tables are its output, and what they said before it decides no time: each row has the tile that it is of.
        committed = describe_commit(own_overlay(), commit, apart=own_tables.paths)
        run = begin_run(worker.machine, worker.stack, selection.to_json(), committed)
        with store.resume(resume, run) if resume else store.begin(run) as journal:
            # On a CPU, which no model of bytes describes, they would cost more than they tell.
            journal.update(limits=known_limits(worker, options.store(results)) if worker.target.is_gpu else Limits())
            tuner = Tuner(
                items,
                worker,
                pool,
                journal.run.limits,
                restart=start,
                sink=journal.extend,
                progress=_Lines(),
                begun=begun,
                seconds=seconds,
                seed=seed,
                oracle=oracle,
            )
            try:
                tuner.run()
            finally:
                tuner.worker.kill()
                paths = own_tables.write(journal)
            if items:
                _report_left_out(tuner, journal, items, selection, reading)
            journal.update(seconds=tuner.spent_s)
            path = journal.finish()
    finally:
        pool.close()
    _put(store.load(str(path)), format)
    _terminal.say(f"stored as {path}; tables: {', '.join(map(str, paths)) or 'none, for there is no pick'}")
    if not paths:
        raise CannotMeasureError("No search came to a pick: the table says why for each.")


def _started(device: str, suites: Sequence[Path], modules: Sequence[tuple[str, str]]) -> Worker:
    """The worker that times, all imported and its device touched, so that the first search is like the others."""
    worker = Worker(device, suites=suites, warm=True, modules=modules)
    worker.greet()
    worker.meet()
    return worker


def _put(run: Run, format: options.Page) -> None:
    _terminal.put(report.show_tuning(run, format.value, width=_terminal.width(), color=_terminal.color()))


def _show_plan(pool: Pool, items: Sequence[Item], name: str, format: options.Page) -> None:
    """Asks the compilers for all spaces, and closes them."""
    try:
        profile = profiles.profile(profiles.representatives().get(name, name))
        pool.target = profile.target
        for place, item in enumerate(items):
            pool.submit(item.path, "space", item, float(place))
        replies = pool.wait(item.path for item in items)
    finally:
        pool.close()
    found = planned(items, [replies[item.path] for item in items], profile.target)
    if not any(one.searches for one in found):
        refused = dict.fromkeys(one.refused for one in found if one.refused)
        why = "; ".join(refused) or "nothing has tiles to choose from"
        raise CannotMeasureError(
            f"Of what was selected nothing can be searched for {profile.name}: {why}. `gemmgate tune --tag full --plan "
            f"{name}` lists what can."
        )
    shown = report.show_planned(found, profile.name, format.value, width=_terminal.width(), color=_terminal.color())
    _terminal.put(shown)


class _Lines:
    """Progress: a line a search, on standard error."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)

    def searched(self, item: Item, index: int, count: int, found: Search, rows: Sequence[Row], seconds: float) -> None:
        pick, gain = rows[-1], found.gain
        said = f"{units.microseconds(pick.median_s)} us" if pick.status == "ok" else f"{pick.status}: {pick.detail}"
        over = f", {units.speedup(gain.estimate)} of the tile without a search" if gain else ""
        tiles = units.counted(len(found.tiles), "tile")
        line = f"[{index + 1}/{count}] {item.path}: {said}{over}; {tiles}, {seconds:.1f} s"
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


def _items(known: Catalog, selection: Selection) -> list[Item]:
    """Implementations that were asked for, or all but the yardsticks; whether they have tiles, their modules say."""
    choices = [choice for choice in known.select(selection) if choice.family.runner == "kernel"]
    items = [
        Item(choice.family, choice.case, name)
        for choice in choices
        for name in choice.implementations
        if name not in choice.family.yardsticks
    ]
    if not items:
        raise UsageError("Nothing of what was selected can be tuned: `gemmgate list` shows the implementations.")
    return items


class _Tables:
    """The tables of a device, in the families' own folders or all below `folder`.

    Raises `UnreadableError` where one of them may not be updated: before a search, not after it.
    """

    def __init__(
        self, known: Catalog, items: Sequence[Item], target: Target, profile: str, folder: Path | None
    ) -> None:
        self._known, self._target = known, target
        self._profile = profile or tables.profile_of(target)
        packages = {tables.package_of(known, item.family.name, item.implementation) for item in items}
        self._paths = {
            package: (folder / package.rpartition(".")[2] if folder else tables.folder_of(package))
            / f"{self._profile}.json"
            for package in sorted(packages)
        }
        self.paths = tuple(self._paths.values())
        for path in self.paths:
            tables.read(path)

    def write(self, journal: Journal) -> list[Path]:
        """Brings them up to what the tuning has found so far; the paths of those that it has picks for."""
        found = [pick for pick in picks(journal.rows) if pick.row.status == "ok"]
        rows = units.counted(len(journal.rows), "row")
        then = f", then go on with `{journal.go_on}`: its {rows} are safe in {journal.path}."
        written = []
        for package, path in self._paths.items():
            own = [p for p in found if tables.package_of(self._known, p.row.family, p.row.implementation) == package]
            if own:
                # As it is now: another tuning may have ended meanwhile.
                table = tables.updated(tables.read(path), self._profile, self._target, journal.run.stack, own)
                tables.write(path, table, then)
                written.append(path)
        return written


def _nothing_searched(reasons: Collection[str], target: Target) -> str:
    """Why no search began, by the reason that most have of those that are about the device, and what to do next."""
    with_tiles = [why for why in reasons if why != NO_TILES]
    if not with_tiles:
        return (
            "Nothing of what was selected has tiles to choose from: `gemmgate tune --plan h200` lists what has, for "
            "a GPU such as h200."
        )
    why = Counter(with_tiles).most_common(1)[0][0].rstrip(".")
    said = f"Nothing of what was selected can be searched here: {why}."
    if target.is_gpu:
        return said
    return f"{said} Tune on a GPU, or list the searches for one with --plan, such as `--plan h200`."


def _report_left_out(
    tuner: Tuner, journal: Journal, items: Sequence[Item], selection: Selection, earlier: Reading | None
) -> None:
    """What was not searched, or not all of it, and why; an error where nothing was and no `earlier` part has rows."""
    asked = {path: why for path, why in tuner.left_out.items() if selection.implementations}
    for path, why in asked.items():
        _terminal.say(f"{path} was left out: {why}")
    if len(tuner.left_out) == len(items) and not (journal.rows and earlier and earlier.state != "finished"):
        if journal.rows:
            _terminal.say(f"nothing is missing in tuning {journal.run.id}: nothing was searched.")
            raise typer.Exit(PASS)
        raise CannotMeasureError(_nothing_searched(tuner.left_out.values(), tuner.worker.target))
    if tuner.without_incumbent:
        count, why = units.counted(len(tuner.without_incumbent), "case"), next(iter(tuner.without_incumbent.values()))
        _terminal.say(f"{count} searched without the tile that runs otherwise, for it could not be compiled: {why}")
    if tuner.skipped:
        _terminal.say(
            f"{units.counted(len(tuner.skipped), 'case')} found no time within --seconds: go on with `{journal.go_on}`."
        )
