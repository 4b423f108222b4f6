"""`gemmgate compare`: two runs side by side."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from gemmgate.suite import report
from gemmgate.suite.cli import _options, _terminal
from gemmgate.suite.cli._stored import loaded
from gemmgate.suite.compare import Thresholds, Verdict, compare
from gemmgate.suite.errors import UNJUDGED

ORDER = 50


class Format(StrEnum):
    """What a comparison can be shown as."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


def command(
    baseline: Annotated[str, typer.Argument(metavar="A", help="The earlier run, named as for `gemmgate show`.")],
    candidate: Annotated[str, typer.Argument(metavar="B", help="The run under judgement.")],
    format: Annotated[Format, typer.Option("--format")] = Format.TABLE,
    across_stacks: Annotated[
        bool, typer.Option("--across-stacks", help="Compare times though driver, CUDA, torch or Triton differ.")
    ] = False,
    results: _options.Results = None,
) -> None:
    """Compare two runs of one machine, row by row.

    Only shows: the exit code is 0 whatever the verdicts are, 3 where not a single row can be compared, and 2 where the
    runs have none in common. Judging, with an exit code for what got slower, is the work of the gate.
    """
    store = _options.store(results)
    found = compare(loaded(store, baseline), loaded(store, candidate), Thresholds(across_stacks=across_stacks))
    if format is Format.JSON:
        text = json.dumps(report.comparisons_json(found), indent=1, allow_nan=False)
    elif format is Format.MARKDOWN:
        text = report.markdown_comparisons(found)
    else:
        text = report.table_comparisons(found, width=_terminal.width(), color=_terminal.color())
    _terminal.put(text)
    if not any(one.baseline and one.candidate and one.verdict is not Verdict.INCOMPARABLE for one in found):
        _terminal.say("not a single row of the two runs can be compared: the reasons stand beside the rows.")
        raise typer.Exit(UNJUDGED)
