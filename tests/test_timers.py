"""Benchmark functions side by side, on readings that are known."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

torch = pytest.importorskip("torch", reason="what is timed is torch's")

from gemmgate.suite import pages, report  # noqa: E402  torch first
from gemmgate.suite.cli import timers as command  # noqa: E402
from gemmgate.suite.measure import timers  # noqa: E402
from gemmgate.suite.measure.timers import Peer, readings  # noqa: E402
from gemmgate.suite.measure.trace import Activity  # noqa: E402
from gemmgate.suite.records import Row, Run  # noqa: E402
from gemmgate.suite.report.timers import compared  # noqa: E402
from gemmgate.suite.store import Store  # noqa: E402
from tests.called import called  # noqa: E402
from tests.runs import run  # noqa: E402
from tests.stored import make_run, stored  # noqa: E402


def reading(path: str, timer: str, cache: str, us: float, spread_us: float = 0.0, **fields: Any) -> Row:
    """Three readings around `us` microseconds, of which each took a second."""
    samples = tuple(1e-6 * (us + x) for x in (-spread_us / 2, 0.0, spread_us / 2))
    implementation, case = path.split("/")
    known: dict[str, Any] = {"samples_s": samples, "median_s": 1e-6 * us, "measure_s": 3.0, **fields}
    return Row("f", case, implementation, timer=timer, cache=cache, phase="timers", **known)


def comparison() -> Run:
    """Two kernels by two functions, one of which cannot time the second."""
    rows = [
        reading("mm/short", "host timer", "hot", 12.0, 6.0),
        reading("mm/short", "graph", "cold", 5.5, 0.11),
        reading("mm/short", "cupti", "hot", 4.0),
        reading("mm/short", "cupti", "cold", 5.0),
        reading("mm/long", "host timer", "hot", 101.0, 1.01),
        reading("mm/long", "graph", "cold", 0.0, median_s=None, samples_s=(), status="error", detail="no graph"),
        reading("mm/long", "cupti", "hot", 100.0),
    ]
    return run(rows)


def test_readings_go_round_and_the_first_is_thrown_away() -> None:
    """Of two functions each is read in turn, three times after a first that does not count, and their time is kept."""
    clock = SimpleNamespace(now=0.0)
    said: list[str] = []

    def read(name: str, seconds: float) -> float:
        clock.now += seconds
        return 1e-6 * len(said)

    found = [Peer("a", "hot", lambda: read("a", 1.0)), Peer("b", "cold", lambda: read("b", 0.25))]
    first, second = readings(found, 3, said.append, lambda: clock.now)
    assert said == ["a", "b"] * 4
    assert first["samples_s"] == pytest.approx([3e-6, 5e-6, 7e-6])
    assert (first["measure_s"], second["measure_s"]) == (3.0, 0.75)
    assert (second["timer"], second["cache"]) == ("b", "cold")


def test_a_function_that_fails_has_a_reason_and_costs_no_other() -> None:
    """What raises is not asked again and has a status; the other has all of its readings."""
    asked = []

    def fails() -> float:
        asked.append(1)
        raise RuntimeError("cannot be captured")

    bad, good = readings([Peer("bad", "hot", fails), Peer("good", "hot", lambda: 1e-6)], 3, lambda step: None)
    assert (bad["status"], len(asked)) == ("error", 1)
    assert bad["detail"].startswith("cannot be captured (test_timers.py, line ")
    assert good["samples_s"] == [1e-6] * 3


def test_a_function_that_breaks_the_device_ends_the_comparison() -> None:
    """After an illegal access nothing more can be timed in this process."""

    def fails() -> float:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        readings([Peer("bad", "hot", fails)], 3, lambda step: None)


def test_what_empties_the_cache_is_no_part_of_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a fill and two kernels, again and again, the sums are those of the two; a trace with one more is refused."""
    monkeypatch.setattr(timers, "_TRACED", 3)
    activities = [Activity("k", "kernel", float(n), (50e-6, 3e-6, 1e-6)[n % 3]) for n in range(9)]
    assert timers._call_sums(activities, 2) == pytest.approx([4e-6] * 3)
    assert timers._call_sums(activities[1:], 2) == timers._call_sums([], 2) == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("triton.testing", "do_bench"),
        ("triton.testing", "do_bench_cudagraph"),
        ("torch.utils.benchmark", "Timer"),
        ("torch._inductor.runtime.benchmarking", "benchmarker"),
    ],
)
def test_the_functions_exist(module: str, name: str) -> None:
    """What is compared with is there in the installed versions under the names that are called."""
    pytest.importorskip(module.partition(".")[0], reason="the peer is not installed here")
    assert hasattr(importlib.import_module(module), name)


def test_torchs_timer_is_called_as_it_is_documented() -> None:
    """It times a function that adds small tensors at some microseconds, and says seconds."""
    x = torch.ones(4)
    assert 1e-8 < timers._torch_timer(lambda: x + x) < 1e-2


def test_bias_is_against_the_kernels_in_the_same_state() -> None:
    """12 us against 4 hot, 5.5 against 5 cold, 101 against 100: 200 %, 10 % and 1 %; spreads over the median."""
    host, graph, long = compared(comparison())
    assert (host.bias, graph.bias, long.bias) == (pytest.approx(2.0), pytest.approx(0.1), pytest.approx(0.01))
    assert (host.spread, graph.spread) == (pytest.approx(0.5), pytest.approx(0.02))


