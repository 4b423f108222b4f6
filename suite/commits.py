"""Which commit the kernels under measurement are at."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
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


def describe_commit(root: Path, asked: str = "", apart: Sequence[Path] = ()) -> Commit:
    """The commit of the checkout at `root`; `asked` where git cannot tell, and otherwise only to confirm it.

    Changes of the files `apart` do not make it dirty: those are the caller's own output.
    Raises `UsageError` where git does not know `asked`, or has another commit checked out, and where
    there is no history and none was named.
    """
    if not (root / "pyproject.toml").exists():
        return Commit(_as_name(asked) if asked else f"v{__version__}", dirty=False)
    head = commit_of(root, "HEAD")
    if not head:
        if asked:
            return Commit(_as_name(asked), dirty=False)
        raise UsageError(
            f"git cannot say at which commit {root} is ({why_no_commit(root)}), so this run has none to be filed "
            "under. Pass it: --commit <hash or name>."
        )
    if asked and commit_of(root, asked) != head:
        known = ", ".join(git(root, "log", "-5", "--format=%h (%s)").splitlines())
        trouble = "has another commit checked out" if commit_of(root, asked) else "does not know it"
        raise UsageError(
            f"--commit '{asked}': git in {root} {trouble}, and what is measured is what is checked out, {head[:10]}. "
            f"Check it out, or leave --commit away. The newest commits: {known}."
        )
    inside = [path.resolve() for path in apart if path.resolve().is_relative_to(root.resolve())]
    excluded = [f":(exclude,literal){path.relative_to(root.resolve())}" for path in inside]
    status = git(root, "status", "--porcelain", "--untracked-files=all", "--", *_MEASURED, *excluded)
    return Commit(head, dirty=bool(status))


def _as_name(asked: str) -> str:
    if not re.fullmatch(r"[0-9A-Za-z._-]{1,40}", asked):
        raise UsageError(f"--commit '{asked}' is no name for a commit: 1 to 40 letters, digits, dots, dashes.")
    return asked


def commit_of(root: Path, revision: str) -> str:
    """The full hash, or an empty text where git cannot say."""
    return git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")


def commit_times(root: Path) -> dict[str, int]:
    """Seconds since 1970 of every commit that the repository at `root` reaches from a branch, a tag or its head.

    Raises `UsageError` where there is no repository.
    """
    lines = git(root, "rev-list", "--all", "--timestamp").splitlines() if shutil.which("git") else []
    if not lines:
        raise UsageError(f"No git repository with commits at {root}: a history is one of commits.")
    return {name: int(seconds) for seconds, name in (line.split() for line in lines)}


def why_no_commit(root: Path) -> str:
    """Git's own words where it does not work here, as in a folder that another user owns."""
    git = shutil.which("git")
    if git is None:
        return "there is no git program"
    asked = [git, "-C", str(root), "rev-parse", "--git-dir"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return "its repository has no commit yet"
    return done.stderr.partition("\n")[0].removeprefix("fatal: ") or "git failed"


def git(root: Path, *arguments: str) -> str:
    """What git prints, stripped; empty where it fails or is not there."""
    git = shutil.which("git")
    if git is None:
        return ""
    done = subprocess.run([git, "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
