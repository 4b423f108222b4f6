"""What a gate will take: by hand where nothing is random, and from what earlier runs were busy with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gemmgate.suite import report
from gemmgate.suite.forecast import ON_A_GPU, Costs, costs_of, forecast
from gemmgate.suite.looks import Noise
from gemmgate.suite.store import Store
from tests.gate_repository import make_repository
from tests.gate_world import GateWorld, Played
from tests.program import Invoke, invoke, store

__all__ = ["invoke", "store"]
COSTS = Costs(setup_s=1.0, survey_s=2.0, item_s=0.1, block_s=0.5, source="a run")


def test_without_any_noise_all_is_clear_after_four_blocks() -> None:
    """Ten items: 1 s, 10 x 2 s of survey and 4 x (10 x 0.1 + 0.5) s of blocks make 27 s; a change adds 0.6 to 4.8 s."""
    found = forecast(10, [Noise(0.0)] * 10, replace(COSTS), gates_time=True)
    assert found.total_s == pytest.approx(27.0, abs=0.1)
    assert [stage.visits for stage in found.stages] == [0, 0, 160, 0, 0]
    assert found.changed_s == pytest.approx((0.6, 4.8))


def test_noise_leaves_items_open() -> None:
    """Of a hundred items that scatter as calibrated some are screened on, and fewer than a tenth confirmed in vain."""
    found = forecast(100, [Noise(0.008)] * 100, COSTS, gates_time=True)
    _, _, every, late, fresh = found.stages
    assert 20 < late.items < every.items == 100
    assert 0 < fresh.items < 10


def test_on_a_cpu_three_blocks_are_shown() -> None:
    """Five items: 1 s, 5 x 2 s and 3 x (5 x 0.1 + 0.5) s make 14 s."""
    assert forecast(5, [None] * 5, COSTS, gates_time=False).total_s == pytest.approx(14.0)


def test_costs_are_what_runs_were_busy_with() -> None:
    """12 item-blocks of 9 s in all, 4 blocks that waited 3 s, and a survey of 3 items in 6 s; else what was given.

    Blocks without visits that do not count, and a survey that compiled, are those of an older gate and tell nothing.
    """
    run = Played(GateWorld(block_sd=1e-6)).run
    blocks = len({row.phase for row in run.rows if row.phase.startswith("block ") and "candidate" in row.phase})
    pairs = sum(row.phase.startswith("block ") and "candidate" in row.phase for row in run.rows)
    spent = {"setup": 4.0, "survey": 6.0, "start": 3.0, "prepare": 1.0, "mount": 1.0, "settle": 2.0, "visits": 5.0}
    old = costs_of([replace(run, seconds=spent)], ON_A_GPU)
    assert old == replace(ON_A_GPU, setup_s=4.0)
    spent |= {"warming": 1.0, "settle": 1.5, "lead": 0.5}
    found = costs_of([replace(run, seconds=spent)], ON_A_GPU)
    assert (blocks, pairs) == (4, 12)
    assert found == Costs(4.0, 2.0, 9.0 / 12, 3.0 / 4, run.id)
    assert costs_of([replace(run, seconds={"total": 9.0})], ON_A_GPU) == ON_A_GPU


def test_what_is_compiled_beforehand_and_not_known_is_counted() -> None:
    """96 kernels add the seconds of compiling; of ten items three are unknown, whose two more blocks take 0.6 s."""
    noise = [Noise(0.0)] * 7 + [None] * 3
    found = forecast(10, noise, COSTS, gates_time=True, compiled=96)
    assert found.total_s - forecast(10, noise, COSTS, gates_time=True).total_s == pytest.approx(COSTS.ahead_s)
    said = " ".join(report.show_forecast(found, None).split())
    assert "The noise of 3 items is not known: they have 6 blocks at least, where 4 may do" in said
    assert "take 1 s." in said
    assert "not known" not in report.show_forecast(forecast(1, noise[:1], COSTS, gates_time=True), None)


def test_a_budget_that_is_too_small_is_said() -> None:
    """27 s are needed: 20 are too few and say so, 40 are enough."""
    found = forecast(10, [Noise(0.0)] * 10, COSTS, gates_time=True)
    assert "About 27 s are needed, and --seconds gives 20" in report.show_forecast(found, 20.0)
    assert "--seconds 40 are enough." in report.show_forecast(found, 40.0)


def test_a_plan_measures_nothing(store: Store, invoke: Invoke, tmp_path: Path) -> None:
    """For a machine that results know, a plan of a changed kernel counts its items and stores nothing; others are
    named where there is none of that name.
    """
    run = Played(GateWorld()).run
    with store.gates.begin(replace(run, rows=())) as journal:
        journal.extend(run.rows)
        journal.finish()
    repository = make_repository(tmp_path / "theirs")
    kernel = repository / "families" / "row_sums" / "sums.py"
    kernel.write_text(kernel.read_text() + "CHANGED = 1\n")
    asked = ("gate", "--base", "main", "--suite", str(repository / "families"), "--plan")
    result = invoke(*asked, "nvidia-h200*")
    assert result.exit_code == 0, result.stderr
    assert "2 items on both sides, 0 new, 0 untouched." in result.stderr
    assert [line.split()[:2] for line in result.stdout.splitlines() if line.startswith("survey")] == [["survey", "2"]]
    assert len(list(store.gates.runs())) == 1
    result = invoke(*asked, "jetson*")
    assert result.exit_code == 2 and "nvidia-h200" in result.stderr
