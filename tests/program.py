"""The program called as a user would, in this process or in one of its own, on a store of the test's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gemmgate.suite import cli
from gemmgate.suite.store import Store
from tests.stored import make_row, make_run, stored

ID = "20261129T160312Z-0a1b2c3d4e"
Invoke = Callable[..., "Result"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "results")


@dataclass(frozen=True)
class Result:
    """What a call of the program left behind."""

    exit_code: int
    stdout: str
    stderr: str


@pytest.fixture
def invoke(store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Invoke:
    """Runs the program on that store."""
    monkeypatch.setenv("GEMMGATE_RESULTS", str(store.root))
    monkeypatch.delenv("GEMMGATE_DEBUG", raising=False)

    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["gemmgate", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return Result(int(end.value.code or 0), *capsys.readouterr())

    return run


def program(*arguments: str, code: str = "from gemmgate.suite.cli import main; main()") -> list[str]:
    """The program as a process of its own."""
    return [sys.executable, "-c", code, *arguments]


def make_store(store: Store) -> None:
    """Two implementations, and one that is broken, sampled together."""
    stored(
        store,
        make_run(),
        make_row(visit="1", yardstick="cublas"),
        make_row(implementation="own", visit="1", yardstick="cublas"),
        make_row(
            implementation="bad", visit="1", yardstick="cublas", status="broken", median_s=None, low_s=None, high_s=None
        ),
    )
