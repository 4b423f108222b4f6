"""`gemmgate pages`: tables of README and docs, from the stored runs they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from gemmgate.suite import pages
from gemmgate.suite.cli import _options, _terminal
from gemmgate.suite.errors import UsageError, unknown
from gemmgate.suite.records import Run
from gemmgate.suite.store import Store
from gemmgate.suite.workers import own_overlay

ORDER = 80


def command(
    run: Annotated[
        list[str] | None,
        typer.Option(
            "--run", metavar="NAME=RUN", help="From now on blocks of this name show this run; may be repeated."
        ),
    ] = None,
    results: _options.Results = None,
) -> None:
    """Write the tables of README and docs anew from the runs that they name.

    A page holds blocks between markers, such as <!-- table:h200 run=... --> and <!-- /table:h200 -->. A finished
    run that others can see, committed below results/, is what belongs there.
    """
    store, root = _options.store(results), own_overlay()
    found = pages.find(root)
    if not found:
        raise UsageError(f"No page below {root} has a block: this command works in a checkout.")
    others = {"calibration": store.calibrations, "timers": store.timers}
    texts = {page: page.read_text(encoding="utf-8") for page in found}
    stores = {block.name: others.get(block.kind, store) for text in texts.values() for block in pages.blocks(text)}
    runs = dict(_named(text, stores) for text in run or ())
    loads = {kind: other.load for kind, other in others.items()}
    for page, before in texts.items():
        after = pages.rewritten(before, store.load, runs, loads)
        page.write_text(after, encoding="utf-8")
        for name, picture in pages.pictures(after, store.load, loads).items():
            (page.parent / name).write_text(picture, encoding="utf-8")
        _terminal.put(f"{page.relative_to(root)}: {'as it was' if after == before else 'written'}")


def _named(text: str, stores: Mapping[str, Store]) -> tuple[str, str]:
    """The block's name and the id of the run, which must be one finished run of a clean tree."""
    name, separator, reference = text.partition("=")
    if not separator or not reference:
        raise UsageError(f"--run '{text}' should be NAME=RUN, such as h200=latest. Names: {', '.join(sorted(stores))}.")
    if name not in stores:
        raise unknown("block", name, stores)
    reading = stores[name].read(reference)
    _refuse_unfit(reading.run, reading.state)
    return name, reading.run.id


def _refuse_unfit(run: Run, state: str) -> None:
    if state != "finished":
        raise UsageError(f"Run {run.id} is {state}: finish it with `gemmgate run --resume {run.id}` before showing it.")
    if run.dirty:
        raise UsageError(
            f"Run {run.id} was measured with uncommitted changes: nobody could repeat it. Commit, and run again."
        )
