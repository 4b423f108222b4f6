"""Calls timed singly on a GPU: what that adds to a time, and that it is what Triton's do_bench says."""

from __future__ import annotations

import statistics

import pytest

torch = pytest.importorskip("torch", reason="what is measured runs in torch")

from gemmgate.kernels.dense_splitk import FAMILY  # noqa: E402  torch first
from gemmgate.kernels.dense_splitk.cases import case_of  # noqa: E402
from gemmgate.kernels.dense_splitk.inputs import make_inputs  # noqa: E402
from gemmgate.kernels.dense_splitk.reference import reference  # noqa: E402
from gemmgate.suite.catalog import find  # noqa: E402
from gemmgate.suite.measure.bench import Bench  # noqa: E402
from gemmgate.suite.measure.machine import Telemetry, describe_target  # noqa: E402
from gemmgate.suite.measure.work import Work  # noqa: E402
from gemmgate.suite.records import MIN_SAMPLES  # noqa: E402

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda", 0)
CASE = case_of(32, 32, 32768, "bf16", "acc32")
NAMES = ["cublas", "triton_split_k"]


@pytest.fixture(scope="module")
def measured() -> tuple[Bench, Work]:
    """cuBLAS and an own kernel, timed by the method in the state `cold`."""
    bench = Bench(DEVICE, describe_target(DEVICE), Telemetry(DEVICE), lambda name, step: None)
    work = bench.begin(
        FAMILY, CASE, lambda slot: make_inputs(CASE, slot, DEVICE), lambda inputs: reference(CASE, inputs), cold=True
    )
    for name in NAMES:
        bench.prepare(work, find().implementation(FAMILY.name, name))
    bench.sample(work, NAMES, "cold", None, None)
    return bench, work


def test_singly_is_longer_than_in_a_graph(measured: tuple[Bench, Work]) -> None:
    """Events, a launch and dirty lines add to a kernel of some microseconds, and never take away."""
    bench, work = measured
    found = bench.singly(work, NAMES, "cold")["timed"]
    for name in NAMES:
        assert len(found[name]["samples_s"]) >= MIN_SAMPLES
        assert found[name]["cache_proof"] == "proven"
        assert statistics.median(found[name]["samples_s"]) > work.medians_s["cold"][name]


def test_singly_agrees_with_do_bench(measured: tuple[Bench, Work]) -> None:
    """Triton's do_bench says the same of the same call, within a fifth."""
    from triton.testing import do_bench

    bench, work = measured
    call = work.ready["cublas"].bind(work.ring.slots[0])
    theirs_s = 1e-3 * do_bench(call, return_mode="median")
    ours_s = statistics.median(bench.singly(work, ["cublas"], "cold")["timed"]["cublas"]["samples_s"])
    assert ours_s == pytest.approx(theirs_s, rel=0.2)
