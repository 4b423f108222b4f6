"""Cross-checks on traces made by hand: every planted disagreement gets its own explanation."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="traces come from torch's profiler")

from gemmgate.suite import report  # noqa: E402  torch first
from gemmgate.suite.measure.crosscheck import Traced, cut, difference_of_kernels, explain, thinned  # noqa: E402
from gemmgate.suite.measure.trace import Activity, activities  # noqa: E402
from tests.runs import row, run  # noqa: E402

FLOOR_S = 0.8e-6


def _activities(
    calls: int, durations_s: list[float], gap_s: float = 1e-6, names: tuple[str, ...] = ("mm", "sum", "cast")
) -> list[Activity]:
    """Calls of kernels one after the other with a gap before each, which overlap where it is negative."""
    found, now = [], 0.0
    for _ in range(calls):
        for name, duration_s in zip(names, durations_s, strict=False):
            now += gap_s
            kind = "memcpy" if name.startswith("Memcpy") else "kernel"
            found.append(Activity(name, kind, now, duration_s))
            now += duration_s
    return found


def _cut(*args: Any, **kwargs: Any) -> Traced:
    found = cut(_activities(*args, **kwargs), args[0])
    assert found is not None
    return found


def test_a_trace_is_cut_into_calls() -> None:
    """Four calls of 3 + 1 us are four sums of 4 us, with their kernels named in order."""
    traced = _cut(4, [3e-6, 1e-6])
    assert traced.call_s == pytest.approx([4e-6] * 4)
    assert (traced.names, traced.copies) == (("mm", "sum"), 0)
    assert traced.busy_s == pytest.approx(4e-6)


def test_a_trace_of_unequal_calls_is_none() -> None:
    """A kernel too many, another kernel in one call, and an empty trace are no calls."""
    whole = _activities(4, [3e-6, 1e-6])
    assert cut(whole[:-1], 4) is None
    assert cut([], 4) is None
    other = Activity("other", "kernel", 1.0, 1e-6)
    assert cut([*whole[:-1], other], 4) is None


def test_samples_of_a_trace_are_means_of_neighbours() -> None:
    """Of 600 calls there are 60 samples of ten, and of 40 calls 40."""
    assert thinned([float(i) for i in range(600)])[:2] == [4.5, 14.5]
    assert len(thinned([1.0] * 600)) == 60
    assert len(thinned([1.0] * 40)) == 40


@pytest.mark.parametrize(
    ("eager", "graph", "said"),
    [
        (("mm", "sum"), ("mm", "sum"), ""),
        (("mm", "sum"), ("sum", "mm"), ""),
        (("mm", "sum"), ("mm",), "the graph lacks sum"),
        (("mm",), ("mm", "cast"), "the graph has cast, which the call alone does not launch"),
        (("mm", "copy_kernel"), ("mm", "Memcpy DtoD"), ""),
        (("mm", "sum"), ("mm", "Memcpy DtoD"), "the graph lacks sum"),
        (("a",), ("b",), "the graph lacks a; the graph has b, which the call alone does not launch"),
    ],
)
def test_kernels_of_a_graph_are_those_of_the_call(eager: tuple[str, ...], graph: tuple[str, ...], said: str) -> None:
    """A kernel that is missing or new in the graph is named; a copy that became a copy node is allowed."""
    traces = [_cut(2, [1e-6] * 3, names=names) for names in (eager, graph)]
    assert difference_of_kernels(*traces) == said


@pytest.mark.parametrize(
    ("timer", "seconds", "graph_s", "reason"),
    [
        ("cupti", 4.0e-6, 4.1e-6, "agrees"),
        ("cupti", 4.0e-6, 5.6e-6, "launch_gap"),
        ("cupti", 4.0e-6, 12e-6, "unexplained"),
        ("cupti", 6.0e-6, 4.0e-6, "unexplained"),
        ("events", 6.0e-6, 5.0e-6, "launch_gap"),
        ("events", 30e-6, 5.0e-6, "unexplained"),
        ("events", 3.0e-6, 5.0e-6, "unexplained"),
        ("events", 4.2e-6, 5.0e-6, "launch_gap"),
        ("events", 3.9e-6, 5.0e-6, "unexplained"),
    ],
)
def test_a_difference_is_explained_by_what_launching_takes(
    timer: str, seconds: float, graph_s: float, reason: str
) -> None:
    """Up to twice the launch floor and 1 us a kernel is the gap between kernels, which a stream may have shorter than
    a graph; more, or less time than the kernels take, is not.
    """
    traced = _cut(4, [3e-6, 1e-6])
    found = explain(timer, seconds, graph_s, traced, FLOOR_S, eager=traced, starved=False)
    assert found.reason == reason


def test_other_explanations() -> None:
    """A starved queue, a copy node and overlapping kernels are told apart from a launch gap."""
    plain, copied = _cut(4, [3e-6, 1e-6]), _cut(4, [3e-6, 1e-6], names=("mm", "Memcpy DtoD"))
    overlapping = _cut(4, [4e-6, 4e-6], gap_s=-2e-6)
    assert overlapping.busy_s < 0.6 * overlapping.kernel_s
    starved = explain("events", 30e-6, 5e-6, plain, FLOOR_S, eager=plain, starved=True)
    node = explain("events", 4e-6, 5e-6, copied, FLOOR_S, eager=plain, starved=False)
    overlap = explain("cupti", 8e-6, 4.5e-6, overlapping, FLOOR_S, eager=overlapping, starved=False)
    assert [starved.reason, node.reason, overlap.reason] == ["host_bound", "memcpy_node", "overlap"]
    assert "4.00 us a call" not in starved.sentence
    assert "events says +500%" in starved.sentence


def test_a_trace_above_the_settled_clock_is_told() -> None:
    """Kernels 15 % faster in a trace are the clock's where the graph ran at 85 % of it, else unexplained."""
    traced = _cut(4, [170e-6], names=("mm",))
    capped = explain("cupti", 170e-6, 200e-6, traced, FLOOR_S, eager=traced, starved=False, clock_ratio=1 / 0.85)
    full = explain("cupti", 170e-6, 200e-6, traced, FLOOR_S, eager=traced, starved=False, clock_ratio=1.0)
    slower = explain("cupti", 230e-6, 200e-6, traced, FLOOR_S, eager=traced, starved=False, clock_ratio=1 / 0.85)
    assert (capped.reason, full.reason, slower.reason) == ("clock", "unexplained", "unexplained")
    assert "85% of the highest clock" in capped.sentence


