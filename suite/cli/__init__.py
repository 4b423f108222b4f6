"""The command line: `gemmgate COMMAND`. The only code that prints, reads arguments or exits.

Every module here whose name has no leading underscore is a command: a function `command` whose
parameters are its options and whose docstring's first line is its help, and perhaps an `ORDER`, which
places it in the help: smaller first, in the order of a user's day. Nothing is registered anywhere. Help
reads the modules' text, and only the module of the command that was called is imported, so that
`gemmgate show` starts fast and works where what `gemmgate run` needs is missing.
"""

from __future__ import annotations

import ast
import importlib
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import gemmgate
from gemmgate.suite.cli import _terminal
from gemmgate.suite.errors import UNJUDGED, CannotMeasureError, UsageError, unknown

_LAST = 1000


@dataclass(frozen=True)
class Found:
    """A command as its module's text describes it."""

    order: int
    name: str
    module: str
    summary: str


def found() -> list[Found]:
    """All commands, in the order of their help."""
    return sorted(
        (_described(path) for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_")),
        key=lambda command: (command.order, command.name),
    )


def _described(path: Path) -> Found:
    order, summary = _LAST, ""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == "command":
            summary = (ast.get_docstring(node) or "").partition("\n")[0]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ORDER":
            order = int(ast.literal_eval(node.value))
    return Found(order, path.stem.strip("_").replace("_", "-"), path.stem, summary)


class Command(TyperCommand):
    """A command that takes no empty text, as of a script's unset variable, for an option that was left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses it among the words as they were typed: of a path, empty and `.` are the same later on."""
        typed, _, _ = self.make_parser(ctx).parse_args([*args])
        for parameter in self.params:
            name = str(parameter.name)
            is_free = parameter.nargs == -1  # another program's arguments
            if not is_free and not all(word.strip() for word in _words(typed.get(name))):
                said = parameter.opts[0] if parameter.param_type_name == "option" else name.upper()
                raise UsageError(f"{said} is empty: give it a value, or leave it out.")
        return super().parse_args(ctx, args)


def _words(typed: Any) -> Sequence[str]:
    """One text, or several where an option may be repeated; a flag has none."""
    if isinstance(typed, str):
        return [typed]
    return typed if isinstance(typed, Sequence) else ()


class Commands(TyperGroup):
    """Imports a command when it is called, and turns errors into sentences and exit codes."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, for completion."""
        return [command.name for command in found()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, freshly imported; an unknown name is an error that lists those there are."""
        modules = {command.name: command.module for command in found()}
        if cmd_name not in modules:
            raise unknown("command", cmd_name, modules)
        try:
            module = importlib.import_module(f"{__name__}.{modules[cmd_name]}")
        except ImportError as error:
            raise CannotMeasureError(
                f"Command '{cmd_name}' cannot start: {error}. Install what is missing beside gemmgate; "
                "`nox -s bench` sets up an environment that has everything."
            ) from error
        alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        alone.command(cmd_name, cls=Command)(module.command)
        return typer.main.get_command(alone)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands in the help, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(command.name, command.summary) for command in found()])

    def invoke(self, ctx: Any) -> Any:
        """Runs a command; the one place where an error becomes a sentence and an exit code."""
        with _terminal.reported(debug=ctx.params["debug"]):
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 pass; 1 slower, broken or missing; 2 usage or unreadable input; 3 not measured or judged.",
)


def _print_version(asked: bool) -> None:
    if asked:
        _terminal.put(f"gemmgate {gemmgate.__version__}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[
        bool, typer.Option("--debug", envvar="GEMMGATE_DEBUG", help="Show where in the code an error arose.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Is this kernel really faster than cuBLAS, on this GPU, for these shapes?"""


def main() -> None:
    """The console script. A bug ends with its traceback and never with a code that means a verdict.

    To be terminated, as by a runner that cancels a job, is to be interrupted: it is said how to go on.
    """
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        typer.main.get_command(app)(prog_name="gemmgate")
    except Exception:  # noqa: BLE001 - Python's own exit code 1 would read as "slower"
        traceback.print_exc()
        _terminal.say("this is a bug in gemmgate: please report it with the lines above.")
        sys.exit(UNJUDGED)
