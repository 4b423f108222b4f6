"""Which launches a visit times: a library's workspace lies elsewhere in each."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("torch", reason="what is measured holds tensors")

import torch

from gemmgate.suite.measure.bench import Bench
from gemmgate.suite.measure.graph import capture
from gemmgate.suite.measure.sampler import Finish, Launch
from gemmgate.suite.measure.visit import Visits
from gemmgate.suite.measure.work import Work

_UNTIMED, _UNTIMED_AFTER = 2, 1


class _Clock:
    """A second for every launch, which it runs."""

    name = "graph"

    def start(self, launches: Sequence[Launch]) -> Finish:
        for launch in launches:
            launch.enqueue()
        return lambda: [1.0 for _ in launches]


def visits_of(ran: list[str], *, has_graph: bool = True) -> Visits:
    """Visits of an implementation whose launches note where they were captured."""

    def mounted(place: str) -> Any:
        launch = Launch(lambda: ran.append(place), 2)
        captured = object() if has_graph else None
        calls = (lambda: None, lambda: None)
        return SimpleNamespace(
            name="it", timer="graph", launch=launch, launch_s=1.0, calls=calls, captured=captured, nodes=(),
            most_repeats=None, repeated=lambda times: launch,
        )  # fmt: skip

    bench = SimpleNamespace(
        mount=lambda work, name, cache, passes: mounted("0"),
        mount_elsewhere=lambda work, timed, cache, stream: mounted(str(stream)),
        at=lambda name, step: None,
        clocks={"graph": _Clock()},
        device=torch.device("cpu"),
        launching=None,
        telemetry=SimpleNamespace(power_w=None, marks=set),
    )
    work = SimpleNamespace(case=SimpleNamespace(precision="ieee"))
    return Visits(cast(Bench, bench), cast(Work, work), "it", "cold", None)


def places(visits: Visits, ran: list[str], level: float) -> list[str]:
    """Where what four replays ran was captured."""
    ran.clear()
    visits.visit(level, 4, 0.0)
    return ran[_UNTIMED:-_UNTIMED_AFTER]


def test_replays_take_turns_between_places() -> None:
    """So each visit has all of them."""
    ran: list[str] = []
    assert places(visits_of(ran), ran, 0.0) == ["0", "1", "2", "3"]


def test_what_has_no_graph_has_one_place() -> None:
    """Calls that no graph holds are launched as they were mounted."""
    ran: list[str] = []
    assert places(visits_of(ran, has_graph=False), ran, 0.0) == ["0"] * 4


@pytest.mark.gpu
def test_a_second_stream_brings_another_workspace() -> None:
    """A product that cuBLAS splits allocates once more for the second stream, not for another graph on the first."""
    x, w = (torch.ones(16, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    calls = [lambda: x @ w.T]
    held = [capture(calls)]
    taken = []
    for stream in (0, 1):
        before = torch.cuda.memory_allocated()
        held.append(capture(calls, stream=stream))
        taken.append(torch.cuda.memory_allocated() - before)
    assert taken[0] < 2**20 <= taken[1]
