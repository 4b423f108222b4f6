"""The state of launching of this process, on a GPU."""

from __future__ import annotations

import pytest
import torch

from gemmgate.suite.measure.launching import SAME, of_device

pytestmark = pytest.mark.gpu


def test_the_state_stays_through_what_a_case_does() -> None:
    """Cycles of a node are alike before and after products, captures and allocations, each time once it is steady."""
    launching = of_device(torch.cuda.current_device())
    first = launching.steady()
    for size in (64, 512, 2048):
        square = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
        for _ in range(64):
            square @ square
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        assert abs(launching.steady() - first) <= SAME * max(first, launching.steady())


def test_samples_in_a_steady_state_have_no_mark() -> None:
    """Replaying a graph for a while does not move the state."""
    launching = of_device(torch.cuda.current_device())
    marks: set[str] = set()
    square = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
    with launching.watched(marks):
        for _ in range(200):
            square @ square
        torch.cuda.synchronize()
    assert marks == set()
