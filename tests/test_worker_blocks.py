"""What a worker does for blocks before anything is timed: once where once is enough."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import pytest
import torch

from gemmgate.suite.measure import worker as measuring
from gemmgate.suite.workers import Worker
from tests.test_workers import LONG_S, PREPARE, SUITES


@pytest.mark.parametrize(("cuda", "times"), [("13.0", 1), (None, 0)])
def test_the_compiler_is_read_before_the_device_is_taken(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, times: int
) -> None:
    """Triton that was imported hashes itself as a worker starts, under a torch for GPUs and under no other."""
    read: list[int] = []
    monkeypatch.setitem(sys.modules, "triton.runtime.cache", SimpleNamespace(triton_key=lambda: read.append(1)))
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", None)
    measuring._read_compiler()
    assert len(read) == times


def test_the_triton_of_today_hashes_itself_by_that_name() -> None:
    """What the test above puts a fake in place of exists in the Triton that is installed."""
    pytest.importorskip("triton", reason="the cache is Triton's")
    assert callable(importlib.import_module("triton.runtime.cache").triton_key)


def test_what_is_mounted_again_tells_no_facts() -> None:
    """The first time all facts are told, again only whether memory is left; it can be visited either way."""
    started = Worker("cpu", suites=SUITES)
    try:
        started.ask("prepare", LONG_S, **PREPARE, implementation="plain")
        asked = {"implementation": "plain", "cache": "hot"}
        first = started.ask("mount", LONG_S, **asked, item="a")
        again = started.ask("mount", LONG_S, **asked, item="b", passes=first["passes"], again=True)
        assert {"passes", "calls", "launches", "kernels", "free_share"} <= first.keys()
        assert set(again) == {"id", "ok", "at", "extras", "free_share"}
        visit = started.ask("visit", LONG_S, item="b", level=0.0, replays=2, warm_s=0.0)
        assert len(visit["samples_s"]) == 2
    finally:
        started.kill()
