"""The command with which a user goes on where an earlier one stopped."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from gemmgate.suite.records import Run

_RESUMABLE = ("run", "calibrate", "tune", "gate")
_DEFAULT = Path("results")
"""Where runs are stored by default, as seen from the checkout: that need not be said."""
_SETTLED = (
    "--family",
    "--case",
    "--impl",
    "--tag",
    "--cache",
    "--config",
    "--shapes",
    "--tokens",
    "--dtype",
    "--base",
    "--head",
    "--base-python",
    "--head-python",
)
"""Options whose values the stored run holds: beside `--resume` they are refused."""
_REPLACED = ("--resume", "--results", "--seconds")


def go_on(run: Run, root: Path) -> str:
    """The command that measures what `run`, stored below `root`, lacks; empty where its command cannot be resumed.

    It has the options of the first call that its run does not hold, such as the device, and no limit of time.
    """
    try:
        words = shlex.split(run.command)[1:]
    except ValueError:  # not a command that a shell would take: a damaged file, or one of another program
        return ""
    command = next((word for word in words if not word.startswith("-")), "run")
    if command not in _RESUMABLE:
        return ""
    settled = (*_SETTLED, "--suite") if command == "gate" else _SETTLED
    kept = without(words[words.index(command) + 1 :] if words else [], (*settled, *_REPLACED))
    where = [] if root == _DEFAULT else ["--results", str(root)]
    return shlex.join(["gemmgate", command, "--resume", run.id, *kept, *where])


def without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """The words of a call without these options and their values, written `--option value` or `--option=value`."""
    kept, is_value = [], False
    for word in words:
        name, separator, _ = word.partition("=")
        if not is_value and name not in options:
            kept.append(word)
        is_value = not is_value and name in options and not separator
    return kept
