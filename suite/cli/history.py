"""`gemmgate history`: where the stored runs' series change their level, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from gemmgate.suite import causes, history
from gemmgate.suite.cli import _options, _terminal
from gemmgate.suite.cli.publish import finished
from gemmgate.suite.commits import commit_times
from gemmgate.suite.duets import ask_gate
from gemmgate.suite.errors import UsageError, unknown
from gemmgate.suite.report import markdown, steps, text
from gemmgate.suite.series import Place, Series, collect, method_changes
from gemmgate.suite.workers import own_overlay

ORDER = 65
_CONFIRMED = {"yes": "slower", "no": "not slower", "unclear": "unclear"}


class Format(StrEnum):
    """What steps can be shown as."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


def command(
    machine: Annotated[list[str] | None, typer.Option("--machine", metavar="GLOB,...", help="Machine keys.")] = None,
    family: _options.Family = None,
    case: _options.Case = None,
    impl: _options.Impl = None,
    quantity: Annotated[
        list[str] | None,
        typer.Option("--quantity", metavar="GLOB,...", help="Such as seconds, error, static_*."),
    ] = None,
    confirm: Annotated[
        bool,
        typer.Option("--confirm", help="Measure both sides of every slow-down again, in paired blocks, on this GPU."),
    ] = False,
    format: Annotated[Format, typer.Option("--format")] = Format.TABLE,
    results: _options.Results = None,
) -> None:
    """List where series of the stored runs change their level, with the likely cause.

    A step takes three points or more on either side, and 5 to 20 commits where it is only 3 %; of compiled code,
    which has no noise, one on either side, with the same tile. The cause is read from the records: another board,
    other versions, a yardstick that moved too, another tile, other machine code.
    """
    store = _options.store(results)
    runs = finished(store, _options.globs("--machine", machine))
    series, notes = collect(runs, commit_times(own_overlay()))
    for note in notes:
        _terminal.say(f"left out: {note}.")
    for change in method_changes(series):
        _terminal.say(f"{change}.")
    wanted = {
        "family": _options.globs("--family", family),
        "case": _options.globs("--case", case),
        "implementation": _options.globs("--impl", impl),
        "quantity": _options.globs("--quantity", quantity),
    }
    shown = _narrowed(series, wanted)
    if not shown:
        raise UsageError(f"None of the {len(runs)} runs in {store.root} is in the history of this repository.")
    found = causes.found(series, history.all_steps({place: series[place] for place in shown}))
    confirmed = {step.key: _confirmed(step) for step in found if confirm and _is_slow_down(step)}
    if format is Format.JSON:
        _terminal.put(json.dumps(steps.steps_json(found, confirmed), indent=1, allow_nan=False))
        return
    made = steps.blocks(found, len(shown), confirmed)
    if format is Format.MARKDOWN:
        _terminal.put(markdown.render(made))
    else:
        _terminal.put(text.render(made, width=_terminal.width(), color=_terminal.color()))


def _narrowed(series: Series, wanted: Mapping[str, Sequence[str]]) -> list[Place]:
    for field, globs in wanted.items():
        names = {str(getattr(place, field)) for place in series}
        for glob in globs if series else ():
            if not any(fnmatchcase(name, glob) for name in names):
                raise unknown(field, glob, names)
    return [
        place
        for place in series
        if all(not globs or any(fnmatchcase(str(getattr(place, f)), g) for g in globs) for f, globs in wanted.items())
    ]


def _is_slow_down(step: causes.Found) -> bool:
    return step.place.quantity == "seconds" and step.ratio > 1 and step.before.commit != step.after.commit


def _confirmed(step: causes.Found) -> str:
    place = step.place
    options = ["--base", step.before.commit, "--head", step.after.commit]
    options += ["--family", place.family, "--case", place.case, "--impl", place.implementation]
    _terminal.say(f"asking the gate about {place.implementation} on {place.case} at {step.after.commit[:10]}.")
    return _CONFIRMED[ask_gate(own_overlay(), options).answer]
