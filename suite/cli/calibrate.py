"""`gemmgate calibrate`: what this machine can do, and how small a change it can tell."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gemmgate.suite import report
from gemmgate.suite.block_values import values
from gemmgate.suite.blocks import BlockPlan, Blocks, missing_in
from gemmgate.suite.calibration import calibration, calibration_json
from gemmgate.suite.catalog import Catalog, Choice, Item, Selection
from gemmgate.suite.cli import _options as options
from gemmgate.suite.cli import _terminal
from gemmgate.suite.cli._beginning import begin_run
from gemmgate.suite.cli._gate_sides import alone_on
from gemmgate.suite.cli._measuring import CACHES, measure_limits
from gemmgate.suite.cli._progress import BlockDisplay
from gemmgate.suite.cli._stored import loaded
from gemmgate.suite.cli.run import DATA
from gemmgate.suite.commits import describe_commit
from gemmgate.suite.edits import EXTRA_TRIP, edited_overlay
from gemmgate.suite.errors import PASS, CannotMeasureError, UsageError
from gemmgate.suite.family_functions import counted
from gemmgate.suite.measure.limits import roof_s
from gemmgate.suite.pairs import EDITED, SIDES, LaunchSide
from gemmgate.suite.records import PLACES, Limits, Run
from gemmgate.suite.report import units
from gemmgate.suite.spread import key, spread
from gemmgate.suite.store import Journal
from gemmgate.suite.turns import Alone
from gemmgate.suite.workers import Worker, own_overlay

ORDER = 60
BLOCKS, POWER_BLOCKS = 20, 40
LEVELS = (0.005, 0.01, 0.02, 0.03, 0.05)
"""Slow-downs that `--power` puts in."""
LEVELS_A_BLOCK = 2
"""So many of them in each block, in turn: all of them would take as long as two blocks."""
GPU_CASES, CPU_CASES = 20, 6
GPU_BETWEEN_S, CPU_BETWEEN_S = (5e-8, 3e-4), (2e-5, 3e-3)
"""Least times of the cases that are chosen where none were named."""
SUPPORTS_DEADLINE_S = 120.0


class Format(StrEnum):
    """Formats of a calibration."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


