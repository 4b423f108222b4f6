"""asv and pytest-benchmark measure the catalog on this machine, through the files in `benchmarks`."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from gemmgate.suite import history
from gemmgate.suite.records import METHOD_VERSION, MIN_SAMPLES
from tests.stored import ROOT

TINY = {
    "GEMMGATE_BENCH_CASE": "m16-n16-k4096-fp32",
    "GEMMGATE_BENCH_IMPL": "cublas,triton_split_k",
    "GEMMGATE_BENCH_DEVICE": "cpu",
}
"""A case that a CPU measures in a second, and an implementation that it refuses."""
NAME = "track_gemm.DenseSplitk.track_seconds"
PARAMS = [["'m16-n16-k4096-fp32'"], ["'cublas'", "'triton_split_k'"], ["'cold'", "'hot'"]]


def run(*command: str, cwd: Path = ROOT, **environment: str) -> str:
    """What a Python program prints, started with the tiny selection."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, **TINY, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.name)
def test_adapters_are_short(path: Path) -> None:
    """An adapter has 60 lines at most."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60


def test_discovery_leaves_torch_alone() -> None:
    """Both files are imported, their parameters included, without torch, Triton or a child process' CUDA."""
    code = "import sys, benchmarks.track_gemm as t, benchmarks.test_latency as l; "
    code += "print(t.DenseSplitk.params, len(l.POINTS), sorted({'torch', 'triton'} & set(sys.modules)))"
    cases = ["m16-n16-k4096-fp32"], ["cublas", "triton_split_k"], ["cold", "hot"]
    assert run("-c", code).strip() == f"{list(cases)} 4 []"


def test_what_is_selected() -> None:
    """Without variables but the family's it is its cases tagged quick in both cache states; variables narrow that."""
    code = "from benchmarks import CHOICES as C, CACHES; print(len(C), CACHES, all('quick' in c.case.tags for c in C))"
    nothing = {**dict.fromkeys(TINY, ""), "GEMMGATE_BENCH_FAMILY": "dense_splitk"}
    assert run("-c", code, **nothing) == "18 ('cold', 'hot') True\n"
    asked = {"GEMMGATE_BENCH_TAG": "quick", "GEMMGATE_BENCH_CASE": "*-tf32", "GEMMGATE_BENCH_CACHE": "hot"}
    assert run("-c", code, **{**nothing, **asked}) == "2 ('hot',) True\n"


def test_pytest_benchmark(tmp_path: Path) -> None:
    """`pytest benchmarks --benchmark-json` has the samples that were taken, and skips what a CPU does not do."""
    path = tmp_path / "latency.json"
    shown = run("-m", "pytest", "benchmarks", f"--benchmark-json={path}", "-q", "-p", "no:cacheprovider")
    assert "1 passed, 3 skipped" in shown
    (found,) = json.loads(path.read_text())["benchmarks"]
    assert found["group"] == "dense_splitk/m16-n16-k4096-fp32 hot"
    assert found["extra_info"]["timer"] == "perf_counter"
    assert found["options"]["timer"] == "time of the replayed samples"
    assert found["stats"]["rounds"] == len(found["stats"]["data"]) >= MIN_SAMPLES
    assert found["stats"]["median"] == statistics.median(found["stats"]["data"])
    assert found["stats"]["min"] > 0


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A checkout with asv's settings in which `asv run` measured the benchmarks of this one, and its commit."""
    root = tmp_path_factory.mktemp("checkout")
    config = json.loads((ROOT / "asv.conf.json").read_text())
    places = {"benchmark_dir": str(ROOT / "benchmarks"), "results_dir": "results/asv", "html_dir": "results/html"}
    (root / "asv.conf.json").write_text(json.dumps({**config, **places}))
    who = ["-c", "user.name=Test", "-c", "user.email=test@localhost"]
    for words in (["init", "--quiet"], [*who, "commit", "--quiet", "--allow-empty", "--message", "One"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()
    run("-m", "asv", "machine", "--yes", "--machine", "here", cwd=root, HOME=str(root))
    asked = ["-E", "existing", "--set-commit-hash", commit, "--record-samples", "--machine", "here"]
    run("-m", "asv", "run", *asked, cwd=root, HOME=str(root))
    return root, commit


def test_asv_run(measured: tuple[Path, str]) -> None:
    """`asv run` discovers a class a family by our names, measures once, keeps samples and skips what is refused."""
    root, commit = measured
    benchmarks = json.loads((root / "results" / "asv" / "benchmarks.json").read_text())
    assert benchmarks.pop("version") == 2
    assert list(benchmarks) == [NAME] == [history.benchmark_name("dense_splitk")]
    assert benchmarks[NAME]["params"] == PARAMS
    assert tuple(benchmarks[NAME]["param_names"]) == history.PARAM_NAMES
    assert benchmarks[NAME]["version"] == str(METHOD_VERSION)
    (path,) = (root / "results" / "asv" / "here").glob(f"{commit[:8]}-*.json")
    found = json.loads(path.read_text())
    result = dict(zip(found["result_columns"], found["results"][NAME], strict=False))
    cold, hot, *refused = result["result"]
    assert all(value != value for value in (cold, *refused))  # NaN: a CPU has no cold state
    assert hot == pytest.approx(statistics.median(result["samples"][1]))
    assert len(result["samples"][1]) >= MIN_SAMPLES


def test_stored_runs_join_what_asv_measured(measured: tuple[Path, str], tmp_path: Path) -> None:
    """After `asv run`, publishing the stored runs shows both: one benchmark, with the parameters of either."""
    from gemmgate.suite.series import collect
    from tests.runs import H200, row
    from tests.runs import run as make_run

    root, commit = measured
    results = tmp_path / "asv"
    shutil.copytree(root / "results" / "asv", results)
    runs = [make_run([row("cublas", 8e-6, commit=commit, target="")], commit=commit)]
    history.write_asv(collect(runs, {commit: 1_790_000_000})[0], results)
    history.publish(root, results, tmp_path / "html")
    index = json.loads((tmp_path / "html" / "index.json").read_text())
    assert set(index["machines"]) == {"here", H200.key}
    cases = ["'m16-n16-k4096-fp32'", "'m32-n32-k32768-bf16'"]
    assert index["benchmarks"][NAME]["params"] == [cases, *PARAMS[1:]]
    graphs = [
        json.loads(path.read_text()) for path in (tmp_path / "html" / "graphs").rglob(f"machine-*/**/{NAME}.json")
    ]
    assert len(graphs) == 2
