"""Workers that take turns on a GPU in exclusive-process mode, on fakes that refuse a second context."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemmgate.suite import report
from gemmgate.suite.block_values import BASELINE, CANDIDATE, BlockValue, values
from gemmgate.suite.blocks import BlockPlan, Blocks
from gemmgate.suite.calibration import calibration
from gemmgate.suite.cli import _gate_sides
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.forecast import IN_TURNS, costs_of, forecast
from gemmgate.suite.looks import Noise
from gemmgate.suite.pairs import EDITED
from gemmgate.suite.records import Row
from gemmgate.suite.tenants import LEAVE_S, Tenants
from gemmgate.suite.turns import order
from tests.fake_pair import ITEMS, FakeNvml, Quiet, World
from tests.gate_world import GateWorld
from tests.program import Invoke, invoke, store
from tests.runs import H200
from tests.runs import run as stored_run
from tests.test_gate_gpu_path import CASE, OnH200, Play, edited, play

__all__ = ["edited", "invoke", "play", "store"]
BOARD = hashlib.sha256(b"b").hexdigest()[:12]
EXCLUSIVE = replace(H200, compute_mode="exclusive_process")


def exclusive(world: World) -> World:
    """Its GPU admits one context at a time."""
    world.exclusive = True
    return world


def tenants(nvml: FakeNvml) -> Tenants:
    """Of the fake's board, with a clock that only sleeping moves."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return Tenants(BOARD, nvml, lambda: now[0], sleep)


def run(world: World, **fields: Any) -> tuple[Blocks, list[Row], list[BlockValue], Quiet]:
    """All of a plan in turns: by default one case in two blocks."""
    rows: list[Row] = []
    progress = Quiet()
    plan = BlockPlan(**{"items": ITEMS[:1], "blocks": range(2), "cache": "cold", **fields})
    alone = tenants(world.nvml).wait_until_gone
    running = Blocks(plan, world.start, sink=rows.extend, progress=progress, begun=0.0, alone=alone)
    found = list(running.run())
    assert world.alive == 0
    return running, rows, found, progress


def visited(world: World) -> str:
    """Side and case of every visit."""
    return " ".join(entry[1][0] + entry[2] for entry in world.said("visit"))


@pytest.mark.parametrize("block", [0, 1])
@pytest.mark.parametrize("with_edit", [False, True])
def test_turns_are_the_same_read_backwards(block: int, with_edit: bool) -> None:
    """Every side has as many turns before the middle as after it, and none has two processes there."""
    turns = order(block, edited=with_edit)
    assert turns == turns[::-1]
    assert sorted(turns) == sorted(2 * [BASELINE, CANDIDATE, *([EDITED] if with_edit else [])])
    assert turns[0] == (CANDIDATE if block else BASELINE)


def test_all_cases_of_a_visit_share_a_process_and_a_block_takes_three() -> None:
    """Two cases go A A, B B B B, A A, then mirrored; nobody takes the device while another is on it."""
    world = exclusive(World())
    run(world, items=ITEMS[:2])
    assert visited(world) == "ba bb ca cb ca cb ba bb" + " " + "ca cb ba bb ba bb ca cb"
    assert world.started == 6
    assert len({entry[3] for entry in world.said("visit")[:8]}) == 3
    assert world.nvml.looks == 1 + 5 * 3  # each was waited for until NVML no longer listed it


def test_two_at_once_would_fail_there() -> None:
    """The same fakes without turns are refused as a board in that mode refuses, so that the test above can fail."""
    world = exclusive(World())
    with pytest.raises(CannotMeasureError, match="busy or unavailable"):
        list(Blocks(BlockPlan(ITEMS[:1], range(1), "cold"), world.start, sink=id, progress=Quiet()).run())


def test_values_are_those_of_workers_side_by_side() -> None:
    """A candidate that takes 2 % longer has that log-ratio in time and in cycles, and no contrast within processes."""
    _, rows, found, _ = run(exclusive(World(slower=0.02)), items=ITEMS[:2])
    assert [value.log_ratio for value in found] == pytest.approx([math.log(1.02)] * 4)
    assert [value.cycles_log_ratio for value in found] == pytest.approx([math.log(1.02 * 1.96 / 1.98)] * 4)
    assert {value.within for value in found} == {None}
    assert all("in_turns" in row.marks and row.error == 1e-4 and row.joules == 0.5 for row in rows)
    assert {row.samples_n for row in rows} == {8}


