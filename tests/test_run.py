"""`gemmgate run` from end to end, and what is left of it when it is killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gemmgate.suite.store import Store

ROOT = Path(__file__).parent.parent
FAULTY = ("--suite", str(ROOT / "tests" / "suites"), "--family", "faulty", "--device", "cpu")
QUICKLY = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def _gemmgate(*arguments, check=None, **options):
    done = subprocess.run(
        [sys.executable, "-m", "gemmgate", *arguments],
        cwd=ROOT,
        env=QUICKLY,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    assert check is None or done.returncode == check, done.stderr
    return done


def _parts(row):
    """What does not change when a row is stored a second time."""
    return row.case, row.implementation, row.cache, row.visit, row.samples_s, row.utc, row.run_id


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of two implementations on one case, and what the command said."""
    results = tmp_path_factory.mktemp("results")
    done = _gemmgate(
        "run",
        *FAULTY,
        "--case",
        "n64-fp32",
        "--impl",
        "plain,twin",
        "--results",
        str(results),
        "--format",
        "json",
        check=0,
    )
    return results, done


def test_a_run_checks_measures_stores_and_shows(finished):
    """The rows shown are those stored, and the right result has a time, an error within its bound and a ratio."""
    results, done = finished
    shown = json.loads(done.stdout)
    stored = Store(results).load("latest")
    assert [row["implementation"] for row in shown["rows"]] == ["plain", "twin"]
    assert shown["run"]["id"] == stored.id
    twin = shown["rows"][1]
    assert twin["status"] == "ok"
    assert twin["samples_n"] >= 30
    assert twin["low_s"] <= twin["median_s"] <= twin["high_s"]
    assert 0 < twin["error"] <= twin["error_bound"]
    assert twin["ratio_low"] <= twin["ratio"] <= twin["ratio_high"]
    assert twin["yardstick"] == "plain"


def test_a_shown_row_says_how_to_measure_it_again(finished):
    """The repro command of a row, which names its folder of families, measures that row."""
    results, done = finished
    repro = json.loads(done.stdout)["rows"][1]["repro"].split()
    assert repro[:2] == ["gemmgate", "run"]
    again = _gemmgate(*repro[1:], "--device", "cpu", "--results", str(results), "--format", "json", check=0)
    assert [row["implementation"] for row in json.loads(again.stdout)["rows"]] == ["plain", "twin"]


def test_a_wrong_result_is_exit_code_1(tmp_path):
    """A broken implementation fails the command, and its row is stored with the reason."""
    arguments = ("--case", "n64-fp32", "--impl", "wrong", "--results", str(tmp_path))
    done = _gemmgate("run", *FAULTY, *arguments, check=1)
    assert "error_above_bound" in done.stdout
    assert {row.implementation: row.status for row in Store(tmp_path).load("latest").rows} == {
        "plain": "ok",
        "wrong": "broken",
    }


def test_nothing_measured_is_exit_code_3(tmp_path):
    """Where every implementation refuses the case the command says so, and the refusals are stored."""
    done = _gemmgate(
        "run",
        "--device",
        "cpu",
        "--case",
        "m32-n32-k32768-fp16",
        "--impl",
        "cublas",
        "--results",
        str(tmp_path),
        check=3,
    )
    assert "No implementation could be measured" in done.stderr
    assert {row.status for row in Store(tmp_path).load("latest").rows} == {"unsupported"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--family", "dense"), "dense_splitk"),
        (("--case", "m1-n1*"), "No case matches"),
        (("--impl", "cublass"), "Did you mean cublas"),
        (("--tag", "quik"), "quick"),
        (("--device", "tpu"), "cuda"),
        (("--cache", "warm"), "cold"),
        (("--data", "ones"), "normal"),
        (("--commit", "0123456789abcdef"), "--commit"),
        (("--case", "*k4096-*", "--tag", "drawn"), "gemmgate list"),
        (("--resume", "no-such-run"), "run"),
    ],
)
def test_bad_input_is_exit_code_2_and_stores_nothing(tmp_path, arguments, said):
    """One sentence names what exists, and the results folder stays as it was."""
    done = _gemmgate("run", *arguments, "--results", str(tmp_path), check=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.*"))


def test_a_results_folder_that_cannot_be_written_stops_the_run_before_it_measures(tmp_path):
    """Where results/ is a file nothing is measured, and the sentence names it."""
    (tmp_path / "results").write_text("")
    done = _gemmgate("run", *FAULTY, "--results", str(tmp_path / "results"), check=2)
    assert str(tmp_path / "results") in done.stderr


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_run_loses_no_finished_row_and_resumes(tmp_path, seed):
    """After SIGKILL the journal has every row that was written, no process is left, and --resume completes it."""
    arguments = (*FAULTY, "--impl", "plain,twin", "--seconds", "12", "--results", str(tmp_path))
    command = [sys.executable, "-m", "gemmgate", "run", *arguments]
    parent = subprocess.Popen(command, cwd=ROOT, env=QUICKLY, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    enough, journals = 2 * (1 + seed % 2), []
    while not journals or journals[0].read_text().count('"family":"faulty"') < enough:
        assert parent.poll() is None
        time.sleep(0.05)
        journals = list(tmp_path.rglob("*.jsonl"))
    time.sleep(random.Random(seed).uniform(0.0, 2.0))
    children = psutil.Process(parent.pid).children(recursive=True)
    assert children
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    for child in children:
        child.wait()
    before = Store(tmp_path).load("latest").rows
    assert len(before) >= enough
    _gemmgate("run", "--resume", "latest", "--results", str(tmp_path), check=0)
    after = Store(tmp_path).load("latest").rows
    assert [_parts(row) for row in after[: len(before)]] == [_parts(row) for row in before]
    assert {(row.case, row.implementation) for row in after if row.status == "ok"} == {
        (case, name) for case in ("n64-fp32", "n128-fp32", "n256-fp32") for name in ("plain", "twin")
    }
    assert not list(tmp_path.rglob("*.jsonl"))