@options.grouped
def command(
    context: typer.Context,
    selected: options.Selected,
    device: options.Device = "auto",
    blocks: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Blocks of every case, those of --resume included. Default: {BLOCKS}, with --power {POWER_BLOCKS}.",
        ),
    ] = None,
    power: Annotated[
        bool,
        typer.Option(
            "--power",
            help="In the same blocks slow the code down by known amounts and edit a kernel, and count what is found.",
        ),
    ] = False,
    seconds: Annotated[float | None, typer.Option(min=1.0, help="Begin no block that would end later.")] = None,
    cache: Annotated[str, typer.Option(help="Cache state: cold or hot. Default: cold on a GPU, hot on a CPU.")] = "",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the inputs.")] = 0,
    data: Annotated[str, typer.Option(help=f"Distribution of the inputs, of: {', '.join(DATA)}.")] = "normal",
    commit: Annotated[str, typer.Option(help="Commit to file it under, where git cannot tell.")] = "",
    resume: Annotated[str, typer.Option(metavar="ID", help="Add the blocks that this calibration lacks.")] = "",
    show: Annotated[
        str, typer.Option(metavar="ID", help="Only show a stored one: an id, a path, latest, latest:<machine>.")
    ] = "",
    format: Annotated[Format, typer.Option(help="How it is shown.")] = Format.TABLE,
    results: options.Results = None,
    suite: options.Suite = None,
) -> None:
    """Measure this machine's roofs, and its noise by comparing code with itself.

    Blocks of two fresh workers with the same code, over a spread of cases: how much a block scatters, the
    smallest change that the gate can find and how often it would ring in vain. Later runs use the roofs.
    """
    begun = time.monotonic()
    options.refuse_beside(context, {"show": ("format", "results")})
    store = options.store(results).calibrations
    if show:
        _put(loaded(store, show), format)
        return
    if data not in DATA or cache not in ("", *CACHES):
        raise UsageError(f"--data is one of {', '.join(DATA)} and --cache one of {', '.join(CACHES)}.")
    suites = suite or []
    known = options.families(suites)
    selection = selected.selection()
    numbers = range(blocks or (POWER_BLOCKS if power else BLOCKS))
    earlier: Run | None = None
    items: list[Item] = []
    if resume:
        reading = store.read(resume)
        earlier = reading.run
        _refuse_other_conditions(earlier, selection, cache, seed, data)
        items = _stored_items(known, earlier)
        is_whole = reading.state == "finished" and earlier.limits.source
        if is_whole and not missing_in(earlier.rows, items, numbers):
            if power and not any(value.level for value in values(earlier.rows)):
                raise UsageError(
                    f"The blocks of calibration {earlier.id} were measured without --power, and stay so: ask for more "
                    "with --blocks, or begin a new one."
                )
            asked = f"nothing is missing of {units.counted(len(numbers), 'block')} in calibration {earlier.id}"
            _terminal.say(f"{asked}: nothing was measured or stored. --blocks asks for more.")
            raise typer.Exit(PASS)
        if earlier.selection.get("places", 1) != PLACES:
            raise UsageError(
                f"Calibration {earlier.id} was measured with a library's workspace in another number of places than "
                f"{PLACES}, and its blocks scatter otherwise. Begin a new one, without --resume."
            )
    choices = known.select(selection)
    committed = describe_commit(own_overlay(), commit)
    worker = Worker(options.device(device), suites=suites)
    try:
        limits = earlier.limits if earlier and earlier.limits.source else measure_limits(worker, long=True)
        if earlier:
            cache, seed, data = (earlier.selection[name] for name in ("cache", "seed", "data"))
        else:
            items = _items(choices, selection, worker, limits)
            cache = cache or ("cold" if worker.target.is_gpu else "hot")
        named = [[item.family.name, item.case.name, item.implementation] for item in items]
        measured = {**selection.to_json(), "cache": cache, "seed": seed, "data": data, "places": PLACES, "items": named}
        now = begin_run(worker.machine, worker.stack, measured, committed)
    finally:
        worker.close()
    modules = [(item.family.name, item.implementation) for item in items]
    with ExitStack() as stack:
        sides = dict.fromkeys(SIDES, LaunchSide())
        edited: tuple[str, ...] = ()
        if power:
            edited = tuple(item.path for item in items if item.implementation == EXTRA_TRIP.implementation)
            if edited and (overlay := _edited(stack)):
                sides[EDITED] = LaunchSide(overlay=overlay)
            else:
                edited = ()
        plan = BlockPlan(
            items,
            numbers,
            cache,
            LEVELS if power else (),
            seed,
            data,
            seconds,
            LEVELS_A_BLOCK,
            edited,
        )
        journal = stack.enter_context(store.resume(resume, now) if resume else store.begin(now))
        journal.update(limits=limits)
        alone = alone_on(now.machine)
        if alone:
            _terminal.say(f"the GPU admits one process at a time: {5 if edited else 3} take turns in a block.")
        _measure(plan, journal, lambda name: sides[name].start(options.device(device), suites, modules), begun, alone)
        path = journal.finish()
    finished = store.load(str(path))
    _put(finished, format)
    _terminal.say(f"stored as {path}")
    if not values(finished.rows):
        raise CannotMeasureError("Not a single block could be measured: the lines above say why.")


def _refuse_other_conditions(earlier: Run, selection: Selection, cache: str, seed: int, data: str) -> None:
    told = earlier.selection
    if selection != Selection() or cache or seed not in (0, told["seed"]) or data not in ("normal", told["data"]):
        raise UsageError(
            f"--resume {earlier.id} measures what it began with: leave out --family, --case, --impl, --tag, --cache, "
            "--seed and --data."
        )


