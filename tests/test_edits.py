"""The known edit: where it finds its place, and that the edited kernel computes the same."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gemmgate.suite.edits import EXTRA_TRIP, edited_overlay
from gemmgate.suite.errors import UsageError
from gemmgate.suite.workers import own_overlay

LOOP = "    for k_tile in range(first, last):\n        pass\n"


def test_a_loop_gets_one_trip_more() -> None:
    """The loop's bound grows by one, and its index stays at the end of K there."""
    assert EXTRA_TRIP.applied(f"before\n{LOOP}after\n") == (
        "before\n"
        "    for k_trip in range(first, last + 1):\n"
        "        k_tile = tl.where(k_trip < last, k_trip, tl.cdiv(K, BK))\n"
        "        pass\n"
        "after\n"
    )


@pytest.mark.parametrize(("source", "said"), [("nothing", "has no lines"), (LOOP + LOOP, "has 2 lines")])
def test_a_kernel_without_its_place_is_refused(source: str, said: str) -> None:
    """Where there is not exactly one such loop, the sentence names the file and where to change the pattern."""
    with pytest.raises(UsageError, match=r"suite/edits\.py") as refused:
        EXTRA_TRIP.applied(source)
    assert said in str(refused.value) and EXTRA_TRIP.file in str(refused.value)


def test_a_kernel_that_is_gone_is_refused(tmp_path: Path) -> None:
    """A file that does not exist is named, and nothing is copied."""
    with pytest.raises(UsageError, match=r"gone\.py does not exist"):
        edited_overlay(own_overlay(), tmp_path, replace(EXTRA_TRIP, file="gone.py"))
    assert list(tmp_path.iterdir()) == []


COMPARED = """
import inspect, torch
from gemmgate.kernels.dense_splitk import triton_split_k as module
assert ("k_trip" in inspect.getsource(module._multiply.fn)) is {edited}
a, b = (torch.randn(size, generator=torch.Generator().manual_seed(3)) for size in ((16, 320), (320, 16)))
out = module.split_k(a, b, splits=2)
print(out.double().sub(a.double() @ b.double()).norm().item() < 1e-4, out.view(torch.int32).sum().item())
"""


def test_the_edited_kernel_computes_the_same_bits(tmp_path: Path) -> None:
    """Interpreted, the edited copy and this checkout give one result, which is right; only the copy has the edit."""
    pytest.importorskip("triton", reason="the kernel that is edited is one of Triton's")
    sides = {"True": edited_overlay(own_overlay(), tmp_path, EXTRA_TRIP), "False": own_overlay()}
    said = []
    for edited, overlay in sides.items():
        environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(overlay)}
        code = COMPARED.format(edited=edited)
        run = [sys.executable, "-P", "-c", code]
        result = subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        said.append(result.stdout)
    assert said[0] == said[1]
    assert said[0].startswith("True ")
