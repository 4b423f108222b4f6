"""How a command's run begins: its name, its commit and what it was called as."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmgate.suite.cli import _options as options
from gemmgate.suite.commits import describe_commit
from gemmgate.suite.outcomes import utc_now
from gemmgate.suite.records import Machine, Run, Stack, run_id
from gemmgate.suite.workers import own_overlay


def begin_run(
    machine: Machine, stack: Stack, selection: Mapping[str, Any], commit: str, apart: Sequence[Path] = ()
) -> Run:
    """A run without rows, of this checkout; `commit` names it where git cannot.

    Changes to the files `apart`, which the command itself writes, do not make it one of uncommitted code.
    """
    committed = describe_commit(own_overlay(), commit, apart=apart)
    utc = utc_now()
    return Run(
        id=run_id(utc, committed.name, dirty=committed.dirty),
        utc=utc,
        commit=committed.name,
        dirty=committed.dirty,
        machine=machine,
        stack=stack,
        selection=dict(selection),
        command=options.command_line(sys.argv[1:]),
    )
