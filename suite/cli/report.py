"""`gemmgate report`: runs as one HTML file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from gemmgate.suite.cli import _options, _terminal
from gemmgate.suite.cli._stored import loaded
from gemmgate.suite.errors import UsageError
from gemmgate.suite.report.page import report_page
from gemmgate.suite.store.files import write_named

ORDER = 55


def command(
    run: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Paths, ids, latest, latest:<machine> or baseline:<machine>."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="Where to write it; an existing file is replaced.")
    ] = Path("report.html"),
    results: _options.Results = None,
) -> None:
    """Write runs as one HTML file that needs no network.

    Runs of one machine, stack and method are shown as one, and of what was measured twice the newest counts. Every
    number leads to its measurement with all fields and the command that measures it again.
    """
    store = _options.store(results)
    runs = [loaded(store, reference) for reference in dict.fromkeys(run or ["latest"])]
    text = report_page(runs, plotly_script())
    try:
        write_named(output, text)
    except OSError as error:
        raise UsageError(f"Cannot write {output}: {error.strerror}. Name another file with --output.") from error
    _terminal.say(f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} in {output}, {len(text) / 1e6:.1f} MB.")


def plotly_script() -> str:
    """The text of plotly's script, as its package brings it."""
    if find_spec("plotly") is None:
        raise UsageError("plotly is not installed here: `nox -s publish` installs it, or `pip install asv plotly`.")
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script
