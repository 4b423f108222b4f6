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
    """A commit and a tree that differ by an idle table are the same by identity; with --all they are timed.

    One block shows that, and is measured though its second is over. Without an end an unknown item takes 6 to 12, one
    in ten is confirmed by up to 40 more, and each of these starts two workers.
    """
    monkeypatch.setenv("GEMMGATE_LOCKS", str(tmp_path))
    repository = make_repository(tmp_path / "theirs")
    (repository / "families" / "row_sums" / "table.json").write_text("{}")
    asked = ("gate", "--base", "main", "--suite", str(repository / "families"), "--format", "json")
    one = ("--case", "m8-k100-fp32", "--impl", "torch_sum", "--static", "none")
    assert git(repository, "status", "--porcelain")
    result = invoke(*asked, *one)
    assert result.stdout, result.stderr
    (item,) = json.loads(result.stdout)["items"]
    assert item["reason"] == "identical"
    result = invoke(*asked, *one, "--all", "--seconds", "1")
    assert result.stdout, result.stderr
    (item,) = json.loads(result.stdout)["items"]
    assert (item["blocks"], item["reason"]) in ((1, "no_time"), (0, "disturbed"))  # the latter beside another program
