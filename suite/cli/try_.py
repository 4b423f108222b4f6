"""`gemmgate try`: somebody's own function against a family's yardstick, with nothing written for the harness."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gemmgate.suite import catalog, outside
from gemmgate.suite.cases import Family
from gemmgate.suite.catalog import Catalog, Selection
from gemmgate.suite.cli import _options as options
from gemmgate.suite.cli import _terminal
from gemmgate.suite.cli._trial import Trial, find_commit, select, timeable
from gemmgate.suite.errors import UNJUDGED, CannotMeasureError, UsageError, unknown
from gemmgate.suite.records import Run
from gemmgate.suite.report import show
from gemmgate.suite.report.trial import outcome
from gemmgate.suite.workers import Worker

ORDER = 15


def command(
    function: Annotated[str, typer.Argument(metavar="FILE.py:FUNCTION", help="Takes the family's inputs by name.")],
    family: Annotated[str, typer.Option("--family", metavar="NAME", help="What the function computes.")] = "",
    case: options.Case = None,
    tag: options.Tag = None,
    device: options.Device = "auto",
    seconds: Annotated[float, typer.Option(min=1.0, help="Time for measuring, after the checks.")] = 30.0,
    commit: Annotated[str, typer.Option(help="Commit to file the run under, where git cannot tell.")] = "",
    against: Annotated[str, typer.Option(metavar="NAME", help="Compare with this implementation.")] = "",
    deadline: Annotated[float, typer.Option(min=1.0, help="Seconds that preparing or checking may take.")] = 120.0,
    nondeterministic: Annotated[
        bool, typer.Option("--nondeterministic", help="Equal inputs may give other bits, as with atomics.")
    ] = False,
    format: Annotated[options.Format, typer.Option(help="How the measurements are shown.")] = options.Format.TABLE,
    results: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Store the run there; by default nowhere.")
    ] = None,
    suite: options.Suite = None,
) -> None:
    """Check your own function and time it against the yardstick: exit code 1 where it is wrong.

    The function takes the family's inputs (for dense_splitk: a and b) and returns a new tensor. Nothing is
    written to the checkout. Slower is no failure. Without --case and --tag: a handful of the cases tagged quick,
    in one dtype. A case that no family lists may be asked for by its name, such as m1-n4096-k4096-bf16.
    """
    file, attribute = _place(function)
    committed = find_commit(commit)
    with tempfile.TemporaryDirectory(prefix="gemmgate-try-") as scratch:
        known = options.families(suite)
        chosen = _family(known, family)
        _refuse_unknown(chosen, against)
        name = _free_name(chosen, attribute)
        guest = outside.write_suite(
            Path(scratch), chosen.name, name, file, attribute, deterministic=not nondeterministic
        )
        suites = [*(suite or []), guest]
        selection = Selection((chosen.name,), options.globs("--case", case), (name,), options.globs("--tag", tag))
        selected, default = select(catalog.find(suites), selection, against)
        against = selected[0].family.yardsticks[0]
        tried = {"function": function, "name": name, "against": against}
        trial = Trial(tried, partial(Worker, options.device(device), suites=suites), deadline, results)
        try:
            choices = trial.narrow(selected, handful=default)
            outcomes = trial.check(choices)
            timed = timeable(choices, outcomes)
            begun = trial.begun(choices, outcomes, timed, selection, committed)
            run = trial.measure(begun, timed, seconds, trial.failed(choices, outcomes))
        finally:
            trial.worker.kill()
    _finish(run, format.value)


def _place(text: str) -> tuple[Path, str]:
    """File and function. Raises `UsageError` where there is no such file; a worker sees whether it has the function."""
    name, _, attribute = text.rpartition(":")
    if not name or not attribute.replace(".", "").isidentifier():
        raise UsageError(
            f"'{text}' names no function in a file: write FILE.py:FUNCTION, such as my_kernel.py:my_matmul."
        )
    file = Path(name)
    if not file.is_file():
        raise unknown(f"file in {file.parent}", file.name, [path.name for path in file.parent.glob("*.py")])
    return file.resolve(), attribute


def _family(known: Catalog, name: str) -> Family:
    if not name:
        raise UsageError(f"Say with --family what the function computes: {', '.join(sorted(known.families))}.")
    found = known.family(name)
    if found.runner != "kernel":
        raise UsageError(f"Family '{name}' measures no kernels but '{found.runner}': a function cannot be tried in it.")
    return found


def _refuse_unknown(family: Family, name: str) -> None:
    names = [entry.name for entry in family.implementations]
    if name and name not in names:
        raise unknown(f"implementation of {family.name}", name, names)


def _free_name(family: Family, attribute: str) -> str:
    """The function's own name, unless the family has an implementation that is called so."""
    name = attribute.rpartition(".")[2].lower()
    return f"{name}_tried" if name in {entry.name for entry in family.implementations} else name


def _finish(run: Run, format: str) -> None:
    """Shows the run, unless nothing was timed, and the sentences, and ends the program."""
    tell = _terminal.put
    if run.selection["tried"]["timed"]:
        _terminal.put(show(run, format, width=_terminal.width(), color=_terminal.color()))
        tell = _terminal.put if format in ("table", "markdown") else _terminal.say
    came_to = outcome(run)
    for line in came_to.lines:
        tell(line)
    if came_to.exit_code == UNJUDGED:
        what = "could not be timed and judged everywhere" if run.selection["tried"]["timed"] else "was not timed"
        raise CannotMeasureError(f"It {what}: the lines above say why.")
    raise typer.Exit(came_to.exit_code)
