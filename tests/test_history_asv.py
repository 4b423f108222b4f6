"""Stored runs become asv's files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from asv.results import Results

from gemmgate.suite import history
from gemmgate.suite.records import METHOD_VERSION
from gemmgate.suite.series import collect, method_changes
from tests.histories import NAME, NEW, OLD, TIMES, at, pair_of_runs, timed
from tests.runs import H200, row, samples

OLDER = f"{NAME}_method_{METHOD_VERSION}"


def loaded(folder: Path, commit: str) -> Results:
    """A result file as asv reads it."""
    return Results.load(str(folder / H200.key / f"{commit[:8]}-gemmgate.json"), H200.key)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The files of two commits."""
    history.write_asv(timed(*pair_of_runs())[0], tmp_path)
    return tmp_path


def params(*lists: str) -> list[list[str]]:
    """Parameters as asv writes them."""
    return [[repr(value) for value in values.split()] for values in lists]


def test_asv_reads_the_results(written: Path) -> None:
    """asv's own reader finds values by parameters: a number, None for what failed, NaN for what was not measured."""
    old, new = (loaded(written, commit) for commit in (OLD, NEW))
    assert old.get_result_params(NAME) == params("m32-n32-k32768-bf16", "cublas own", "cold")
    assert old.get_result_value(NAME, old.get_result_params(NAME)) == [8e-6, 9e-6]
    values = new.get_result_value(NAME, params("m32-n32-k32768-bf16", "cublas own new", "cold hot"))
    assert values[0] == 7e-6
    assert values[2] is None
    assert values[5] == 6e-6
    assert all(math.isnan(values[i]) for i in (1, 3, 4))
    assert (old.date, new.date) == (1_000_000, 2_000_000)
    assert old.benchmark_version == {NAME: str(METHOD_VERSION)}


def test_asv_gets_statistics(written: Path) -> None:
    """Quartiles and counts are those of the samples, and the 99 % interval holds the median."""
    results = loaded(written, OLD)
    stats = results.get_result_stats(NAME, results.get_result_params(NAME))[0]
    expected = np.quantile(samples(8e-6, seed=sum(map(ord, "cublas"))), (0.25, 0.75))
    assert [stats["q_25"], stats["q_75"]] == pytest.approx(list(expected))
    assert stats["ci_99_a"] < 8e-6 < stats["ci_99_b"]
    assert (stats["number"], stats["repeat"]) == (20, 41)


def test_samples_stay_with_the_newest_commit(written: Path) -> None:
    """Only the newest commit of a machine keeps its samples."""
    old, new = (loaded(written, commit) for commit in (OLD, NEW))
    assert old.get_result_samples(NAME, old.get_result_params(NAME)) == [None, None]
    kept = new.get_result_samples(NAME, params("m32-n32-k32768-bf16", "cublas", "cold"))
    assert kept == [list(samples(7e-6, seed=sum(map(ord, "cublas"))))]


def test_machine_has_asv_fields_alone_and_is_kept(written: Path) -> None:
    """machine.json has the fields that asv knows; an existing one stays, and its values are those of the results."""
    path = written / H200.key / "machine.json"
    fields = json.loads(path.read_text())
    assert set(fields) == {"machine", "os", "arch", "cpu", "num_cpu", "ram", "version"}
    path.write_text(json.dumps({**fields, "os": "Linux 6"}))
    history.write_asv(timed(*pair_of_runs())[0], written)
    assert json.loads(path.read_text())["os"] == loaded(written, NEW).params["os"] == "Linux 6"


def test_files_of_commits_that_are_gone_go_too(written: Path) -> None:
    """Our result files are those of the present runs; files of `asv run` are not touched."""
    theirs = written / H200.key / "4e5f6071-existing-py.json"
    theirs.write_text("{}")
    history.write_asv(collect(pair_of_runs()[:1], TIMES)[0], written)
    assert sorted(path.name for path in theirs.parent.glob("*-*.json")) == [theirs.name, "0a1b2c3d-gemmgate.json"][::-1]


def test_benchmarks_are_merged(written: Path) -> None:
    """What `asv run` discovered stays in the list, with our parameters added; merging again changes nothing."""
    path = written / "benchmarks.json"
    ours = json.loads(path.read_text())
    discovered = {
        **ours[NAME],
        "code": "def track_seconds",
        "params": params("m16-n16-k8192-bf16", "cublas", "cold hot"),
    }
    path.write_text(json.dumps({NAME: discovered, "time_other": {"name": "time_other"}, "version": 2}))
    for _ in range(2):
        history.write_asv(timed(*pair_of_runs())[0], written)
        merged = json.loads(path.read_text())
        assert set(merged) == {NAME, "time_other", "version"}
        assert merged[NAME]["code"] == "def track_seconds"
        cases = "m16-n16-k8192-bf16 m32-n32-k32768-bf16"
        assert merged[NAME]["params"] == params(cases, "cublas own new", "cold hot")


def test_another_method_begins_another_history(written: Path) -> None:
    """A newer method takes the name, the older one stands behind it under a name of its own, and a sentence says so."""
    newer = row("cublas", 5e-6, method=METHOD_VERSION + 1, target="", utc="2026-03-01T12:00:00Z")
    series, notes = timed(*pair_of_runs(), at(NEW, newer))
    history.write_asv(series, written)
    benchmarks = json.loads((written / "benchmarks.json").read_text())
    assert list(benchmarks)[:2] == [NAME, OLDER]
    assert (benchmarks[NAME]["version"], benchmarks[OLDER]["version"]) == (str(METHOD_VERSION + 1), str(METHOD_VERSION))
    assert loaded(written, OLD).get_all_result_keys() == {OLDER}
    assert loaded(written, NEW).get_all_result_keys() == {NAME, OLDER}
    assert notes == ()
    begins = f"method {METHOD_VERSION + 1} begins on {H200.key} at {NEW[:10]}: its series begin anew"
    assert method_changes(series) == (begins,)


def test_an_unreadable_list_of_benchmarks(tmp_path: Path) -> None:
    """A damaged file of asv's is named, with what to do."""
    (tmp_path / "benchmarks.json").write_text("{")
    with pytest.raises(Exception, match=r"benchmarks.json is not JSON .* Delete it"):
        history.write_asv(collect(pair_of_runs(), TIMES)[0], tmp_path)
