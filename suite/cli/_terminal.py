"""What reaches the user: results on stdout, remarks and errors on stderr, and the exit code."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from gemmgate.suite.errors import GemmgateError, UsageError

INTERRUPTED = 130
"""As a shell reports a program that Ctrl-C ended."""
PIPE_CLOSED = 141
"""As a shell reports a program whose reader went away."""


def put(text: str) -> None:
    """A result. Ends quietly where the reader went away, as `head` does."""
    try:
        typer.echo(text.removesuffix("\n"))
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise typer.Exit(PIPE_CLOSED) from error
        raise UsageError(f"Cannot write the output: {error.strerror}. Send it to where there is space.") from error


def say(text: str) -> None:
    """A remark or an error, which no pipe of results should contain."""
    typer.echo(f"gemmgate: {text}", err=True)


def width() -> int | None:
    """Columns of the terminal; None where the output is no terminal and lines may be as long as they are."""
    return shutil.get_terminal_size().columns if _is_terminal() else None


def color() -> bool:
    """Whether a person looks at the output and has not asked for none by NO_COLOR."""
    return _is_terminal() and not os.environ.get("NO_COLOR")


def _is_terminal() -> bool:
    """Python has no standard output where the caller closed it."""
    return sys.stdout is not None and sys.stdout.isatty()


@contextmanager
def reported(*, debug: bool) -> Iterator[None]:
    """Ends the program with one sentence and an exit code, whatever was expected to go wrong."""
    try:
        yield
    except GemmgateError as error:
        if debug:
            traceback.print_exc()
        say(_with_notes(str(error), error))
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        say(_with_notes("interrupted.", error))
        raise typer.Exit(INTERRUPTED) from error


def _with_notes(text: str, error: BaseException) -> str:
    """With what was added on the error's way up, such as how to go on."""
    return " ".join([text, *getattr(error, "__notes__", ())])