def test_a_linear_drift_cancels() -> None:
    """Where each visit takes a thousandth more than the one before it, every case of a block still shows no change."""
    world = exclusive(World())
    world.drift = 1e-3
    _, _, found, _ = run(world, items=ITEMS[:2], blocks=range(4))
    assert [value.log_ratio for value in found] == pytest.approx([0.0] * 8, abs=2e-5)


def test_the_next_worker_imports_while_this_one_measures() -> None:
    """After the first, every worker was started before the visits of the one before it."""
    world = exclusive(World())
    run(world, blocks=range(1))
    order_of = [entry[0] for entry in world.log if entry[0] in ("start", "greet", "visit")]
    assert order_of == ["start", "greet", "start", "visit", "greet", "start", "visit", "visit", "greet", "visit"]


def test_levels_and_an_edit_are_measured_in_five_processes() -> None:
    """A calibration's slow-downs come to their size, as does the edit, each from a block of five processes."""
    world = exclusive(World())
    world.edited = 0.03
    paths = (ITEMS[0].path,)
    _, _, found, _ = run(world, items=ITEMS[:2], levels=(0.01, 0.05), edited=paths)
    plain = {(value.path, value.level, value.edited): value.log_ratio for value in found}
    assert plain == pytest.approx(
        {
            **{(item.path, level, False): math.log(1 + level) for item in ITEMS[:2] for level in (0.0, 0.01, 0.05)},
            (ITEMS[0].path, 0.0, True): math.log(1.03),
        }
    )
    assert world.started == 10
    checks = [entry[1:3] for entry in world.said("check")]
    assert sorted(checks) == [(BASELINE, "a"), (BASELINE, "b"), (CANDIDATE, "a"), (CANDIDATE, "b"), (EDITED, "a")]


@pytest.mark.parametrize("side", [BASELINE, CANDIDATE])
def test_a_worker_that_dies_is_replaced_and_costs_no_other_case_anything(side: str) -> None:
    """One death costs a second try of that case in a fresh worker; two give it up, and the other case has its value."""
    world = exclusive(World())
    world.faults[side, "visit", "a"] = ["dies"]
    running, _, found, _ = run(world, items=ITEMS[:2], blocks=range(1))
    assert (len(found), running.given_up) == (2, {})
    world = exclusive(World())
    world.faults[side, "visit", "a"] = ["dies", "dies"]
    running, rows, found, _ = run(world, items=ITEMS[:2], blocks=range(1))
    assert [value.path for value in found] == [ITEMS[1].path]
    assert list(running.given_up) == [ITEMS[0].path]
    assert [row.status for row in rows] == ["error", "ok", "ok"]


def test_memory_that_runs_short_is_freed_between_cases() -> None:
    """Where one case takes most of the device, it is dropped before the next is made ready, in either turn."""
    world = exclusive(World())
    world.memory_share = 0.6
    _, _, found, _ = run(world, items=ITEMS[:2], blocks=range(1))
    assert len(found) == 2
    assert all(held <= 1 for held in world.held.values())


def test_a_spoiled_visit_is_made_again() -> None:
    """A throttled visit is followed by a settled second one of the same case, whose samples count instead."""
    world = exclusive(World())
    world.marks = lambda side, count: ["throttled"] if count == 1 else []
    _, rows, found, progress = run(world, blocks=range(1))
    assert not found[0].spoiled and {row.samples_n for row in rows} == {8}
    assert "throttled, so visited again" in progress.faults[0]


def test_who_stays_on_the_board_is_named() -> None:
    """A stranger that does not leave ends the wait with its number and what to do; of another board nobody is seen."""
    nvml = FakeNvml()
    nvml.listed = {4711: FakeNvml.STAYS}
    with pytest.raises(CannotMeasureError, match=rf"after {LEAVE_S:.0f} s process 4711 .*nvidia-smi -c DEFAULT"):
        tenants(nvml).wait_until_gone()
    Tenants("another", nvml).wait_until_gone()


