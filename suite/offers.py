"""What a side offers: its cases and implementations as plain data, asked of a process that imports that side.

Two commits of one family cannot be imported into one process. Standard library only, so that any interpreter
that can measure can be asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmgate.suite import catalog
from gemmgate.suite.cases import Case, Family
from gemmgate.suite.catalog import Catalog, Choice, Item, Selection
from gemmgate.suite.errors import CannotMeasureError, GemmgateError, UsageError
from gemmgate.suite.family_functions import counted

_ASK = (
    "import json, os, sys; out = os.fdopen(os.dup(1), 'w'); os.dup2(2, 1); "  # families may print as they are imported
    "from gemmgate.suite import offers; "
    "print('', json.dumps(offers.answer(json.loads(sys.argv[1]))), sep='\\n', end='', file=out, flush=True)"
)
_DEADLINE_S = 120.0


@dataclass(frozen=True)
class Offer:
    """One implementation of one case as a side has it. `file` is its source, `inputs` that of what it is given.

    `may_be_own` is as in `catalog.Choice`.
    """

    case: Case
    implementation: str
    flop: int
    bytes_moved: int
    file: str
    inputs: str
    may_be_own: bool = True

    @property
    def path(self) -> str:
        """As `Row.path`."""
        return f"{self.case.family}/{self.implementation}/{self.case.name}"


def answer(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Runs in the side's process: for each selection what it offers, or an error's sentence."""
    suites = [Path(folder) for folder in request["suites"]]
    try:
        known = catalog.find(suites)
    except GemmgateError as error:
        return [{"error": str(error)}] * len(request["selections"])
    return [_answer(known, suites, Selection.from_json(selection)) for selection in request["selections"]]


def _answer(known: Catalog, suites: Sequence[Path], selection: Selection) -> dict[str, Any]:
    if known.broken and not selection.families:
        # A side whose packages fail offers less, which must not pass for all that there is to judge.
        return {"error": next(iter(known.broken.values()))}
    try:
        choices = known.select(selection)
    except GemmgateError as error:
        return {"error": str(error)}
    offers = []
    for choice in choices:
        if choice.family.runner != "kernel":
            continue
        where = {entry.name: entry.where for entry in choice.family.implementations}
        for name in choice.implementations:
            package = known.extensions.get((choice.family.name, name), known.packages[choice.family.name])
            if suites and not package.startswith("gemmgate_suite_"):
                continue
            offers.append(
                {
                    "case": choice.case.to_json(),
                    "implementation": name,
                    "flop": counted(choice.family.flop, choice.case),
                    "bytes_moved": counted(choice.family.bytes_moved, choice.case),
                    "file": _file(package, where[name]),
                    "inputs": _file(known.packages[choice.family.name], choice.family.make_inputs),
                    "may_be_own": name in choice.may_be_own,
                }
            )
    return {"offers": offers}


def _file(package: str, where: str) -> str:
    """The source that `module:attribute` names in a package; not imported, since it may need what is not here."""
    folder = Path(next(iter(sys.modules[package].__path__))).resolve()
    stem = folder.joinpath(*where.partition(":")[0].split("."))
    return str(stem / "__init__.py" if stem.is_dir() else stem.parent / f"{stem.name}.py")


def ask(python: str, overlay: Path, suites: Sequence[Path], selection: Selection) -> list[Offer]:
    """What the side on that path offers of a selection.

    Raises `UsageError` with the side's own words where it offers nothing of the sort, and what `ask_each` raises.
    """
    (found,) = ask_each(python, overlay, suites, [selection])
    if isinstance(found, UsageError):
        raise found
    return found


def ask_each(
    python: str, overlay: Path, suites: Sequence[Path], selections: Sequence[Selection]
) -> list[list[Offer] | UsageError]:
    """The same of several selections, asked of one process; where it offers nothing of one, the error that says so.

    Raises `UsageError` where the interpreter does not exist and `CannotMeasureError` where it does not work.
    """
    request = {"suites": [str(suite) for suite in suites], "selections": [one.to_json() for one in selections]}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(overlay), os.environ.get("PYTHONPATH", "")])}
    try:
        done = subprocess.run(
            [python, "-P", "-c", _ASK, json.dumps(request)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
    except OSError as error:
        raise UsageError(f"{python} cannot be started: {error.strerror}.") from error
    except subprocess.TimeoutExpired as error:
        raise CannotMeasureError(f"{python} did not say within {_DEADLINE_S:.0f} s which cases there are.") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it does not say why"])[-1]
        raise CannotMeasureError(f"{python} cannot import this side: {last}")
    return [
        UsageError(reply["error"])
        if "error" in reply
        else [Offer(**{**offer, "case": Case.from_json(offer["case"])}) for offer in reply["offers"]]
        for reply in json.loads(done.stdout.rpartition("\n")[2])
    ]


def choices(offers: Iterable[Offer]) -> list[Choice]:
    """By case, those that may be our own kernels, each once; their families are as those of `items`."""
    by_case: dict[Case, tuple[Family, list[str]]] = {}
    for item in items([offer for offer in offers if offer.may_be_own]):
        names = by_case.setdefault(item.case, (item.family, []))[1]
        if item.implementation not in names:
            names.append(item.implementation)
    return [Choice(family, case, tuple(names)) for case, (family, names) in by_case.items()]


def items(offers: Iterable[Offer]) -> list[Item]:
    """Items to measure. Their families are no more than a row needs: those of a side are not importable here."""
    by_family: dict[str, list[Offer]] = {}
    for offer in offers:
        by_family.setdefault(offer.case.family, []).append(offer)
    made = []
    for name, found in by_family.items():
        flop = {offer.case.name: offer.flop for offer in found}
        moved = {offer.case.name: offer.bytes_moved for offer in found}
        family = Family(
            name,
            "kernel",
            (),
            (),
            (),
            flop=lambda case, flop=flop: flop[case.name],  # type: ignore[misc]
            bytes_moved=lambda case, moved=moved: moved[case.name],  # type: ignore[misc]
            make_inputs="",
            reference="",
            error_bound=lambda case: 0.0,
        )
        made += [Item(family, offer.case, offer.implementation) for offer in found]
    return made