def test_a_summary_counts_every_row_once() -> None:
    """Of six rows of other timers one agrees, two of three differences are explained, and two have no comparison."""
    crossed = {"phase": "cross_check", "visit": "", "yardstick": ""}
    reasons = ("agrees", "launch_gap", "overlap", "unexplained", "")
    rows = [row("own", 8e-6)]
    rows += [row("own", 6e-6, timer=f"t{n}", reason=reason, **crossed) for n, reason in enumerate(reasons)]
    rows.append(row("own", None, timer="cupti", status="unsupported", reason="no_trace", **crossed))
    said = (
        "1 agree with it, 2 of 3 disagreements explained (1 launch gap, 1 overlap), 1 unexplained, "
        "1 without a time to compare with, 1 not timed (no trace)."
    )
    assert said in report.show(run(rows))


class _Event:
    """An event of the profiler, as newer versions have it; older ones do not tell `activity_type`."""

    def __init__(self, name: str, device: str, begin_ns: int, kind: str | None) -> None:
        self.name, self.device_type = lambda: name, lambda: f"DeviceType.{device}"
        self.start_ns, self.duration_ns = lambda: begin_ns, lambda: 1500
        if kind is not None:
            self.activity_type = lambda: kind


@pytest.mark.parametrize("tells", [True, False])
def test_what_ran_on_the_device_is_found_among_events(tells: bool) -> None:
    """Kernels, copies and fills come in order of their begin, launches on the host and annotations do not."""
    events = [
        _Event("cudaLaunchKernel", "CPU", 0, "cuda_runtime" if tells else None),
        _Event("Memset (Device)", "CUDA", 3000, "gpu_memset" if tells else None),
        _Event("mm", "CUDA", 1000, "kernel" if tells else None),
        _Event("Memcpy DtoD (Device -> Device)", "CUDA", 2000, "gpu_memcpy" if tells else None),
    ]
    if tells:
        events.append(_Event("step", "CUDA", 500, "gpu_user_annotation"))
    found = activities(events)
    assert [one.kind for one in found] == ["kernel", "memcpy", "memset"]
    assert found[0].duration_s == pytest.approx(1.5e-6)


# the report


def test_other_timers_stand_in_a_table_of_their_own() -> None:
    """A cross-check leaves the table of times and the means as they are, and explains each difference."""
    crossed = {"phase": "cross_check", "visit": "", "yardstick": ""}
    rows = [
        row("cublas", 10e-6),
        row("own", 8e-6),
        row("own", 6.4e-6, timer="cupti", reason="launch_gap", detail="cupti says -20%", **crossed),
        row("own", 20e-6, timer="events", reason="unexplained", detail="odd", marks=("unexplained",), **crossed),
    ]
    text = report.show(run(rows))
    assert re.search(r"own +cold +8\.00 +6\.40 +20\.0 +1 +cupti says -20%; odd", text)
    assert "0 agree with it, 1 of 2 disagreements explained (1 launch gap), 1 unexplained." in text
    assert "1.250 (1)" in text
    assert "timer cupti" not in text


def test_distributions_stand_side_by_side() -> None:
    """Times of other distributions are shown against the usual one, with their errors, and are in no mean."""
    rows = [
        row("cublas", 10e-6),
        row("own", 8e-6),
        row("own", 6e-6, data="zeros", error=0.0, visit="v2", yardstick=""),
    ]
    text = report.show(run(rows))
    assert re.search(r"own +cold +8\.00 +3\.0e-03 +6\.00 \(-25\.0%\) +0\.0e\+00", text)
    assert "1.250 (1)" in text
    assert "own (data" not in text


def test_who_wins_in_a_graph_and_loses_alone_is_named() -> None:
    """A kernel that is twice as fast in a graph and slower when called is shown as both."""
    rows = [row("cublas", 10e-6, eager_s=12e-6, host_s=5e-6), row("own", 5e-6, eager_s=30e-6, host_s=30e-6)]
    text = report.show(run(rows))
    assert "slower when called one by one, where the host counts: own in 1 case." in text
    assert "where the host counts" not in report.show(run([rows[0], row("own", 5e-6, eager_s=9e-6)]))


def test_the_profiler_has_what_a_trace_reads() -> None:
    """Events of the installed torch have the methods that are read, here from a trace of the CPU."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profiler:
        torch.ones(8, 8).sum()
    events = profiler.profiler.kineto_results.events()
    assert events
    assert activities(events) == ()
    assert activities([SimpleNamespace(device_type=lambda: "DeviceType.CPU")]) == ()
