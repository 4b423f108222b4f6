"""Measuring on a GPU: what graphs hold, what proofs and cross-checks say, and our clock beside Triton's."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="what is measured runs in torch")

from gemmgate.kernels.dense_splitk import FAMILY  # noqa: E402  torch first
from gemmgate.kernels.dense_splitk.cases import case_of  # noqa: E402
from gemmgate.kernels.dense_splitk.inputs import make_inputs  # noqa: E402
from gemmgate.kernels.dense_splitk.reference import reference  # noqa: E402
from gemmgate.suite.cases import Case, Implementation, Prepared, Target  # noqa: E402
from gemmgate.suite.catalog import find  # noqa: E402
from gemmgate.suite.measure import do_bench, measure  # noqa: E402
from gemmgate.suite.measure.bench import Bench  # noqa: E402
from gemmgate.suite.measure.clock import EventClock, _spin_rate  # noqa: E402
from gemmgate.suite.measure.crosscheck import cut  # noqa: E402
from gemmgate.suite.measure.graph import capture, nodes_per_call  # noqa: E402
from gemmgate.suite.measure.machine import Telemetry, describe_machine, describe_target  # noqa: E402
from gemmgate.suite.measure.sampler import Launch, time_launches  # noqa: E402
from gemmgate.suite.measure.trace import trace  # noqa: E402
from gemmgate.suite.measure.work import Work  # noqa: E402

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda", 0)
CASE = case_of(64, 64, 8192, "bf16", "acc32")
FLOOR_S = 1e-6


def _bench(target: Target | None = None) -> Bench:
    return Bench(DEVICE, target or describe_target(DEVICE), Telemetry(DEVICE), lambda name, step: None)


def _begin(bench: Bench, case: Case = CASE, names: tuple[str, ...] = ("cublas", "triton_split_k")) -> Work:
    """A case with a cold ring, its implementations prepared and checked."""
    work = bench.begin(
        FAMILY, case, lambda slot: make_inputs(case, slot, DEVICE), lambda inputs: reference(case, inputs), cold=True
    )
    for name in names:
        bench.prepare(work, find().implementation(FAMILY.name, name))
        bench.check(work, name)
    return work


def _squares(size: int) -> tuple[Any, Any]:
    return torch.randn(size, size, device=DEVICE).bfloat16(), torch.randn(size, size, device=DEVICE).bfloat16()


# clocks and graphs


def test_the_spin_is_timed_at_a_clock_that_a_gpu_has() -> None:
    """The spinning kernel counts between 0.5 and 3.5 GHz."""
    assert 0.5e9 < _spin_rate() < 3.5e9


def test_a_slow_host_is_no_part_of_the_time() -> None:
    """A kernel that the host takes 2 ms longer to queue is timed within a fifth of what it takes alone."""
    a, b = _squares(2048)
    quick = Launch(lambda: (torch.mm(a, b), None)[1], 1, host_s=5e-5)
    slow = Launch(lambda: (time.sleep(2e-3), torch.mm(a, b), None)[2], 1, host_s=3e-3)
    clock = EventClock("events")
    time_launches(clock, [quick, slow])
    alone, delayed = time_launches(clock, [quick, slow])
    assert clock.starved == [False, False]
    assert delayed == pytest.approx(alone, rel=0.2)


def test_a_call_that_waits_is_starved() -> None:
    """A call that synchronises cannot be queued ahead, and the clock says so."""
    a, b = _squares(1024)
    clock = EventClock("events")
    time_launches(clock, [Launch(lambda: (torch.mm(a, b).sum().item(), None)[1], 1, host_s=1e-5)])
    assert clock.starved == [True]


def test_nodes_of_a_graph_are_the_kernels_that_ran() -> None:
    """Nodes read from the driver are as many as a trace of the replay shows, under the same plain names."""
    a, b = _squares(512)
    calls = [lambda: torch.mm(a, b).float().relu()] * 4
    graph = capture(calls)
    each = nodes_per_call(graph)
    traced = cut(trace(lambda: graph.replay(1)), 4)
    assert each is not None
    assert traced is not None
    assert len(each) == len(traced.names) >= 3
    assert {name for name in each if not name.startswith(("_Z", "("))} <= set(traced.names)


def test_a_captured_copy_is_a_copy_node() -> None:
    """`copy_` of equal types becomes a node that is no kernel, in the graph and in the trace."""
    source, target = torch.zeros(1 << 20, device=DEVICE), torch.zeros(1 << 20, device=DEVICE)
    graph = capture([lambda: target.copy_(source)])
    traced = cut(trace(lambda: graph.replay(1)), 1)
    assert graph.nodes == ("(memcpy)",)
    assert traced is not None
    assert traced.copies == 1


def test_a_hot_graph_keeps_one_output() -> None:
    """Passes over one slot reuse the memory of the output, and the last call's is the one kept."""
    a, b = _squares(512)
    graph = capture([lambda: torch.mm(a, b)], passes=50)
    graph.outputs[0].fill_(float("nan"))
    graph.replay(1)
    torch.cuda.synchronize()
    assert (len(graph.outputs), graph.calls) == (1, 50)
    assert torch.equal(graph.outputs[0], torch.mm(a, b))