def test_a_board_that_is_lost_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where NVML fails on the first of two boards, who stays on the second is still seen."""
    nvml = FakeNvml()
    nvml.listed = {4711: FakeNvml.STAYS}

    def uuid(handle: int) -> str:
        if handle == 0:
            raise FakeNvml.NVMLError("GPU is lost")
        return nvml.uuid

    monkeypatch.setattr(nvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(nvml, "nvmlDeviceGetUUID", uuid)
    assert tenants(nvml).pids() == [4711]


@pytest.mark.parametrize(("failures", "looks"), [(3, 5), (10**9, 42)])
def test_a_look_that_fails_says_nothing(failures: int, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where NVML fails nobody counts as gone until it answers again; for 2 s, 40 looks of 0.05 s, and not for ever."""
    nvml = FakeNvml()
    nvml.listed = {4711: 1}
    listed, made = nvml.nvmlDeviceGetComputeRunningProcesses, []

    def look(handle: int) -> list[Any]:
        made.append(handle)
        if len(made) <= failures:
            raise FakeNvml.NVMLError("unknown error")
        found: list[Any] = listed(handle)
        return found

    monkeypatch.setattr(nvml, "nvmlDeviceGetComputeRunningProcesses", look)
    tenants(nvml).wait_until_gone()
    assert abs(len(made) - looks) <= 1


class OnExclusive(OnH200):
    """A worker on a board in exclusive-process mode."""

    def __init__(self, world: GateWorld, side: str) -> None:
        super().__init__(world, side)
        self.machine = EXCLUSIVE  # type: ignore[assignment]


@pytest.mark.parametrize(("change", "code", "verdict"), [(0.0, 0, "SAME"), (0.05, 1, "SLOWER")])
def test_a_gate_in_exclusive_process_mode(
    invoke: Invoke,
    play: Play,
    edited: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    change: float,
    code: int,
    verdict: str,
) -> None:
    """From two commits to the exit code: sides take turns in survey and blocks, which report and log say."""
    world = GateWorld({CASE: change})
    world.exclusive = True
    play(world)
    monkeypatch.setattr(_gate_sides.Sides, "start", lambda self, device, modules, side: OnExclusive(world, side))
    monkeypatch.setattr(_gate_sides, "Tenants", lambda board: tenants(world.nvml))
    result = invoke(*edited[:-2])
    assert result.exit_code == code, result.stderr
    assert verdict in result.stdout
    said = " ".join(result.stdout.split())
    assert "The GPU admits one process at a time: the sides took turns, three processes a block." in said
    assert "both sides take turns, three processes a block." in result.stderr
    assert world.alive == 0


def test_a_plan_says_what_turns_cost() -> None:
    """Ten quiet items in turns take 15 + 10 x 0.9 + 4 x (10 x 0.8 + 7.5) = 86 s, and a block's share is said."""
    found = forecast(10, [Noise(0.0)] * 10, IN_TURNS, gates_time=True)
    assert found.total_s == pytest.approx(86.0, abs=0.1)
    assert "3 take turns in a block, 7.5 s beside its items" in report.show_forecast(found, None)
    assert costs_of([], IN_TURNS).turns == 3
    page = " ".join((Path(__file__).parents[1] / "docs" / "verdicts.md").read_text(encoding="utf-8").split())
    assert f"`--plan` counts {IN_TURNS.block_s:g} s a block and {IN_TURNS.item_s:g} s an item" in page
    assert f"who stays longer than {LEAVE_S:.0f} s ends the gate with 3" in page


def test_blocks_in_turns_are_known_apart() -> None:
    """A calibration in turns says that what arises in a process is not told apart, and has no such share."""
    _, rows, _, _ = run(exclusive(World(launch_sd=0.003)), blocks=range(12))
    made = calibration(stored_run(rows, machine=EXCLUSIVE))
    assert [case.within_share for case in made.cases] == [None]
    assert "workers took turns" in report.show_calibration(made, "table")
    assert len(values(rows)) == 12
