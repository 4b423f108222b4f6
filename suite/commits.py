"""Which commit the kernels under measurement are at."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gemmgate import __version__
from gemmgate.suite.errors import UsageError

_MEASURED = ("gemmgate", "suite", "kernels")


@dataclass(frozen=True)
class Commit:
    """`name` is a full hash, `v<version>` of an installed package, or the name that was passed in."""

    name: str
    dirty: bool


def describe_commit(root: Path, asked: str = "") -> Commit:
    """The commit of the checkout at `root`, or `asked` as git understands it there.

    Raises `UsageError` where git does not know it, and where there is no git and none was named.
    """
    installed = not (root / "pyproject.toml").exists()
    why = "" if installed else _why_no_git(root)
    if installed or why or (asked and not _git(root, "rev-parse", "--verify", "--quiet", "HEAD")):
        if asked and not re.fullmatch(r"[0-9A-Za-z._-]{1,40}", asked):
            raise UsageError(f"--commit '{asked}' is no name for a commit: 1 to 40 letters, digits, dots, dashes.")
        if asked or installed:
            return Commit(asked or f"v{__version__}", dirty=False)
        raise UsageError(
            f"git cannot say at which commit {root} is ({why}), so this run has none to be filed under. "
            "Pass it: --commit <hash or name>."
        )
    found = _git(root, "rev-parse", "--verify", "--quiet", f"{asked or 'HEAD'}^{{commit}}")
    if not found:
        if not asked:
            raise UsageError(f"The git repository at {root} has no commit yet. Commit once, or pass --commit <name>.")
        known = _git(root, "log", "-5", "--format=%h (%s)")
        raise UsageError(
            f"git does not know commit '{asked}' in {root}. The newest ones: {', '.join(known.splitlines()) or 'none'}."
        )
    return Commit(found, dirty=bool(_git(root, "status", "--porcelain", "--", *_MEASURED)))


def _why_no_git(root: Path) -> str:
    """Git's own words where it does not work here, as in a folder that another user owns; else empty."""
    if shutil.which("git") is None:
        return "there is no git program"
    done = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "--git-dir"], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stderr.partition("\n")[0].removeprefix("fatal: ") or "git failed"


def _git(root: Path, *arguments: str) -> str:
    """What git prints, stripped; empty where it fails."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