def test_a_failing_capture_says_why() -> None:
    """What a call raises inside a capture comes out, not that capturing failed, and the device still works."""
    a, b = _squares(256)
    count = 0

    def call() -> Any:
        nonlocal count
        count += 1
        out = torch.mm(a, b)
        if count > 1:
            raise ValueError("the kernel's own words")
        return out

    with pytest.raises(ValueError, match="the kernel's own words"):
        capture([call])
    assert torch.isfinite(torch.mm(a, b)).all()


# cache states


def test_a_cold_ring_is_proven_and_hot_with_it() -> None:
    """On a case that memory bounds, the ring is equivalent to one of twice its size and slower than one buffer."""
    bench = _bench()
    work = _begin(bench, case_of(64, 64, 65536, "bf16", "acc32"), ("cublas",))
    cold = bench.sample(work, ["cublas"], "cold", None, None)["measured"]["cublas"]
    hot = bench.sample(work, ["cublas"], "hot", None, None)["measured"]["cublas"]
    assert cold["cache_proof"] == "proven", cold["cache_evidence"]
    assert hot["cache_proof"] == "proven", hot["cache_evidence"]
    assert min(cold["samples_s"]) > min(hot["samples_s"])


def test_a_ring_that_is_too_small_is_not_proven() -> None:
    """Where the cache is eight times larger than the harness was told, the ring is not called cold."""
    target = describe_target(DEVICE)
    bench = _bench(replace(target, l2_bytes=int(0.12 * target.l2_bytes)))
    work = _begin(bench, names=("cublas",))
    cold = bench.sample(work, ["cublas"], "cold", None, None)["measured"]["cublas"]
    assert cold["cache_proof"] != "proven", cold["cache_evidence"]


def test_serving_lies_between_hot_and_cold() -> None:
    """With the activation in the cache and cold weights, a call takes no longer than cold, and is checked."""
    bench = _bench()
    work = _begin(bench, case_of(64, 64, 65536, "bf16", "acc32"))
    names = ["cublas", "triton_split_k"]
    medians = {}
    for state in ("cold", "serving", "hot"):
        measured = bench.sample(work, names, state, None, None)["measured"]
        assert all(not outcome.get("status") for outcome in measured.values())
        medians[state] = {name: sorted(measured[name]["samples_s"])[20] for name in names}
    for name in names:
        assert medians["hot"][name] < 1.03 * medians["serving"][name] < 1.06 * medians["cold"][name]


# cross-check


def test_timers_agree_or_the_difference_is_explained() -> None:
    """Graph, blocked events and the profiler's kernel times of cuBLAS and of our kernel leave nothing unexplained."""
    bench = _bench()
    work = _begin(bench)
    names = ["cublas", "triton_split_k"]
    bench.sample(work, names, "cold", None, None)
    crossed = bench.cross_check(work, names, "cold", FLOOR_S)["crossed"]
    for name in names:
        assert crossed[name]["kernels_differ"] == ""
        assert set(crossed[name]["rows"]) == {"cupti", "events"}
        for facts in crossed[name]["rows"].values():
            assert len(facts["samples_s"]) >= 30
            assert facts["reason"] != "unexplained", facts["detail"]


