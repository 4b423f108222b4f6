"""`gemmgate calibrate`: from real workers on this CPU to a stored calibration, and what later runs take from it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gemmgate.suite import cli
from gemmgate.suite.block_values import values
from gemmgate.suite.cli import _measuring, calibrate
from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import Limits
from gemmgate.suite.store import Store
from gemmgate.suite.workers import Worker
from tests.stored import H200, make_run, stored
from tests.test_calibration import LIMITS, series

SUITES = Path(__file__).parent / "suites"
KEYS = ["machine", "blocks", "roofs", "launch_floor_s", "cases", "power", "family_wise_false_alarm"]
ID = make_run().id


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store, which the program uses."""
    monkeypatch.setenv("GEMMGATE_RESULTS", str(tmp_path))
    return Store(tmp_path)


def invoke(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Runs the program in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["gemmgate", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def calibrated(store: Store, run_id: str = ID, **changes: Any) -> None:
    """A stored calibration of an H200 with a case in 12 blocks."""
    stored(store.calibrations, make_run(run_id, limits=LIMITS, **changes), *series("a", 0.005, 0.001, 12))


def test_from_real_workers_to_a_resumed_calibration(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A block is measured and stored; resumed with a slow-down, a second is added, where it takes much longer."""
    monkeypatch.setattr(calibrate, "measure_limits", lambda worker, long: Limits(launch_floor_s=1e-6, source="long"))
    monkeypatch.setattr(calibrate, "LEVELS", (4.0,))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    common = ("calibrate", "--device", "cpu", "--suite", str(SUITES), "--format", "json")
    chosen = ("--family", "faulty", "--case", "n128-fp32", "--impl", "plain,wrong")
    assert invoke(monkeypatch, *common, *chosen, "--blocks", "1") == 0
    out, err = capsys.readouterr()
    assert list(json.loads(out)) == KEYS
    assert "faulty/wrong/n128-fp32 was left out: broken" in err
    assert invoke(monkeypatch, *common, "--resume", "latest", "--blocks", "1", "--power") == 2
    assert "measured without --power" in capsys.readouterr().err
    assert invoke(monkeypatch, *common, "--resume", "latest", "--blocks", "2", "--power") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["blocks"] == 2
    assert [case["case"] for case in data["cases"]] == ["faulty/plain/n128-fp32"]
    finished = store.calibrations.load("latest")
    found = {(value.block, value.level): value.log_ratio for value in values(finished.rows)}
    assert set(found) == {(0, 0.0), (1, 0.0), (1, 4.0)}
    assert found[1, 4.0] > 0.5
    assert finished.resumed and finished.limits.source == "long"
    assert invoke(monkeypatch, *common, "--resume", "latest", "--blocks", "2") == 0
    assert "nothing is missing of 2 blocks" in capsys.readouterr().err
    assert len(store.calibrations.runs()) == 2


def test_a_stored_calibration_is_shown_as_json(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--show latest:<machine> --format json` prints the calibration and measures nothing."""
    calibrated(store)
    assert invoke(monkeypatch, "calibrate", "--show", f"latest:{H200.key}", "--format", "json") == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data) == KEYS
    assert (data["machine"], data["blocks"]) == (H200.key, 12)
    assert data["cases"][0]["block_sd"] == pytest.approx(0.005, rel=0.5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--show", "latest"), "measure one with `gemmgate calibrate`"),
        (("--data", "salt"), "--data is one of"),
        (("--cache", "tepid"), "--cache one of"),
        (("--device", "tpu"), "No device matches 'tpu'"),
        (("--resume", "latest"), "measure one with `gemmgate calibrate`"),
        (("--commit", "no-such-commit"), "--commit 'no-such-commit'"),
        (("--family", "nothing"), "No family matches"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...],
    said: str,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What does not exist is named with what does, with exit code 2 and before any worker starts."""
    monkeypatch.setattr(calibrate, "Worker", None)
    assert invoke(monkeypatch, "calibrate", *arguments) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert said in err


def test_what_is_resumed_cannot_be_selected_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--resume` with another selection, cache state or other inputs is refused."""
    calibrated(store, selection={"cache": "cold", "seed": 0, "data": "normal", "items": []})
    for option, value in (("--case", "m*"), ("--cache", "hot"), ("--seed", "5"), ("--data", "zeros")):
        assert invoke(monkeypatch, "calibrate", "--resume", "latest", option, value) == 2
        assert option in capsys.readouterr().err


@pytest.mark.parametrize("places", [{}, {"places": 2}])
def test_blocks_of_another_number_of_places_are_not_added_to(
    places: dict[str, int], store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A calibration whose library had its workspace in one place, or two, cannot be resumed."""
    items = [["dense_splitk", "m16-n16-k8192-fp32", "cublas"]]
    calibrated(store, selection={"cache": "hot", "seed": 0, "data": "normal", "items": items, **places})
    monkeypatch.setattr(calibrate, "Worker", None)
    assert invoke(monkeypatch, "calibrate", "--resume", "latest", "--blocks", "99") == 2
    assert "number of places" in capsys.readouterr().err


def test_calibrations_stand_apart_from_runs(store: Store) -> None:
    """Neither does the latest run mean a calibration, nor the latest calibration a run."""
    stored(store, make_run())
    calibrated(store, "20261130T160312Z-0a1b2c3d4e")
    assert store.load("latest").id == ID
    assert store.calibrations.load("latest").id == "20261130T160312Z-0a1b2c3d4e"
    assert [info.id for info in store.runs()] == [ID]
    with pytest.raises(UsageError):
        store.load("20261130T160312Z-0a1b2c3d4e")


def test_runs_take_the_roofs_of_the_newest_calibration(store: Store) -> None:
    """The limits are those of the machine's newest calibration and name it; another machine's count for nothing."""
    assert store.limits(H200.key) == (None, ())
    calibrated(store)
    calibrated(store, "20261130T160312Z-0a1b2c3d4e")
    calibrated(store, "20261201T160312Z-0a1b2c3d4e", machine=replace(H200, key="another"))
    found, lost = store.limits(H200.key)
    assert not lost
    assert found == replace(LIMITS, source="20261130T160312Z-0a1b2c3d4e")
    assert store.limits("third") == (None, ())


def test_what_a_run_rests_on_is_said(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a calibration of its machine a run measures roofs and says so; with one it names it and measures none."""
    worker: Any = SimpleNamespace(machine=H200)
    short = Limits(launch_floor_s=2e-6, source="short")
    with monkeypatch.context() as patched:
        patched.setattr(_measuring, "measure_limits", lambda worker: short)
        assert _measuring.known_limits(worker, store) == short
        assert "a short version" in capsys.readouterr().err
    calibrated(store)
    assert _measuring.known_limits(worker, store) == replace(LIMITS, source=ID)
    assert f"calibration {ID}" in capsys.readouterr().err


def test_a_warm_worker_answers_as_any_other() -> None:
    """Started without a device and with a module that does not exist, it is told of the device later and answers."""
    worker = Worker("cpu", suites=[SUITES], warm=True, modules=[("faulty", "plain"), ("faulty", "missing")])
    try:
        assert not hasattr(worker, "machine")
        worker.greet(beside=[worker.pid])
        worker.meet()
        assert worker.machine.key.startswith("cpu-")
        assert worker.ask("drop", 60.0)["ok"]
    finally:
        worker.kill()