def _edited(stack: ExitStack) -> Path | None:
    """A copy of this checkout with the known edit, until the command ends; None where there is no place for it."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gemmgate-")))
    try:
        return edited_overlay(own_overlay(), folder, EXTRA_TRIP)
    except UsageError as error:
        _terminal.say(f"no known edit is measured: {error}")
        return None


def _measure(
    plan: BlockPlan, journal: Journal, start: Callable[[str], Worker], begun: float, alone: Alone | None
) -> None:
    rows = journal.rows
    with BlockDisplay(Console(stderr=True)) as display:
        running = Blocks(plan, start, sink=journal.extend, progress=display, rows=rows, begun=begun, alone=alone)
        for _ in running.run():
            pass
    journal.update(seconds={**running.seconds, "total": time.monotonic() - begun})
    for path, why in running.given_up.items():
        _terminal.say(f"{path} was left out: {why}")
    for path, why in running.not_edited.items():
        _terminal.say(f"{path} was left out with the known edit: {why}")
    for sentence in _where_time_went(running):
        _terminal.say(sentence)
    if running.unmeasured:
        _terminal.say(
            f"{len(running.unmeasured)} blocks found no time within --seconds {plan.seconds:g}; "
            f"go on with `{journal.go_on}`."
        )


def _where_time_went(running: Blocks) -> list[str]:
    """A line for the first block, one for an average later one, and one for what a worker was at in all of them."""

    def said(seconds: Mapping[str, float]) -> str:
        listed = sorted(seconds.items(), key=lambda item: -item[1])
        return ", ".join(f"{name} {taken_s:.1f} s" for name, taken_s in listed if taken_s >= 0.05)

    subjects = ("the first block", "each later block", "the baseline's workers, all blocks")
    named = zip(subjects, (*running.spent, running.steps_s), strict=True)
    return [f"{what}: {said(seconds)}." for what, seconds in named if said(seconds)]


def _put(run: Run, format: Format) -> None:
    made = calibration(run)
    if format is Format.JSON:
        _terminal.put(json.dumps(calibration_json(made), indent=1, allow_nan=False))
    else:
        _terminal.put(report.show_calibration(made, format.value, width=_terminal.width(), color=_terminal.color()))


def _items(choices: Sequence[Choice], selection: Selection, worker: Worker, limits: Limits) -> list[Item]:
    """All that was asked for and works here, or a spread where nothing was."""
    choices = [choice for choice in choices if choice.family.runner == "kernel"]
    pairs = [[choice.case.to_json(), choice.implementations] for choice in choices]
    reply = worker.ask("supports", SUPPORTS_DEADLINE_S, pairs=pairs)
    if not reply.get("ok"):
        raise CannotMeasureError(f"What this machine supports could not be found out: {reply['detail']}.")
    found = zip(choices, reply["refusals"], reply["screened"], strict=True)
    # What searches in every launch would show the noise of its picks, and take long.
    usable = {
        (key(choice), name)
        for choice, refusals, screened in found
        for name, refusal, is_screened in zip(choice.implementations, refusals, screened, strict=True)
        if refusal is None and not is_screened
    }
    if selection == Selection():
        is_gpu = worker.target.is_gpu
        items = spread(
            choices,
            partial(_least_s, limits, "cold" if is_gpu else "hot"),
            usable,
            count=GPU_CASES if is_gpu else CPU_CASES,
            between_s=GPU_BETWEEN_S if is_gpu else CPU_BETWEEN_S,
        )
    else:
        items = [
            Item(choice.family, choice.case, name)
            for choice in choices
            for name in choice.implementations
            if (key(choice), name) in usable
        ]
    if not items:
        raise UsageError("Nothing of what was selected can be measured here: `gemmgate list` says why.")
    return items


def _least_s(limits: Limits, cache: str, choice: Choice) -> float | None:
    family, case = choice.family, choice.case
    return roof_s(limits, case, cache, counted(family.flop, case), counted(family.bytes_moved, case))


def _stored_items(known: Catalog, earlier: Run) -> list[Item]:
    """What an earlier calibration measured. Raises `UsageError` where that does not exist any more."""
    items = []
    for family_name, case_name, implementation in earlier.selection["items"]:
        family = known.family(family_name)
        case = next((case for case in family.cases if case.name == case_name), None)
        if case is None:
            raise UsageError(f"Calibration {earlier.id} has case '{case_name}', which '{family_name}' no longer has.")
        items.append(Item(family, case, implementation))
    return items
