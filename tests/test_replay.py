"""The gate played on recorded blocks: merged runs, false alarms, and a slow-down in one kernel among two hundred."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gemmgate.suite.cli import gate
from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import Row, Run
from gemmgate.suite.replay import replay
from gemmgate.suite.report import show_replayed
from gemmgate.suite.store import Store
from tests.gate_world import GateWorld, Played
from tests.program import Invoke, invoke, store
from tests.runs import H200, run
from tests.stored import stored
from tests.test_calibration import block

__all__ = ["invoke", "store"]


def recorded(name: str, sd: float, levels: tuple[float, ...] = (), count: int = 20, board: str = "b1") -> Run:
    """A run with that many blocks of two cases, whose launches scatter by `sd`; each level is in every block."""
    source = np.random.default_rng(len(name))
    rows: list[Row] = []
    for number in range(count):
        for case in ("a", "b"):
            launch = float(source.normal(0.0, sd))
            for level in (0.0, *levels):
                rows += [replace(row, board=board) for row in block(case, number, launch, level=level)]
    return run(rows, id=name, machine=H200)


def test_blocks_of_several_runs_are_merged() -> None:
    """Two calibrations with 20 blocks of two cases each, on two boards, are 40 blocks of 2 cases with 40 each."""
    found = replay([recorded("one", 0.003), recorded("three", 0.003, board="b2")], gates=20)
    assert (found.blocks, found.cases, found.fewest, found.most, found.boards) == (40, 2, 40, 40, 2)
    assert found.power == ()
    assert found.alarms.gates == 20


def test_a_large_slow_down_of_one_kernel_is_found_and_a_tiny_one_is_not() -> None:
    """Among blocks that scatter by 0.3 %, 5 % is found in every gate and 0.1 % in none."""
    found = replay([recorded("power", 0.003, (0.001, 0.05))], gates=5, gates_a_case=10)
    small, large = found.power
    assert (small.level, large.level) == (0.001, 0.05)
    assert large.realised == pytest.approx(0.05, abs=1e-6)
    assert small.every.estimate == 0.0
    assert large.every.estimate == 1.0 and large.quiet is not None
    assert (large.cases, large.quiet_cases) == (2, 2)


def test_unchanged_code_rings_about_as_often_as_it_may() -> None:
    """Of 60 gates over blocks without any change at most three ring, where one in a hundred may."""
    assert replay([recorded("calm", 0.004)], gates=60).alarms.alarms <= 3


def test_noisy_cases_are_left_out_and_counted() -> None:
    """A run whose blocks all scatter by 20 % has nothing that a gate would judge."""
    with pytest.raises(UsageError, match="No case has 9 blocks"):
        replay([recorded("loud", 0.2)], gates=5)
    found = replay([recorded("calm", 0.002), _renamed(recorded("noise", 0.2))], gates=5)
    assert (found.cases, found.reported) == (2, 2)


def _renamed(run: Run) -> Run:
    return replace(run, rows=tuple(replace(row, case=f"loud-{row.case}") for row in run.rows))


@pytest.mark.parametrize("fields", [{"method": 1}, {"machine": replace(H200, key="nvidia-b200")}])
def test_two_kinds_of_run_are_not_mixed(fields: dict[str, object]) -> None:
    """Blocks by another method, or of another machine, are refused with the runs' names."""
    runs = [recorded("one", 0.003), replace(recorded("other", 0.003), **fields)]  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"one machine and one method.*other"):
        replay(runs, gates=5)


def test_what_is_shown(store: Store, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command says how many blocks there are, the bound on false alarms and the power, as Markdown too."""
    monkeypatch.setattr(gate, "replayed", partial(replay, gates=10, gates_a_case=5))
    calibrated = recorded("20260131T120000Z-0a1b2c3d4e", 0.003, (0.05,))
    with store.calibrations.begin(replace(calibrated, rows=())) as journal:
        journal.extend(calibrated.rows)
        journal.finish()
    result = invoke("gate", "--replay", "all")
    assert result.exit_code == 0, result.stderr
    assert "20 blocks of nvidia-h200-141g-700w on 1 board" in result.stdout
    assert "(95 % confidence: at most 30.85%)" in result.stdout  # 0 of 10, exactly: 1 - 0.025 ** 0.1
    shown = invoke("gate", "--replay", calibrated.id, "--format", "markdown").stdout
    assert "| 5% | 5.00% | 100.0% " in shown
    assert "No slow-downs" in show_replayed(replay([recorded("one", 0.003)]), "table")


def test_blocks_that_two_resumed_calibrations_share_count_once(
    store: Store, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice resumed from one calibration of 20 blocks, by none and by 5: 25 blocks, however the runs are named."""
    monkeypatch.setattr(gate, "replayed", partial(replay, gates=5, gates_a_case=5))
    first = recorded("20260131T120000Z-0a1b2c3d4e", 0.003)
    stored(store.calibrations, replace(first, rows=()), *first.rows)
    again = [row for row in recorded("x", 0.003, count=25).rows if int(row.phase.split()[1]) >= 20]
    for name, rows in (("20260131T130000Z-aaaaaaaaaa", []), ("20260131T140000Z-bbbbbbbbbb", again)):
        now = replace(first, id=name, utc="2026-01-31T14:00:00Z", rows=())
        with store.calibrations.resume(first.id, now) as journal:
            journal.extend(rows)
            journal.finish()
    named = f"{first.id},20260131T130000Z-aaaaaaaaaa,20260131T140000Z-bbbbbbbbbb"
    for asked in ("all", named):
        assert "25 blocks of nvidia-h200-141g-700w" in invoke("gate", "--replay", asked).stdout


def test_nothing_to_replay_is_said(invoke: Invoke) -> None:
    """Without a run by the present method, bad input with the command that makes one."""
    result = invoke("gate", "--replay", "all")
    assert result.exit_code == 2 and "gemmgate calibrate --power" in result.stderr


def test_a_gate_of_changed_code_is_not_replayed(store: Store, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate of two trees is refused by its id and its path, left out of all and counted; one of one tree is played."""
    monkeypatch.setattr(gate, "replayed", partial(replay, gates=5, gates_a_case=5))
    changed = Played(GateWorld({"a": 0.05}), everything=True).run
    same = {**changed.selection, "head": {**changed.selection["head"], "tree": changed.selection["base"]["tree"]}}
    path = stored(store.gates, replace(changed, rows=()), *changed.rows)
    for name in (changed.id, str(path)):
        refused = invoke("gate", "--replay", name)
        assert refused.exit_code == 2
        assert f"--replay {changed.id}: a gate of changed code" in refused.stderr
    assert invoke("gate", "--replay", "all").exit_code == 2
    unchanged = replace(changed, id="20260201T120000Z-0a1b2c3d4e", selection=same)
    partly = replace(unchanged, id="20260202T120000Z-0a1b2c3d4e", selection={**same, "everything": False})
    for gated in (unchanged, partly):
        stored(store.gates, replace(gated, rows=()), *gated.rows)
    assert invoke("gate", "--replay", partly.id).exit_code == 2
    assert invoke("gate", "--replay", unchanged.id).exit_code == 0
    shown = invoke("gate", "--replay", "all")
    assert shown.exit_code == 0
    assert "left out: 2 gates of changed code" in shown.stderr
