"""`gemmgate try`: somebody's own function against a family's yardstick, with nothing written for the harness."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gemmgate.suite import catalog, outside
from gemmgate.suite.cases import Family
from gemmgate.suite.catalog import Catalog, Choice, Selection
from gemmgate.suite.cli import _options as options
from gemmgate.suite.cli import _terminal
from gemmgate.suite.cli._trial import Trial, select
from gemmgate.suite.compare import rate
from gemmgate.suite.errors import PASS, REGRESSION, CannotMeasureError, UsageError, unknown
from gemmgate.suite.records import Row, Run
from gemmgate.suite.report import show, units
from gemmgate.suite.report.trial import cannot_be_captured, fault, verdict
from gemmgate.suite.workers import Worker

ORDER = 15


def command(
    function: Annotated[str, typer.Argument(metavar="FILE.py:FUNCTION", help="Takes the family's inputs by name.")],
    family: Annotated[str, typer.Option("--family", metavar="NAME", help="What the function computes.")] = "",
    case: options.Case = None,
    tag: options.Tag = None,
    device: options.Device = "auto",
    seconds: Annotated[float, typer.Option(min=1.0, help="Time for measuring, after the checks.")] = 30.0,
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
    with tempfile.TemporaryDirectory(prefix="gemmgate-try-") as scratch:
        known = options.families(suite)
        chosen = _family(known, family)
        against = _against(chosen, against)
        name = _free_name(chosen, attribute)
        guest = outside.write_suite(
            Path(scratch), chosen.name, name, file, attribute, deterministic=not nondeterministic
        )
        suites = [*(suite or []), guest]
        selection = Selection((chosen.name,), options.globs("--case", case), (name,), options.globs("--tag", tag))
        selected, default = select(catalog.find(suites), selection, against)
        trial = Trial(name, against, partial(Worker, options.device(device), suites=suites), deadline)
        try:
            choices = trial.narrow(selected, handful=default)
            _report_faults(name, choices, trial.check(choices))
            run = trial.measure(choices, seconds, results, {**selection.to_json(), "against": against})
        finally:
            trial.worker.kill()
    _finish(run, name, against, len(choices), format.value)


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


def _against(family: Family, name: str) -> str:
    names = [entry.name for entry in family.implementations]
    if name and name not in names:
        raise unknown(f"implementation of {family.name}", name, names)
    return name or family.yardsticks[0]


def _free_name(family: Family, attribute: str) -> str:
    """The function's own name, unless the family has an implementation that is called so."""
    name = attribute.rpartition(".")[2].lower()
    return f"{name}_tried" if name in {entry.name for entry in family.implementations} else name


def _report_faults(name: str, choices: Sequence[Choice], outcomes: Sequence[dict[str, Any]]) -> None:
    """Ends the program where a check failed: a wrong result has no time."""
    wrong = [(choice.case.name, o) for choice, o in zip(choices, outcomes, strict=False) if not o.get("ok")]
    if not wrong:
        return
    lines = [f"Wrong: {name} failed on {len(wrong)} of {units.counted(len(outcomes), 'case')}, so nothing was timed."]
    lines += [f"  {case}: {name} {fault(outcome)}." for case, outcome in wrong]
    if len(outcomes) < len(choices):
        lines.append(f"  {units.counted(len(choices) - len(outcomes), 'further case')} not tried.")
    _terminal.put("\n".join(lines))
    raise typer.Exit(REGRESSION)


def _finish(run: Run, name: str, against: str, checked: int, format: str) -> None:
    """Shows the run and the sentence, and ends the program."""
    _terminal.put(show(run, format, width=_terminal.width(), color=_terminal.color()))
    tell = _terminal.put if format in ("table", "markdown") else _terminal.say
    faults = {(row.case, fault(row.to_json())): row for row in run.rows if _is_fault(row, name)}
    for case, said in faults:
        tell(f"Wrong: {name} {said} ({case}).")
    rated = rate(run.rows)
    caches = [cache for cache in run.selection["caches"] if any(r.ratio and r.row.cache == cache for r in rated)]
    sentences = [
        verdict([r for r in rated if r.row.cache == cache], name, against, run.machine.model) for cache in caches
    ]
    if not faults:
        cases = units.counted(checked, "case")
        tell(f"Right: {name} agrees with the float64 reference on {cases}, within what rounding allows.")
    for sentence in filter(None, sentences):
        tell(sentence)
    if any(not cannot_be_captured(row.to_json()) and row.status != "out_of_memory" for row in faults.values()):
        raise typer.Exit(REGRESSION)
    if faults or not any(sentences):
        raise CannotMeasureError(f"{name} could not be timed against {against} everywhere: the lines above say why.")
    raise typer.Exit(PASS)


def _is_fault(row: Row, name: str) -> bool:
    return row.implementation == name and row.status != "ok" and row.reason != "ring_too_large"
