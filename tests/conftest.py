"""What all tests share: those marked `gpu` are skipped where there is no CUDA device."""

from __future__ import annotations

from functools import cache

import pytest


@cache
def cuda_available() -> bool:
    """Asked when the first test marked `gpu` is about to run, so that collecting tests imports no torch."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a GPU where there is none."""
    if item.get_closest_marker("gpu") is not None and not cuda_available():
        pytest.skip("needs a CUDA device")
