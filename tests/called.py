"""The program called as a function: what it printed and its exit code."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest import mock

from gemmgate.suite import cli


@dataclass(frozen=True)
class Result:
    """What a call left behind."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        """Standard error in one line."""
        return " ".join(self.stderr.split())


def called(*arguments: object) -> Result:
    """`gemmgate ARGUMENTS` in this process."""
    out, err = io.StringIO(), io.StringIO()
    words = ["gemmgate", *map(str, arguments)]
    with mock.patch.object(sys, "argv", words), redirect_stdout(out), redirect_stderr(err):
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return Result(code, out.getvalue(), err.getvalue())
