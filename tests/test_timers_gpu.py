"""Benchmark functions and a settling load on a real GPU."""

from __future__ import annotations

import statistics

import pytest

torch = pytest.importorskip("torch", reason="what is timed is torch's")

from gemmgate.kernels.dense_splitk import FAMILY  # noqa: E402  torch first
from gemmgate.kernels.dense_splitk.cases import case_of  # noqa: E402
from gemmgate.kernels.dense_splitk.inputs import make_inputs  # noqa: E402
from gemmgate.kernels.dense_splitk.reference import reference  # noqa: E402
from gemmgate.suite.catalog import find  # noqa: E402
from gemmgate.suite.measure.bench import Bench  # noqa: E402
from gemmgate.suite.measure.machine import Telemetry, describe_target  # noqa: E402
from gemmgate.suite.measure.work import Work  # noqa: E402

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda", 0)
CASE = case_of(64, 64, 32768, "bf16", "acc32")


@pytest.fixture
def bench() -> Bench:
    """What a worker measures with."""
    bench = Bench(DEVICE, describe_target(DEVICE), Telemetry(DEVICE), lambda name, step: None)
    bench.touch()
    return bench


def _begin(bench: Bench) -> Work:
    work = bench.begin(
        FAMILY, CASE, lambda slot: make_inputs(CASE, slot, DEVICE), lambda inputs: reference(CASE, inputs), cold=True
    )
    bench.prepare(work, find().implementation(FAMILY.name, "cublas"))
    return work


def test_every_function_reads_at_least_the_kernels(bench: Bench) -> None:
    """No function fails, none reads 10 % less than the kernels in its state take, and cold kernels take longer."""
    found = bench.compare_timers(_begin(bench), "cublas", 3)
    kernels_s = {cache: statistics.median(facts["samples_s"]) for cache, facts in found["kernels"].items()}
    assert set(kernels_s) == {"hot", "flushed", "swept", "cold"}
    assert kernels_s["cold"] > kernels_s["hot"]
    for reading in found["readings"]:
        assert len(reading.get("samples_s", ())) == 3, reading
        assert statistics.median(reading["samples_s"]) > 0.9 * kernels_s[reading["cache"]], reading


def test_a_load_tells_its_energy(bench: Bench) -> None:
    """Where the board counts energy, a call of some microseconds takes between 0.01 and 100 mJ."""
    if bench.telemetry.joules is None:
        pytest.skip("this board counts no energy")
    measured = bench.sample(_begin(bench), ["cublas"], "cold", None, None, energy=True)["measured"]["cublas"]
    assert 1e-5 < measured["joules"] < 0.1
