"""`gemmgate pages`: tables of README and docs, from the stored runs they name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from gemmgate.suite import pages
from gemmgate.suite.again import go_on
from gemmgate.suite.cli import _options, _terminal
from gemmgate.suite.errors import GemmgateError, UsageError, unknown
from gemmgate.suite.records import Run
from gemmgate.suite.store import Store
from gemmgate.suite.store.files import write_named
from gemmgate.suite.workers import own_overlay

ORDER = 80


def command(
    run: Annotated[
        list[str] | None,
        typer.Option(
            "--run", metavar="NAME=RUN", help="From now on blocks of this name show this run; may be repeated."
        ),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="NAME=RUN", help="They show this run beside those they have; may be repeated."),
    ] = None,
    results: _options.Results = None,
) -> None:
    """Write the tables of README and docs anew from the runs that they name.

    A page holds blocks between markers, such as <!-- table:h200 run=... --> and <!-- /table:h200 -->. A finished
    run that others can see, committed below results/, is what belongs there; several with commas between them
    are shown as one. What `gemmgate try` printed is shown from results/trials.
    """
    store, root = _options.store(results), own_overlay()
    found = pages.find(root)
    if not found:
        raise UsageError(f"No page below {root} has a block: this command works in a checkout.")
    texts = {page: page.read_text(encoding="utf-8") for page in found}
    blocks = [block for text in texts.values() for block in pages.blocks(text)]
    stores = {block.name: pages.store_of(block.kind, store) for block in blocks}
    runs = dict(_named("--run", text, stores) for text in run or ())
    for text in add or ():
        name, more = _named("--add", text, stores)
        had = [runs[name]] if name in runs else [block.run for block in blocks if block.name == name]
        runs[name] = ",".join(dict.fromkeys(",".join(filter(None, (*had, more))).split(",")))
    written = {page: _anew(page.relative_to(root), text, pages.loader(store), runs) for page, text in texts.items()}
    for page, (text, pictures) in written.items():  # not before all of them can be
        write_named(page, text)
        for name, picture in pictures.items():
            write_named(page.parent / name, picture)
        _terminal.put(f"{page.relative_to(root)}: {'as it was' if text == texts[page] else 'written'}")


def _anew(page: Path, text: str, load: pages.Load, runs: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """A page's text and its pictures; an error names the page."""
    try:
        after = pages.rewritten(text, load, runs)
        return after, pages.pictures(after, load)
    except GemmgateError as error:
        error.add_note(f"Nothing was written: {page} has it.")
        raise


def _named(option: str, text: str, stores: Mapping[str, Store]) -> tuple[str, str]:
    """The block's name and the id of the run, or ids of runs, which must be finished and of a clean tree."""
    name, separator, reference = text.partition("=")
    if not separator or not reference:
        raise UsageError(
            f"{option} '{text}' should be NAME=RUN, such as h200=latest. Names: {', '.join(sorted(stores))}."
        )
    if name not in stores:
        raise unknown("block", name, stores)
    readings = [stores[name].read(part.strip()) for part in reference.split(",")]
    for reading in readings:
        _refuse_unfit(reading.run, reading.state, stores[name].root)
    return name, ",".join(reading.run.id for reading in readings)


def _refuse_unfit(run: Run, state: str, root: Path) -> None:
    if state != "finished":
        command = go_on(run, root)
        as_it_is = (
            f", or as it is with `gemmgate runs --finish {run.id}`" if command.startswith("gemmgate run ") else ""
        )
        raise UsageError(f"Run {run.id} is {state}: finish it with `{command}` before showing it{as_it_is}.")
    if run.dirty:
        raise UsageError(
            f"Run {run.id} was measured with uncommitted changes: nobody could repeat it. Commit, and run again."
        )
