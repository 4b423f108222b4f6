"""A git repository of somebody else's, with one family of two implementations."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

EXAMPLE = Path(__file__).parent / "example" / "row_sums"


def git(folder: Path, *arguments: str) -> str:
    """What git prints."""
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def make_repository(folder: Path) -> Path:
    """The example family below `families`, committed on branch main."""
    shutil.copytree(EXAMPLE, folder / "families" / "row_sums", ignore=shutil.ignore_patterns("__pycache__"))
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder
