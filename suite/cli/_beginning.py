"""How a command's run begins: its name, its commit and what it was called as."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from gemmgate.suite.cli import _options as options
from gemmgate.suite.commits import Commit
from gemmgate.suite.outcomes import utc_now
from gemmgate.suite.records import Machine, Run, Stack, run_id


def begin_run(machine: Machine, stack: Stack, selection: Mapping[str, Any], commit: Commit) -> Run:
    """A run of the program's present call, without rows."""
    utc = utc_now()
    return Run(
        id=run_id(utc, commit.name, machine.board, dirty=commit.dirty),
        utc=utc,
        commit=commit.name,
        dirty=commit.dirty,
        machine=machine,
        stack=stack,
        selection=dict(selection),
        command=options.command_line(sys.argv[1:]),
    )