def test_a_kernel_that_a_graph_lacks_is_found() -> None:
    """A call that launches one kernel less while it is captured is told by name."""
    bench = _bench()
    work = _begin(bench, names=("cublas",))

    def bind(inputs: Any) -> Any:
        def call() -> Any:
            out = torch.mm(inputs["a"], inputs["b"])
            return out if torch.cuda.is_current_stream_capturing() else out.mul_(1.0)

        return call

    work.ready["cheats"] = Prepared(bind)
    work.implementations["cheats"] = Implementation("cheats", "own", True, lambda c, t: None, lambda c, e, t, x: None)  # type: ignore[arg-type, return-value]
    bench.sample(work, ["cublas", "cheats"], "cold", None, None)
    crossed = bench.cross_check(work, ["cheats"], "cold", FLOOR_S)["crossed"]
    assert "the graph lacks" in crossed["cheats"]["kernels_differ"]


def test_the_machine_says_how_it_is_set() -> None:
    """A data-centre GPU has a default power limit, and no uncorrected errors came up since the worker began."""
    telemetry = Telemetry(DEVICE)
    machine = describe_machine(DEVICE, telemetry)
    assert machine.compute_mode in ("", "default", "exclusive_process")
    assert machine.power_default_w >= machine.power_limit_w >= 0
    assert "ecc_errors" not in telemetry.marks()


# for other programs


def test_do_bench_agrees_with_triton_on_a_long_kernel() -> None:
    """Reading 512 MiB, of which the cache holds a tenth at most and power limits nothing: both medians within 5 %."""
    testing = pytest.importorskip("triton.testing", reason="Triton is the peer")
    source = torch.randn(2**27, device=DEVICE)

    def read() -> Any:
        return source.sum()

    theirs = testing.do_bench_cudagraph(read, rep=50, return_mode="median")
    ours = do_bench(read, rep=100, return_mode="median")
    assert theirs > 0.1
    assert ours == pytest.approx(theirs, rel=0.05)


def test_do_bench_empties_the_cache() -> None:
    """Reading 16 MB takes longer when the cache is emptied before than when it is not."""
    source = torch.randn(4096, 1024, device=DEVICE)
    sums = torch.empty(4096, device=DEVICE)

    def read() -> Any:
        return torch.sum(source, dim=1, out=sums)

    hot_ms = measure(read, read).first.median_s * 1e3
    assert do_bench(read, return_mode="median") > 1.1 * hot_ms


def test_do_bench_takes_what_cannot_be_captured() -> None:
    """A function that waits for the device, and one with a backward pass, have times too."""
    a, b = _squares(512)
    weight = torch.randn(512, 512, device=DEVICE, requires_grad=True)
    assert do_bench(lambda: torch.mm(a, b).sum().item(), rep=20) > 0
    assert do_bench(lambda: (weight @ weight).sum().backward(), rep=20, grad_to_none=[weight]) > 0
    assert weight.grad is not None


def test_do_bench_of_nothing_is_refused() -> None:
    """A function that launches nothing has no time on a GPU."""
    with pytest.raises(ValueError, match="launches nothing"):
        do_bench(lambda: None)


def test_a_pair_of_equals_and_a_pair_of_unequals() -> None:
    """The same product twice is 1 within 3 %, and two products against one are 2 within 10 %, on fresh inputs."""

    def once(a: Any, b: Any) -> Any:
        return torch.mm(a, b)

    def twice(a: Any, b: Any) -> Any:
        torch.mm(a, b)
        return torch.mm(a, b)

    same = measure(once, once, lambda slot: _squares(1024))
    assert (same.timer, same.cache) == ("graph", "cold")
    assert same.ratio.estimate == pytest.approx(1.0, abs=0.03)
    a, b = _squares(2048)
    assert measure(twice, once, (a, b)).ratio.estimate == pytest.approx(2.0, rel=0.1)
