"""The gate's command from two commits to an exit code as on a GPU: only the workers are none, and answer at once."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gemmgate.suite import watch
from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.cases import Target
from gemmgate.suite.cli._gate_sides import Sides
from gemmgate.suite.records import METHOD_VERSION
from gemmgate.suite.store import Store
from tests.gate_repository import git, make_repository
from tests.gate_world import GateWorker, GateWorld
from tests.program import Invoke, invoke, store
from tests.runs import H200

__all__ = ["invoke", "store"]
H200_TARGET = Target(arch="sm_90", name="NVIDIA H200", sm_count=132, memory_bytes=140 << 30)


class OnH200(GateWorker):
    """As far as probing looks at it too; `is_gpu` follows from the target."""

    def __init__(self, world: GateWorld, side: str) -> None:
        super().__init__(world, side)
        self.machine = H200  # type: ignore[assignment]
        self.target = H200_TARGET  # type: ignore[assignment]
        self.flags = defaultdict(lambda: {"f": "1"})

    def _visit(self, fields: dict[str, Any]) -> dict[str, Any]:
        if self.world.said("visit")[-1:] and len(self.world.said("visit")) == getattr(self.world, "interrupt_at", -1):
            raise KeyboardInterrupt
        return super()._visit(fields)


Play = Callable[[GateWorld], GateWorld]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Puts a world in place of all workers; what was started is ended when the command is through."""
    monkeypatch.setenv("GEMMGATE_LOCKS", str(tmp_path))
    monkeypatch.setenv("GEMMGATE_CACHE", str(tmp_path / "cache"))

    def put(world: GateWorld) -> GateWorld:
        monkeypatch.setattr(Sides, "start", lambda self, device, modules, side: OnH200(world, side))
        return world

    return put


@pytest.fixture
def edited(tmp_path: Path) -> tuple[str, ...]:
    """Options of a gate over a repository whose kernel was edited in the tree."""
    repository = make_repository(tmp_path / "theirs")
    kernel = repository / "families" / "row_sums" / "sums.py"
    kernel.write_text(kernel.read_text() + "CHANGED = 1\n")
    return ("gate", "--base", "main", "--suite", str(repository / "families"), "--format", "json")


CASE = "m8-k100-fp32"


@pytest.mark.parametrize(("change", "code", "verdict"), [(0.05, 1, "SLOWER"), (-0.05, 0, "FASTER")])
def test_a_change_is_judged(
    invoke: Invoke, play: Play, edited: tuple[str, ...], change: float, code: int, verdict: str
) -> None:
    """5 % more time in both implementations are SLOWER and exit code 1; less passes; every worker has ended."""
    world = play(GateWorld({CASE: change}))
    result = invoke(*edited)
    assert result.exit_code == code, result.stderr
    data = json.loads(result.stdout)
    assert {item["verdict"] for item in data["items"]} == {verdict}
    assert world.alive == 0
    assert {"setup", "survey", "visits", "total"} <= set(data["seconds"])
    assert "2 items are timed: about " in result.stderr
    assert data["board"] == H200.board


def test_a_gate_of_unchanged_code_tells_the_next_one_its_noise(
    store: Store, invoke: Invoke, play: Play, edited: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit against itself times everything and counts as one clean gate; the next gate knows its items' noise."""
    monkeypatch.setattr(watch, "REHEARSED", 10)
    play(GateWorld())
    git(Path(edited[4]).parent, "checkout", "--quiet", ".")
    result = invoke(*edited[:3], "--head", "main", *edited[3:])
    assert result.exit_code == 0 and "as a test of the gate" in result.stderr
    rang = json.loads(invoke("gate", "--watch", "--format", "json").stdout)
    assert (rang["gates"], rang["alarms"], rang["untimed"]) == (1, 0, 0)
    play(GateWorld())
    data = json.loads(invoke(*edited, "--all").stdout)
    assert {item["noise_from"] for item in data["items"]} != {"this gate's own blocks"}
    assert all(run.method == METHOD_VERSION for run in map(store.gates.load, ["latest"]))


def test_an_interrupted_gate_goes_on(store: Store, invoke: Invoke, play: Play, edited: tuple[str, ...]) -> None:
    """After Ctrl-C among the fresh blocks the code is 130, the words name --resume, and resumed it finds the same."""
    world = play(GateWorld({CASE: 0.05}))
    world.interrupt_at = 4 * 2 * 15  # type: ignore[attr-defined]
    result = invoke(*edited)
    assert result.exit_code == 130
    (stored,) = store.gates.runs()
    assert f"gemmgate gate --resume {stored.id}" in result.stderr
    assert world.alive == 0
    play(GateWorld({CASE: 0.05}))
    result = invoke("gate", "--resume", stored.id, "--format", "json")
    assert result.exit_code == 1, result.stderr
    assert {item["verdict"] for item in json.loads(result.stdout)["items"]} == {"SLOWER"}


def test_a_budget_that_is_used_up_begins_no_block(
    store: Store, invoke: Invoke, play: Play, edited: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a second for everything one block is measured, the rest is said to lack time, and the code is 3. The report
    says how it goes on, which finds the slow-down.
    """
    world = play(GateWorld({CASE: 0.05}))
    clock = iter(range(10**9))
    monkeypatch.setattr("gemmgate.suite.blocks.time", SimpleNamespace(monotonic=lambda: 1e6 + next(clock)))
    result = invoke(*edited, "--seconds", "1")
    assert result.exit_code == 3
    assert len(world.said("visit")) == 2 * 4
    assert "--seconds 1 leaves" in result.stderr
    (stored,) = store.gates.runs()
    again = f"gate --resume {stored.id}"
    said = invoke("gate", "--show", stored.id).stdout
    assert f"Time ran out for 2 items: `gemmgate {again}` goes on with them." in " ".join(said.split())
    play(GateWorld({CASE: 0.05}))
    assert invoke(*again.split()).exit_code == 1


@pytest.mark.parametrize("side", [BASELINE, CANDIDATE])
def test_a_worker_that_dies_costs_a_second_try(invoke: Invoke, play: Play, edited: tuple[str, ...], side: str) -> None:
    """One that dies in the survey and one that dies in a block are replaced, and the gate passes."""
    world = play(GateWorld())
    world.faults[side, "check", CASE] = ["dies"]
    world.faults[side, "visit", CASE] = ["dies"]
    result = invoke(*edited)
    assert result.exit_code == 0, result.stderr
    assert world.alive == 0


def test_what_did_not_change_is_not_even_prepared(invoke: Invoke, play: Play, edited: tuple[str, ...]) -> None:
    """A commit against a tree that differs by a comment passes without one request to a worker; --all times it."""
    kernel = Path(edited[4]) / "row_sums" / "sums.py"
    kernel.write_text(kernel.read_text().replace("CHANGED = 1", "# a comment"))
    world = play(GateWorld())
    data = json.loads(invoke(*edited).stdout)
    assert {item["reason"] for item in data["items"]} == {"untouched"}
    assert data["exit_code"] == 0 and world.said("prepare") == []
    assert {item["reason"] for item in json.loads(invoke(*edited, "--all").stdout)["items"]} == {"no_change"}