def test_the_table_has_states_spreads_and_seconds() -> None:
    """Kernels stand in the order of their time, what failed is said, and the costs are summed."""
    text = " ".join(report.show_timers(comparison(), "markdown").split())
    assert "| f/mm/short | 12.0 (+200%) | 5.50 (+10%) | | f/mm/long | 101 (+1%) | - |" in text
    assert "| cache state | hot | cold | | spread, median | 25.5% | 2.0% | | spread, worst | 50.0% | 2.0% |" in text
    assert "| seconds | 6.00 | 3.00 |" in text
    assert "graph on f/mm/long: no graph" in text
    assert "holds no comparison" in report.show_timers(run([]), "table")


def test_the_picture_is_valid_and_says_the_same_twice() -> None:
    """It is an SVG with a line a function and a point a reading that has a bias, digit for digit the same again."""
    picture = report.timers_picture(comparison())
    assert picture == report.timers_picture(comparison())
    root = ElementTree.fromstring(picture)
    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert (tags.count("polyline"), tags.count("circle")) == (2, 3)
    assert "host timer (hot)" in picture and "graph (cold)" in picture
    highest, lowest = (
        float(re.findall(rf'cy="([\d.]+)"[^>]*><title>host timer, f/mm/{case}', picture)[0])
        for case in ("short", "long")
    )
    assert highest < lowest
    ElementTree.fromstring(report.timers_picture(run([])))


def test_a_page_shows_a_comparison_and_a_calibration() -> None:
    """A block of timers has the picture and the table, and the picture is that of its run; each kind has its loader."""
    page = (
        "<!-- timers:x run=a picture=x.svg -->\n<!-- /timers:x -->\n"
        "<!-- calibration:y run=b parts=floors -->\n<!-- /calibration:y -->\n"
    )
    stored = {("timers", "a"): comparison(), ("calibration", "b"): run([])}

    def load(block: pages.Block) -> Run:
        return stored[block.kind, block.run]

    written = pages.rewritten(page, load, {})
    assert "![The table as a picture](x.svg)" in written and "| f/mm/short |" in written
    assert "A launch takes at least" in written and "nothing to say about noise" not in written
    assert pages.pictures(written, load) == {"x.svg": report.timers_picture(comparison())}
    assert pages.rewritten(written, load, {}) == written


def test_without_a_gpu_there_is_one_sentence(tmp_path: Path) -> None:
    """On a CPU the command says what it needs, stores nothing and could not judge."""
    result = called("timers", "--device", "cpu", "--results", tmp_path)
    assert result.exit_code == 3
    assert result.said.count("gemmgate:") == 1 and "on an NVIDIA GPU" in result.said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("cublas", "family/implementation/case"),
        ("dense_splitk/cublass/m64-n64-k8192-bf16", "Did you mean cublas"),
        ("dense_splitk/cublas/m64", "No case matches"),
    ],
)
def test_a_kernel_that_does_not_exist_is_named(kernel: str, said: str, tmp_path: Path) -> None:
    """Before any worker starts, with what there is."""
    result = called("timers", "--kernel", kernel, "--results", tmp_path)
    assert result.exit_code == 2
    assert said in result.said


class FakeWorker:
    """Answers as a GPU's worker would; what it is asked of `broken` is refused."""

    def __init__(self, *arguments: Any, **fields: Any) -> None:
        self.machine, self.stack = make_run().machine, make_run().stack
        self.target = SimpleNamespace(is_gpu=True)
        self.flags = {"acc32": {"f": "1"}, "ieee": {}}
        self.case = ""

    def ask(self, op: str, deadline_s: float, **fields: Any) -> dict[str, Any]:
        if op == "prepare":
            self.case = fields["case"]["name"]
        if op == "check" and "4096" in self.case:
            return {"status": "broken", "reason": "not_finite", "detail": "NaN"}
        if op != "timers":
            return {"ok": True}
        read = [{"timer": "graph", "cache": "cold", "samples_s": [5e-6] * fields["repeats"], "measure_s": 0.5}]
        return {"ok": True, "readings": read, "kernels": {"cold": {"samples_s": [4e-6] * 60, "kernels": 2}}}

    def kill(self) -> None: ...


def test_a_comparison_is_stored_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six kernels are asked for, one of them is refused and said, the others are stored, shown and drawn."""
    monkeypatch.setattr(command, "Worker", FakeWorker)
    picture = tmp_path / "p.svg"
    result = called("timers", "--results", tmp_path, "--repeats", 3, "--picture", picture)
    assert result.exit_code == 0, result.stderr
    assert "m4096-n4096-k4096-bf16 is left out: broken (not_finite): NaN" in result.said
    found = compared(Store(tmp_path).timers.load("latest"))
    assert [reading.path for reading in found] == list(command.KERNELS[:-1])
    assert [reading.bias for reading in found] == pytest.approx([0.25] * 5)
    assert picture.read_text() == report.timers_picture(Store(tmp_path).timers.load("latest"))
    shown = called("timers", "--show", "latest", "--results", tmp_path, "--format", "json")
    assert json.loads(shown.stdout)["readings"][0]["spent_s"] == 0.5
    assert called("runs", "--results", tmp_path, "--format", "json").stdout.strip() == "[]"


def test_pages_find_the_store_of_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gemmgate pages --run` looks for a comparison of timers among those, and writes its picture beside the page."""
    root = tmp_path / "root"
    (root / "docs").mkdir(parents=True)
    page = root / "docs" / "method.md"
    page.write_text("<!-- timers:h picture=h.svg -->\n<!-- /timers:h -->\n")
    store = Store(tmp_path / "results")
    stored(store.timers, make_run(), *comparison().rows)
    monkeypatch.setattr("gemmgate.suite.cli.pages.own_overlay", lambda: root)
    result = called("pages", "--run", "h=latest", "--results", store.root)
    assert result.exit_code == 0, result.stderr
    assert f"<!-- timers:h run={make_run().id} picture=h.svg -->" in page.read_text()
    assert (root / "docs" / "h.svg").read_text().startswith("<svg")
