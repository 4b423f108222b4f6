"""What only a GPU shows of a gate: launches read back from a graph, and two real sides that are the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from gemmgate.suite.measure.graph import capture, launches_hash
from gemmgate.suite.store import Store
from tests.gate_repository import git, make_repository
from tests.program import Invoke, invoke, store

__all__ = ["invoke", "store"]
pytestmark = pytest.mark.gpu


def hashed(rows: int) -> str:
    """Of a captured sum over that many rows."""
    x = torch.ones(rows, 512, device="cuda")

    def call() -> torch.Tensor:
        return x.sum(1)

    call()
    captured = capture([call])  # while it lives, its graph does
    return launches_hash(captured.graph.raw_cuda_graph())


def test_equal_launches_have_equal_hashes() -> None:
    """Captured again the same sum has the same hash, and over many more rows, with another grid, it has another."""
    assert hashed(64) == hashed(64) != ""
    assert hashed(64) != hashed(65536)


def test_a_table_that_nobody_reads_is_identical_and_all_is_timed_on_request(
    store: Store, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit and a tree that differ by an idle table are the same by identity; with --all they are timed."""
    monkeypatch.setenv("GEMMGATE_LOCKS", str(tmp_path))
    repository = make_repository(tmp_path / "theirs")
    (repository / "families" / "row_sums" / "table.json").write_text("{}")
    asked = ("gate", "--base", "main", "--suite", str(repository / "families"), "--format", "json")
    assert git(repository, "status", "--porcelain")
    result = invoke(*asked)
    assert result.stdout, result.stderr
    data = json.loads(result.stdout)
    assert {item["reason"] for item in data["items"]} == {"identical"}
    result = invoke(*asked, "--all", "--case", "m8-k100-fp32", "--impl", "torch_sum")
    assert result.stdout, result.stderr
    data = json.loads(result.stdout)
    assert all(item["blocks"] >= 4 for item in data["items"])
