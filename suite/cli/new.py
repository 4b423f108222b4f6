"""`gemmgate new`: the files of a kernel or a family, to be filled in."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gemmgate.suite import catalog, recipes
from gemmgate.suite.cli import _terminal
from gemmgate.suite.errors import UsageError
from gemmgate.suite.workers import own_overlay

ORDER = 70


class What(StrEnum):
    """What can be begun."""

    KERNEL = "kernel"
    FAMILY = "family"


def command(
    what: Annotated[What, typer.Argument(help="kernel or family.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lower-case letters, digits, underscores.")],
    family: Annotated[str, typer.Option("--family", metavar="NAME", help="The family that a kernel computes.")] = "",
    suite: Annotated[
        Path | None, typer.Option("--suite", metavar="DIR", help="Write there and not into this checkout.")
    ] = None,
) -> None:
    """Write the files of a new kernel or family, which work at once and are to be filled in.

    A kernel is one file in its family's folder and a line in that folder's __init__.py; with --suite, in a
    package there that extends the family. A family is a folder. CONTRIBUTING.md says what belongs into each.
    """
    if suite is None and not (own_overlay() / "pyproject.toml").exists():
        raise UsageError("This gemmgate is installed and no checkout to write into: say where, with --suite DIR.")
    has_packages = suite is not None and any(suite.glob("*/__init__.py"))
    known = catalog.find([suite] if suite is not None and has_packages else [])
    if what is What.FAMILY:
        if family:
            raise UsageError("--family is for a new kernel; a new family is named by NAME alone.")
        kernels = (own_overlay() / "gemmgate" / "kernels").resolve()
        written = recipes.new_family(known, name, suite or kernels, "" if suite else "gemmgate.kernels")
        selected = f"--family {name}"
    else:
        if not family:
            raise UsageError(f"Say with --family what the kernel computes: {', '.join(sorted(known.families))}.")
        written = recipes.new_kernel(known, name, known.family(family), suite)
        selected = f"--family {family} --impl {name}"
    for path in written:
        _terminal.put(str(path))
    there = f" --suite {suite}" if suite else ""
    _terminal.say(f"written. It works as it is: `gemmgate run {selected}{there}` checks and measures it.")
