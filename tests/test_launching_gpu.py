"""The state of launching of this process, on a GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from gemmgate.suite.measure.clock import EventClock
from gemmgate.suite.measure.launching import of_device
from gemmgate.suite.measure.sampler import Launch
from gemmgate.suite.records import STATES_APART

pytestmark = pytest.mark.gpu


def test_the_state_is_old_after_what_a_case_does() -> None:
    """After products, allocations and frees a look ends in the state of before."""
    launching = of_device(torch.cuda.current_device())
    launching.steady()
    for size in (64, 512, 2048):
        square = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
        for _ in range(64):
            square @ square
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        launching.steady()
        assert launching.node_s is not None
        assert not launching.is_young(launching.node_s)


def test_launches_come_back_without_their_sentinel() -> None:
    """As many seconds as launches, each more than nothing, in the old state."""
    launching = of_device(torch.cuda.current_device())
    launching.steady()
    square = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
    launch = Launch(lambda: (square @ square, None)[1], 1, 1e-4)
    seconds = launching.start(EventClock("events"), [launch] * 3)()
    assert len(seconds) == 3
    assert min(seconds) > 0


def test_a_fresh_process_is_young_until_it_is_aged() -> None:
    """The first looks find nodes that are faster than those of the old state, by more than what parts the two."""
    code = (
        "import torch\n"
        "from gemmgate.suite.measure.launching import of_device\n"
        "torch.cuda.set_device(0)\n"
        "launching = of_device(0)\n"
        "launching.begin()\n"
        "young_s = launching.node_s\n"
        "launching.steady()\n"
        "print(young_s, launching.node_s, int(launching.is_young(young_s)))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    young_s, old_s = map(float, found[:2])
    assert found[2] == "1"
    assert young_s < (1 - STATES_APART) * old_s
