"""Options that several commands share, each with the function that turns its text into what it means."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gemmgate.suite import catalog
from gemmgate.suite.catalog import Catalog, Selection
from gemmgate.suite.cli import _terminal
from gemmgate.suite.errors import UsageError, unknown
from gemmgate.suite.store import Store

Family = Annotated[list[str] | None, typer.Option("--family", metavar="GLOB,...", help="Families; may be repeated.")]
Case = Annotated[list[str] | None, typer.Option("--case", metavar="GLOB,...", help="Cases, such as '*k32768*'.")]
Impl = Annotated[list[str] | None, typer.Option("--impl", metavar="GLOB,...", help="Implementations.")]
Tag = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG,...", help="Cases that have any of these tags.")]
Suite = Annotated[
    list[Path] | None, typer.Option("--suite", metavar="DIR", help="Another folder of families; may be repeated.")
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:<index>.")]
Results = Annotated[
    Path | None,
    typer.Option(
        "--results",
        metavar="DIR",
        envvar="GEMMGATE_RESULTS",
        help="Where runs are stored: by default the checkout's results/, else ./results.",
    ),
]
DEVICES = re.compile(r"auto|cpu|cuda(:\d+)?")


class Format(StrEnum):
    """Formats of a run."""

    TABLE = "table"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"


class Listing(StrEnum):
    """Formats of a list of things."""

    TABLE = "table"
    JSON = "json"


def globs(option: str, values: Sequence[str] | None) -> tuple[str, ...]:
    """`a,b` and `--x a --x b` alike; nothing given means all, but an empty text is an error."""
    parts = [part.strip() for value in values or () for part in value.split(",")]
    if values and not any(parts):
        raise UsageError(f"{option} is empty: leave it out to mean all.")
    return tuple(part for part in parts if part)


def selection(
    family: Sequence[str] | None = None,
    case: Sequence[str] | None = None,
    impl: Sequence[str] | None = None,
    tag: Sequence[str] | None = None,
) -> Selection:
    """What the four options select."""
    return Selection(globs("--family", family), globs("--case", case), globs("--impl", impl), globs("--tag", tag))


def families(suite: Sequence[Path] | None) -> Catalog:
    """All families, those of `--suite` included; what had to be left out is said."""
    found = catalog.find(tuple(suite or ()))
    for problem in found.problems:
        _terminal.say(problem)
    return found


def device(text: str) -> str:
    """Refuses what is no device's name; whether there is such a device here, a worker finds out."""
    if not DEVICES.fullmatch(text):
        raise unknown("device", text, ["auto", "cpu", "cuda", "cuda:0"])
    return text


def store(results: Path | None) -> Store:
    """The store of `--results`, or of the checkout that the current folder is in, or of ./results."""
    if results is not None:
        return Store(results)
    here = Path.cwd()
    checkout = next((folder for folder in (here, *here.parents) if _is_ours(folder / "pyproject.toml")), here)
    return Store(Path(os.path.relpath(checkout / "results")))


def _is_ours(project: Path) -> bool:
    try:
        found = tomllib.loads(project.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(found.get("project", {}).get("name") == "gemmgate")
