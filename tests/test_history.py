"""Stored runs become series, asv's files, and pages that a browser shows."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asv.results import Results

from gemmgate.suite import cli, history
from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import METHOD_VERSION, Row, Run
from gemmgate.suite.report.history import history_page
from gemmgate.suite.series import BESIDE, Place, Series, collect, method_changes
from gemmgate.suite.store import Store
from tests.browser import needs_chromium, shown
from tests.runs import H200, row, run, samples
from tests.stored import ROOT

OLD, NEW = "0a1b2c3d" + "0" * 32, "4e5f6071" + "0" * 32
TIMES = {OLD: 1000, NEW: 2000}
BESIDE_HERE = ("error", "error_vs_yardstick")
NAME = "track_gemm.DenseSplitk.track_seconds"
OLDER = f"{NAME}_method_{METHOD_VERSION}"


def at(commit: str, *rows: Row, **fields: Any) -> Run:
    """A run at a commit, whose rows carry its day unless they have one of their own."""
    day = f"2026-01-{TIMES[commit] // 1000 if commit in TIMES else 9:02}T12:00:00Z"
    mine = tuple(replace(one, commit=commit, utc=day if one.utc == row().utc else one.utc) for one in rows)
    return run(mine, **{"id": f"run-{commit[:4]}", "commit": commit, "utc": day, **fields})


def series_of(*runs: Run) -> tuple[dict[str, list[float | None]], tuple[str, ...]]:
    """Values by implementation, and what was left out."""
    series, notes = timed(*runs)
    return {place.implementation: [point.value for point in points] for place, points in series.items()}, notes


def timed(*runs: Run) -> tuple[Series, tuple[str, ...]]:
    """The series of times and counts alone, without what a time carries besides."""
    series, notes = collect(runs, TIMES)
    return {place: points for place, points in series.items() if place.quantity not in BESIDE}, notes


# series


def test_points_are_in_the_order_of_commits() -> None:
    """A series has a point a commit, oldest commit first, whatever the order of the runs."""
    runs = at(NEW, row("cublas", 7e-6, target="")), at(OLD, row("cublas", 8e-6, target=""))
    series, notes = timed(*runs)
    (place,) = series
    assert place == Place(
        H200.key, "dense_splitk", "seconds", "seconds", "m32-n32-k32768-bf16", "cublas", "cold", method=METHOD_VERSION
    )
    assert [(point.commit, point.value) for point in series[place]] == [(OLD, 8e-6), (NEW, 7e-6)]
    assert notes == ()


def test_newest_row_of_a_commit_counts() -> None:
    """Of two rows of one place and commit, in one run or in two, the one with the newest time of day counts."""
    first, second = row("cublas", 8e-6, utc="2026-03-01T12:00:00Z"), row("cublas", 7e-6, utc="2026-03-01T13:00:00Z")
    for runs in ((at(OLD, second), at(OLD, first)), (at(OLD, second, first),)):
        assert series_of(*runs)[0] == {"cublas": [7e-6]}


def test_what_does_not_belong_is_left_out_and_named() -> None:
    """Dirty runs, unknown commits and rows of another identity than the newest are left out, with a sentence each."""
    other = row("cublas", 9e-6, flags={"float32_matmul_precision": "high"})
    runs = (
        at(OLD, other),
        at(NEW, row("cublas", 7e-6)),
        at(NEW, row("cublas", 1e-6), dirty=True, id="run-dirty"),
        at("f" * 40, row("cublas", 2e-6)),
    )
    values, notes = series_of(*runs)
    assert values == {"cublas": [7e-6]}
    assert [note.split(":")[0] for note in notes] == [
        "run run-dirty",
        "1 commit of 1 run that this repository does not have",
        "1 row by another timer or library flags than the newest of their series",
    ]
    assert "ffffffffff" in notes[1]


def test_failures_are_gaps_and_refusals_nothing() -> None:
    """A row that failed has no value, an unsupported one and a throughput no point, and other inputs another series."""
    rows = (
        row("bad", status="broken", reason="wrong"),
        row("none", status="unsupported", reason="cpu"),
        row("fast", 1.0, kind="count", value=3.0, unit="flop/s"),
        row("count", kind="count", value=3.0, unit="instructions", status="ok"),
    )
    assert series_of(at(OLD, *rows))[0] == {"bad": [None], "count": [3.0]}
    zeros, _ = timed(at(OLD, row("cublas", data="zeros", seed=2)))
    assert [place.conditions for place in zeros] == ["cold data=zeros seed=2 target=sm_90"]


def test_compiled_code_has_series_by_target_and_tile() -> None:
    """Registers of a kernel are a series for each architecture and each way to choose the tile."""
    rows = [
        row("own", kind="static", phase="multiply", value=value, unit="registers", cache="", target=target, flags=flags)
        for value, target, flags in (
            (32.0, "sm_90", {"tile": "rule"}),
            (40.0, "sm_90", {"tile": "tuned"}),
            (64.0, "sm_120", {}),
        )
    ]
    series, _ = timed(at(OLD, *rows))
    found = {(place.quantity, place.unit, place.conditions): points[0].value for place, points in series.items()}
    assert found == {
        ("static_multiply", "registers", "any target=sm_90 tile=rule"): 32.0,
        ("static_multiply", "registers", "any target=sm_90 tile=tuned"): 40.0,
        ("static_multiply", "registers", "any target=sm_120"): 64.0,
    }


def test_a_failure_does_not_hide_what_was_ok() -> None:
    """Where the newest row failed, and so had no timer of its own, older times stay."""
    runs = at(OLD, row("own", 8e-6, timer="events")), at(NEW, row("own", status="error", reason="died"))
    assert series_of(*runs)[0] == {"own": [8e-6, None]}


def test_what_a_time_carries_besides() -> None:
    """Errors against float64 and against the yardstick and seconds to compile are series, one for all cache states."""
    rows = [row("cublas", cache=c, error=2e-3, compile_s=0.5, target="") for c in ("cold", "hot")]
    rows += [row("own", cache=c, error=3e-3, compile_s=None, target="") for c in ("cold", "hot")]
    series, _ = collect([at(OLD, *rows)], TIMES)
    found = {
        (place.quantity, place.implementation, place.conditions): [point.value for point in points]
        for place, points in series.items()
        if place.quantity in BESIDE
    }
    assert found == {
        ("error", "cublas", "any"): [2e-3],
        ("error", "own", "any"): [3e-3],
        ("error_vs_yardstick", "cublas", "any"): [1.0],
        ("error_vs_yardstick", "own", "any"): [pytest.approx(1.5)],
        ("compile_seconds", "cublas", "any"): [0.5],
    }


def test_another_timer_for_a_check_is_no_point() -> None:
    """A time that another timer took to check a row is in no series."""
    check = row("cublas", 9e-6, timer="events", phase="cross_check", utc="2026-01-02T12:00:00Z")
    assert series_of(at(OLD, row("cublas", 8e-6), check))[0] == {"cublas": [8e-6]}


def test_steps() -> None:
    """A lasting change of 10 % is a step at its first point; noise, a gap, two points and half a percent are none."""
    noise = np.random.default_rng(5).normal(1.0, 0.005, 40)
    level = [float(x) for x in 8e-6 * noise]
    slower = [x * (1.1 if i >= 25 else 1.0) for i, x in enumerate(level)]
    (step,) = history.steps([None, *slower])
    assert step.index == 26
    assert step.ratio == pytest.approx(1.1, abs=0.005)
    assert history.steps(level) == ()
    assert history.steps([1.0] * 20 + [1.005] * 20) == ()
    assert history.steps([1.0] * 10 + [1.2] * 2) == ()
    assert history.steps([]) == history.steps([None]) == ()


# asv's files


def loaded(folder: Path, commit: str) -> Results:
    """A result file as asv reads it."""
    return Results.load(str(folder / H200.key / f"{commit[:8]}-gemmgate.json"), H200.key)


def pair_of_runs() -> tuple[Run, Run]:
    """Two commits; at the newer one an implementation failed, and another is new."""
    old = at(OLD, row("cublas", 8e-6, target=""), row("own", 9e-6, target=""))
    failed = row("own", status="broken", reason="wrong", target="")
    return old, at(NEW, row("cublas", 7e-6, target=""), failed, row("new", 6e-6, cache="hot", target=""))


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
    """A newer method takes the name, the older one keeps its times under a name of its own, and a sentence says so."""
    newer = row("cublas", 5e-6, method=METHOD_VERSION + 1, target="", utc="2026-03-01T12:00:00Z")
    series, notes = timed(*pair_of_runs(), at(NEW, newer))
    history.write_asv(series, written)
    benchmarks = json.loads((written / "benchmarks.json").read_text())
    assert (benchmarks[NAME]["version"], benchmarks[OLDER]["version"]) == (str(METHOD_VERSION + 1), str(METHOD_VERSION))
    assert loaded(written, OLD).get_all_result_keys() == {OLDER}
    assert loaded(written, NEW).get_all_result_keys() == {NAME, OLDER}
    assert notes == ()
    begins = f"method {METHOD_VERSION + 1} begins on {H200.key} at {NEW[:10]}: its series begin anew"
    assert method_changes(series) == (begins,)


# pages


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, list[str]]:
    """A checkout with asv's settings and two commits."""
    root = tmp_path / "checkout"
    root.mkdir()
    shutil.copy(ROOT / "asv.conf.json", root)

    def git(*words: str) -> str:
        who = ["-c", "user.name=Test", "-c", "user.email=test@localhost"]
        return subprocess.run(
            ["git", *who, *words], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    commits = []
    for number in range(2):
        git("commit", "--quiet", "--allow-empty", "--message", f"Commit {number}")
        commits.append(git("rev-parse", "HEAD"))
    return root, commits


Publish = Callable[..., int]


@pytest.fixture
def publish(repository: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Stores a run at each commit, then calls `gemmgate publish` in that checkout; returns its exit code."""
    from gemmgate.suite.cli import publish as module

    root, commits = repository
    store = Store(tmp_path / "results")
    monkeypatch.setattr(module, "own_overlay", lambda: root)
    for number, commit in enumerate(commits):
        rows = (row("cublas", 8e-6), row("own", (7 + number) * 1e-6))
        rows = tuple(replace(one, commit="", run_id="", utc=f"2026-01-0{number + 1}T12:00:00Z") for one in rows)
        header = run(id=f"2026010{number + 1}T120000Z-{commit[:10]}", commit=commit, utc=rows[0].utc)
        with store.begin(header) as journal:
            for one in rows:
                journal.append(one)
            journal.finish()

    def call(*options: str) -> int:
        monkeypatch.setattr(sys, "argv", ["gemmgate", "publish", "--results", str(store.root), *options])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return int(end.value.code or 0)

    return call


def test_publish(publish: Publish, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs become asv's page, with both commits in its graphs, and a page of our own; once more changes nothing."""
    for _ in range(2):
        assert publish() == 0, capsys.readouterr().err
        html = tmp_path / "results" / "html"
        index = json.loads((html / "index.json").read_text())
        assert set(index["benchmarks"]) == {NAME, *(f"track_gemm.DenseSplitk.track_{name}" for name in BESIDE_HERE)}
        assert len(index["revision_to_hash"]) == 2
        (graph,) = (html / "graphs").rglob(f"python-gemmgate/**/{NAME}.json")
        assert json.loads(graph.read_text())[-1][1] == [8e-6, 8e-6]
        assert {"history.html", "plotly.min.js"} <= {path.name for path in html.iterdir()}
        assert "6 series of 2 runs" in capsys.readouterr().err


def test_asv_compares_what_was_published(publish: Publish, repository: tuple[Path, list[str]], tmp_path: Path) -> None:
    """`asv compare` of the two commits names the case that got slower, with both times."""
    root, commits = repository
    assert publish() == 0
    config = json.loads((root / "asv.conf.json").read_text())
    (root / "asv.conf.json").write_text(json.dumps({**config, "results_dir": str(tmp_path / "results" / "asv")}))
    command = [sys.executable, "-m", "asv", "compare", "--machine", H200.key, *commits]
    done = subprocess.run(command, cwd=root, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if "'own'" in line and "track_seconds" in line)
    assert [cell.strip() for cell in line.split("|")[1:5]] == ["+", "7.00±0.01μs", "8.00±0.02μs", "1.14"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--machine", "tpu*"], "No machine matches 'tpu*'"),
        (["--html", "."], "would be emptied"),
    ],
)
def test_publish_refuses(
    publish: Publish, options: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown machine, and a folder with other things in it, end with exit code 2 and a sentence."""
    monkeypatch.chdir(ROOT / "tests")
    assert publish(*options) == 2
    assert said in capsys.readouterr().err


def test_an_unreadable_list_of_benchmarks(tmp_path: Path) -> None:
    """A damaged file of asv's is named, with what to do."""
    (tmp_path / "benchmarks.json").write_text("{")
    with pytest.raises(Exception, match=r"benchmarks.json is not JSON .* Delete it"):
        history.write_asv(collect(pair_of_runs(), TIMES)[0], tmp_path)


def test_publishing_takes_a_checkout(tmp_path: Path) -> None:
    """Without asv's settings, as in an installed package, publishing says that it needs a checkout."""
    with pytest.raises(UsageError, match="no checkout"):
        history.publish(tmp_path, tmp_path / "asv", tmp_path / "html")


def test_no_text_ends_the_script() -> None:
    """Whatever a run says stays inside the page's data."""
    series, _ = collect([at(OLD, row("cublas", status="error", reason="</script><b>"))], TIMES)
    assert history_page(series, {}).count("</script>") == 2


def test_the_page_opens_with_the_method_in_use() -> None:
    """Series of the newest method stand first, whatever was measured first."""
    older = replace(row("cublas", 5e-6, case="a"), method=METHOD_VERSION - 1)
    series, _ = collect([at(OLD, older), at(NEW, row("cublas", 5e-6, case="b"))], TIMES)
    page = history_page(series, {})
    assert (
        0 < page.index('"dense_splitk seconds"') < page.index(f'"dense_splitk seconds by method {METHOD_VERSION - 1}"')
    )


@needs_chromium
def test_page_in_a_browser(tmp_path: Path) -> None:
    """Chromium, from a file and without a network, draws a line for each implementation and an arrow for the step."""
    from gemmgate.suite.cli.publish import PAGE, _write_page

    runs = [at(commit, row("cublas", 8e-6), row("own", 9e-6)) for commit in TIMES]
    series: Series = timed(*runs)[0]
    steps = {place: (history.Step(1, 1.125),) for place in series if place.implementation == "own"}
    _write_page(tmp_path, history_page(series, steps, ["a note"]))
    document = shown(tmp_path / PAGE, tmp_path / "profile")
    drawn = document[document.index('class="main-svg"') :]
    assert drawn.count('class="trace scatter') == 2
    assert all(word in drawn for word in (">cublas</text>", ">own</text>", ">own +12.5 %</text>", OLD[:10]))
    assert "Left out: a note." in document
