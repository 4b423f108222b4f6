"""`gemmgate audit`: how good a compiler's own choices were."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmgate.suite import report
from gemmgate.suite.cli import _options, _terminal
from gemmgate.suite.cli._stored import loaded

ORDER = 60


def command(
    run: Annotated[
        str, typer.Argument(help="A path, an id, latest, latest:<machine> or baseline:<machine>; several with commas.")
    ] = "latest",
    results: _options.Results = None,
) -> None:
    """Hold what a tuner chose against the fastest of its choices.

    Prints a page of Markdown from a stored run that holds both, such as one made by
    `gemmgate run --tag audit --impl inductor_max_autotune,inductor_best_choice --cache cold`.
    """
    _terminal.put(report.audit_page(loaded(_options.store(results), run)))
