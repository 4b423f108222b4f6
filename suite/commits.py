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
    if not (root / "pyproject.toml").exists():
        return Commit(asked or f"v{__version__}", dirty=False)
    if shutil.which("git") is None or not _git(root, "rev-parse", "--git-dir"):
        if re.fullmatch(r"[0-9A-Za-z._-]{1,40}", asked):
            return Commit(asked, dirty=False)
        if asked:
            raise UsageError(f"--commit '{asked}' is no name for a commit: 1 to 40 letters, digits, dots, dashes.")
        raise UsageError(
            f"No git at {root} (no repository, or no git program), so this run has no commit to be filed under. "
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


def commit_times(root: Path) -> dict[str, int]:
    """Seconds since 1970 of every commit that the repository at `root` reaches from a branch, a tag or its head.

    Raises `UsageError` where there is no repository.
    """
    lines = _git(root, "rev-list", "--all", "--timestamp").splitlines() if shutil.which("git") else []
    if not lines:
        raise UsageError(f"No git repository with commits at {root}: a history is one of commits.")
    return {name: int(seconds) for seconds, name in (line.split() for line in lines)}


def _git(root: Path, *arguments: str) -> str:
    """What git prints, stripped; empty where it fails."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return (
        done.stdout.strip() or "yes"
        if done.returncode == 0 and arguments[0] == "rev-parse"
        else done.stdout.strip()
        if done.returncode == 0
        else ""
    )
