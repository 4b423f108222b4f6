"""`gemmgate bisect`: when a case became slower."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from gemmgate.suite import bisect
from gemmgate.suite.cli import _options, _terminal
from gemmgate.suite.duets import Answer, ask_gate
from gemmgate.suite.errors import UNJUDGED, CannotMeasureError, UsageError
from gemmgate.suite.workers import own_overlay

ORDER = 67


def command(
    good: Annotated[str, typer.Argument(metavar="GOOD", help="A commit, or with --pythons an interpreter.")],
    bad: Annotated[str, typer.Argument(metavar="BAD", help="A later one that is slower.")],
    family: _options.Family = None,
    case: _options.Case = None,
    impl: _options.Impl = None,
    pythons: Annotated[
        list[str] | None,
        typer.Option(
            "--pythons",
            metavar="PATH,...",
            help="Interpreters between GOOD and BAD, in order: other versions of torch or Triton, the same kernels.",
        ),
    ] = None,
    device: _options.Device = "auto",
    suite: _options.Suite = None,
) -> None:
    """Find the commit, or the versions, from which on a case is slower.

    Every step is judged by the gate, in paired blocks of GOOD and the step. Steps that cannot be judged are passed
    over. Exit code 0 where one culprit is found, 3 where several remain.
    """
    if not case:
        raise UsageError("Say which case became slower: --case, and with --impl of which implementation.")
    options = [*_passed("--family", family), *_passed("--case", case), *_passed("--impl", impl)]
    options += ["--device", _options.device(device), *(word for path in suite or () for word in ("--suite", str(path)))]
    between = _options.globs("--pythons", pythons)
    if not pythons:
        bisect.check_ends(own_overlay(), good, bad)
    ask = partial(_ask_pythons if pythons else _ask_commits, good, options)
    answer = ask(bad)
    if answer != "yes":
        raise CannotMeasureError(
            f"{bad} is {'not slower than' if answer == 'no' else 'not clearly slower than'} {good} in paired blocks: "
            "there is nothing to look for. Try another case, or a quieter GPU."
        )
    _terminal.say(f"{bad} is slower than {good}.")
    if pythons:
        found = bisect.first_bad([good, *between, bad], ask, _terminal.say)
    else:
        found = bisect.first_bad_commit(own_overlay(), good, bad, ask, _terminal.say)
    for name in found.candidates:
        _terminal.put(name)
    if not found.is_found:
        _terminal.say(f"{len(found.candidates)} remain: those in between could not be judged.")
        raise typer.Exit(UNJUDGED)
    _terminal.say(f"first slower one, after {found.asked + 1} comparisons. `gemmgate explain` says what changed.")


def _ask_commits(good: str, options: list[str], head: str) -> Answer:
    return ask_gate(own_overlay(), ["--base", good, "--head", head, *options]).answer


def _ask_pythons(good: str, options: list[str], head: str) -> Answer:
    return ask_gate(own_overlay(), ["--base-python", good, "--head-python", head, *options]).answer


def _passed(option: str, values: list[str] | None) -> list[str]:
    return [word for value in values or () for word in (option, value)]
