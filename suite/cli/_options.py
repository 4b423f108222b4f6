"""Options that several commands share, each with the function that turns its text into what it means.

Options that always come together are a dataclass: a command that is `grouped` takes it as one parameter, and has
an option for each of its fields.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any, get_type_hints

import typer

from gemmgate.suite import catalog
from gemmgate.suite.again import without
from gemmgate.suite.catalog import Catalog, Selection
from gemmgate.suite.cli import _terminal
from gemmgate.suite.errors import UsageError, unknown
from gemmgate.suite.models import read_model
from gemmgate.suite.shapefiles import read_shapes
from gemmgate.suite.shapes import Made, dtype_word, make_cases
from gemmgate.suite.store import Store
from gemmgate.suite.store.files import explained

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


class Page(StrEnum):
    """Formats that people read."""

    TABLE = "table"
    MARKDOWN = "markdown"


class Listing(StrEnum):
    """Formats of a list of things."""

    TABLE = "table"
    JSON = "json"


def command_line(arguments: Sequence[str]) -> str:
    """The call as a run records it: without `--results`, since where a run lies is no part of what it measured."""
    return shlex.join(["gemmgate", *without(arguments, ["--results"])])


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


@dataclass(frozen=True)
class Selected:
    """Which cases and implementations."""

    family: Family = None
    case: Case = None
    impl: Impl = None
    tag: Tag = None

    def selection(self) -> Selection:
        return selection(self.family, self.case, self.impl, self.tag)


def families(suite: Sequence[Path] | None) -> Catalog:
    """All families, those of `--suite` included; what had to be left out is said."""
    found = catalog.find(tuple(suite or ()))
    for problem in found.problems:
        _terminal.say(problem)
    return found


@dataclass(frozen=True)
class Given:
    """Somebody's own shapes: a model's, a file's."""

    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A Hugging Face config.json: the products of that model's pass."),
    ] = None
    shapes: Annotated[
        Path | None, typer.Option("--shapes", metavar="FILE", help="A CSV file with m, n, k and perhaps dtype, count.")
    ] = None
    tokens: Annotated[
        str, typer.Option("--tokens", metavar="N,...", help="With --config: tokens in a pass. Default: 1,16,128.")
    ] = ""
    dtype: Annotated[str, typer.Option("--dtype", help="With --shapes: of shapes that name none. Default: bf16.")] = ""

    def made(self, known: Catalog, families: Sequence[str]) -> Made | None:
        """The cases of `--config` and `--shapes`, None where neither is given; what is left out of them is said.

        `families` are those of `--family`: here one at most.
        """
        for option, given, other, needed in (
            ("--tokens", self.tokens, "--config", self.config),
            ("--dtype", self.dtype, "--shapes", self.shapes),
        ):
            if given and needed is None:
                raise UsageError(f"{option} means nothing without {other}.")
        if self.config is None and self.shapes is None:
            return None
        found, notes = read_shapes(self.shapes) if self.shapes else ([], [])
        if self.config is not None:
            products, lost = read_model(self.config, _whole_numbers("--tokens", self.tokens or "1,16,128"))
            found, notes = [*found, *products], [*notes, *lost]
        if len(families) > 1:
            raise UsageError(
                "With --config or --shapes, --family names the one family that the products are measured as."
            )
        try:
            cases = make_cases(found, known, "".join(families), dtype_word(self.dtype or "bf16"))
        except ValueError as error:
            raise UsageError(f"--dtype: {error}.") from error
        for note in (*notes, *cases.notes):
            _terminal.say(note)
        return cases


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of those parameters whose type is a dataclass."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        if not is_dataclass(kind := hints[name]):
            parameters.append(parameter.replace(annotation=kind))
            continue
        groups[name] = kind
        of_fields = get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(field.name, parameter.kind, default=field.default, annotation=of_fields[field.name])
            for field in fields(kind)
        ]

    @functools.wraps(command)
    def called(**values: Any) -> None:
        made = {
            name: kind(**{field.name: values.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**values, **made)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _whole_numbers(option: str, text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"[1-9]\d*", word) for word in words):
        raise UsageError(f"{option} '{text}' should be whole numbers above 0, such as 1,16,128.")
    return [int(word) for word in dict.fromkeys(words)]


def refuse_beside(context: typer.Context, meant: Mapping[str, Collection[str]]) -> None:
    """Refuses what was typed beside a mode, such as `--show`, in which it would do nothing.

    `meant` maps each mode, by its parameter, to the parameters that have a meaning beside it.
    """
    typed = {
        str(parameter.name): parameter.opts[0]
        for parameter in context.command.params
        if getattr(context.get_parameter_source(str(parameter.name)), "name", "") == "COMMANDLINE"
    }
    mode = next((mode for mode in meant if mode in typed), "")
    other = next((name for name in typed if mode and name != mode and name not in meant[mode]), "")
    if other:
        raise UsageError(f"{typed[other]} means nothing with {typed[mode]}: leave one of the two out.")


def refuse_same_file(files: Mapping[str, Path | None]) -> None:
    """Refuses two options, of which `files` holds the values, that would write the same file."""
    for (one, first), (other, second) in combinations(files.items(), 2):
        if first and second and first.resolve() == second.resolve() and (first.is_file() or not first.exists()):
            raise UsageError(f"{one} and {other} would both write {second}: name another file for one of them.")


def device(text: str) -> str:
    """Refuses what is no device's name; whether there is such a device here, a worker finds out."""
    if not DEVICES.fullmatch(text):
        raise unknown("device", text, ["auto", "cpu", "cuda", "cuda:0"])
    return text


def store(results: Path | None) -> Store:
    """The store of `--results`, or of the checkout that the current folder is in, or of ./results."""
    if results is not None:
        if results.exists() and not results.is_dir():
            raise UsageError(f"--results {results} is no folder: name the one that has runs/ in it, or a new one.")
        return Store(results)
    here = Path.cwd()
    checkout = next((folder for folder in (here, *here.parents) if _is_ours(folder / "pyproject.toml")), here)
    return Store(Path(os.path.relpath(checkout / "results")))


def writable_folder(option: str, folder: Path) -> Path:
    """The folder, made where it is missing; raises `UnwritableError` where it takes no file, before any work begins."""
    with explained("write in", folder, f", or name another folder with {option}."):
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    return folder


def _is_ours(project: Path) -> bool:
    try:
        found = tomllib.loads(project.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return bool(found.get("project", {}).get("name") == "gemmgate")
