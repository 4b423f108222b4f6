"""Which programmatic launches of a captured graph let one call run into the next."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="what is measured holds tensors")

from gemmgate.suite.measure.graph import Edge, overlapping_calls, queueing_s


def line(*programmatic: bool) -> list[Edge]:
    """Nodes 100, 101, ... one after the other."""
    return [(100 + i, 101 + i, is_programmatic) for i, is_programmatic in enumerate(programmatic)]


@pytest.mark.parametrize(
    ("edges", "calls", "expected"),
    [
        (line(True, False, True, False, True), 3, 0),
        (line(False, True, False, True, False), 3, 2),
        (line(True, True, True, True, True), 3, 2),
        (line(False, False, False), 2, 0),
        (line(True, True), 3, 2),
        ([], 1, 0),
    ],
    ids=["within calls", "between calls", "both", "none", "one kernel a call", "one node"],
)
def test_only_edges_between_calls_count(edges: list[Edge], calls: int, expected: int) -> None:
    """Of three calls of two kernels, the second and the fourth edge lead from call to call."""
    assert overlapping_calls(edges, calls) == expected
    assert overlapping_calls(edges[::-1], calls) == expected


def test_every_edge_counts_where_the_graph_is_no_line() -> None:
    """A fork has no order of calls to go by, so its two programmatic edges both count."""
    assert overlapping_calls([(1, 2, True), (1, 3, True), (2, 4, False), (3, 4, False)], 2) == 2


def test_every_edge_counts_where_calls_have_unequal_nodes() -> None:
    """Four nodes are not three calls' worth."""
    assert overlapping_calls(line(True, False, False), 3) == 1


@pytest.mark.parametrize("slow", [0, 1, 2, 3])
def test_a_host_that_is_kept_from_one_replay_is_not_slow(slow: int) -> None:
    """Of four replays of 2 us one that takes a tenth of a second, the first or another, leaves 2 us."""
    now, taken = [0.0], iter([0.1 if index == slow else 2e-6 for index in range(4)])

    def replay() -> None:
        now[0] += next(taken)

    assert queueing_s(replay, lambda: None, lambda: now[0]) == pytest.approx(2e-6)
