"""How long a captured graph is to be, from what is known of another one."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="what is timed holds tensors")

from gemmgate.suite.measure.sampler import Launch  # noqa: E402  torch first
from gemmgate.suite.measure.timed import Timed  # noqa: E402


def timed(calls: int, call_s: float, nodes: int = 1, captured: Any = ()) -> Timed:
    """A graph of so many calls of so many nodes, and the 4 us before it begins."""
    launch = Launch(lambda: None, calls)
    return Timed("own", "graph", launch, 4e-6 + calls * call_s, (), [], nodes=("node",) * nodes, captured=captured)


@pytest.mark.parametrize(
    ("calls", "call_s", "nodes", "slots", "passes"),
    [
        (240, 5e-6, 2, 480, 1),
        (300, 4e-6, 1, 100, 3),
        (300, 4e-6, 20, 100, 2),
        (300, 4e-6, 50, 100, 1),
        (3, 2e-3, 1, 6, 1),
        (300, 4.1e-6, 0, 50, 5),
    ],
)
def test_one_graph_tells_how_often_another_repeats_its_slots(
    calls: int, call_s: float, nodes: int, slots: int, passes: int
) -> None:
    """100 calls of 4 us take 0.4 ms: three passes are a millisecond, 20 nodes a call leave room for two, 50 for one."""
    assert timed(calls, call_s, nodes).passes_over(slots) == passes


def test_without_a_graph_nothing_is_told() -> None:
    """Calls that were not captured repeat no ring."""
    assert timed(1, 4e-6, captured=None).passes_over(100) is None
