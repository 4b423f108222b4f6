"""A repository with two runs in it, and how it is published."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gemmgate.suite import cli
from gemmgate.suite.store import Store
from tests.runs import row, run
from tests.stored import ROOT

# pages


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, list[str]]:
    """A checkout with asv's settings and two commits."""
    root = tmp_path / "checkout"
    root.mkdir()
    shutil.copy(ROOT / "asv.conf.json", root)

    def git(*words: str) -> str:
        who = ["-c", "user.name=Test", "-c", "user.email=test@localhost"]
        return subprocess.run(
            ["git", *who, *words], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    commits = []
    for number in range(2):
        git("commit", "--quiet", "--allow-empty", "--message", f"Commit {number}")
        commits.append(git("rev-parse", "HEAD"))
    return root, commits


Publish = Callable[..., int]


@pytest.fixture
def publish(repository: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Stores a run at each commit, then calls `gemmgate publish` in that checkout; returns its exit code."""
    from gemmgate.suite.cli import publish as module

    root, commits = repository
    store = Store(tmp_path / "results")
    monkeypatch.setattr(module, "own_overlay", lambda: root)
    for number, commit in enumerate(commits):
        rows = (row("cublas", 8e-6), row("own", (7 + number) * 1e-6))
        rows = tuple(replace(one, commit="", run_id="", utc=f"2026-01-0{number + 1}T12:00:00Z") for one in rows)
        header = run(id=f"2026010{number + 1}T120000Z-{commit[:10]}", commit=commit, utc=rows[0].utc)
        with store.begin(header) as journal:
            for one in rows:
                journal.append(one)
            journal.finish()

    def call(*options: str) -> int:
        monkeypatch.setattr(sys, "argv", ["gemmgate", "publish", "--results", str(store.root), *options])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return int(end.value.code or 0)

    return call
