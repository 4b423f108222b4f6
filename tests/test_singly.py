"""Calls timed one by one between events, on a device that does what a test says."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="what is measured runs in torch")

from gemmgate.suite.cases import Implementation, Prepared  # noqa: E402  torch first
from gemmgate.suite.measure import singly  # noqa: E402
from gemmgate.suite.records import MIN_SAMPLES  # noqa: E402
from gemmgate.suite.report import show  # noqa: E402
from gemmgate.suite.series import collect  # noqa: E402
from tests import runs  # noqa: E402
from tests.fakes import FakeClock, FakeCuda, FakeTelemetry, make_bench  # noqa: E402
from tests.stored import ROOT  # noqa: E402

TIMES_S = {"fast": 4e-6, "slow": 8e-6}
LAUNCH_S = 2e-6
"""What queueing anything takes the host."""


class Timed:
    """A product that takes the device so long; it may turn wrong after so many calls."""

    def __init__(self, cuda: FakeCuda, seconds: float, right: int = 10**9) -> None:
        self.cuda, self.seconds, self.right = cuda, seconds, right
        self.calls = 0

    def __call__(self, inputs: Any) -> torch.Tensor:
        self.calls += 1
        self.cuda.run(self.seconds, LAUNCH_S)
        return inputs["a"] @ inputs["b"] * (1.0 if self.calls <= self.right else 2.0)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """The device, whose every flush takes 50 us."""
    fake = FakeCuda()
    for name in ("Event", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    monkeypatch.setattr(singly, "FLUSH_BYTES", 4096)
    zero = torch.Tensor.zero_

    def flush(tensor: torch.Tensor) -> torch.Tensor:
        fake.run(50e-6, LAUNCH_S)
        return zero(tensor)

    monkeypatch.setattr(torch.Tensor, "zero_", flush)
    return fake


def time_singly(functions: dict[str, Timed], medians_s: dict[str, float] | None = None) -> dict[str, dict[str, Any]]:
    """The facts of these functions on a 4 x 4 product, on a device whose cache holds 1024 bytes."""
    telemetry: Any = FakeTelemetry()
    bench, work = make_bench(FakeClock(lambda n: 1e-6), telemetry, cache_bytes=1024, names=())
    for name, function in functions.items():
        prepared = Prepared(lambda inputs, function=function: lambda: function(inputs))
        made = Implementation(name, "own", True, lambda *_: None, lambda *_, prepared=prepared: prepared)
        bench.prepare(work, made)
    work.medians_s["cold"] = medians_s or {}
    return singly.time_singly(work, list(functions), "cold", telemetry, lambda name, step: None)


def test_events_stand_around_the_call_alone(cuda: FakeCuda) -> None:
    """A sample is what the device takes for one call, without the flush before it, since the host is ahead."""
    found = time_singly({name: Timed(cuda, seconds) for name, seconds in TIMES_S.items()})
    for name, seconds in TIMES_S.items():
        assert len(found[name]["samples_s"]) == 60
        assert found[name]["samples_s"] == pytest.approx([seconds] * 60)
        assert (found[name]["timer"], found[name]["calls_per_sample"]) == ("events", 1)
        assert found[name]["cache_proof"] == "proven"  # 4096 bytes are four times the cache


def test_long_calls_are_timed_less_often(cuda: FakeCuda) -> None:
    """Of calls of 5 ms each, a tenth of a second for each would be 20; an interval takes 30."""
    found = time_singly({"long": Timed(cuda, 5e-3)}, {"long": 5e-3})
    assert len(found["long"]["samples_s"]) == 30


def test_what_a_timed_call_wrote_is_checked(cuda: FakeCuda) -> None:
    """One that turns wrong while it is timed is broken, and the other keeps its time."""
    found = time_singly({"good": Timed(cuda, 4e-6), "bad": Timed(cuda, 4e-6, right=30)})
    assert (found["bad"]["status"], found["bad"]["reason"]) == ("broken", "error_above_bound")
    assert "samples_s" in found["good"]


def test_one_that_raises_has_no_time(cuda: FakeCuda) -> None:
    """An exception is a status of its own, and the other is timed."""

    class Raises(Timed):
        def __call__(self, inputs: Any) -> torch.Tensor:
            if self.calls:
                raise RuntimeError("no more")
            return super().__call__(inputs)

    found = time_singly({"good": Timed(cuda, 4e-6), "raises": Raises(cuda, 4e-6)})
    assert (found["raises"]["status"], found["raises"]["reason"]) == ("error", "RuntimeError")
    assert len(found["good"]["samples_s"]) == 60


# what a reader sees


def test_numbers_are_documented() -> None:
    """The method's page says how much is written, how often a call is timed and for how long."""
    page = " ".join((ROOT / "docs" / "method.md").read_text(encoding="utf-8").split())
    often = f"{singly._ROUNDS} times for each implementation or {singly._MOST_S:g} s, but {MIN_SAMPLES} times at least"
    assert f"{singly.FLUSH_BYTES >> 20} MiB are written, then one call stands between two events, {often}" in page


def pair(case: str, speedup: float, **fields: Any) -> list[Any]:
    """cuBLAS at 12 us and a kernel that is so many times as fast."""
    known = {"case": case, "visit": case, **fields}
    return [runs.row("cublas", 12e-6, **known), runs.row("mine", 12e-6 / speedup, **known)]


def test_means_of_both_ways_stand_side_by_side() -> None:
    """Singly 1.1 and 1.21 come to 1.1537, by the method 1.2 and 1.3 to 1.2490; a case with one of both has no part."""
    alone = {"timer": "events", "phase": "singly"}
    rows = [*pair("x", 1.2), *pair("y", 1.3), *pair("z", 5.0), *pair("x", 1.1, **alone), *pair("y", 1.21, **alone)]
    shown = show(runs.run(rows), "markdown")
    (line,) = re.findall(r"^\| mine \| (\S+) \(2\) \| (\S+) \(2\) \|$", shown, re.MULTILINE)
    assert [float(mean) for mean in line] == pytest.approx([math.sqrt(1.1 * 1.21), math.sqrt(1.2 * 1.3)], rel=2e-3)
    assert "Two events" not in show(runs.run(pair("x", 1.2)), "markdown")


def test_no_other_number_rests_on_them() -> None:
    """Times of calls timed singly are not in the table of times, the geometric means or a history."""
    rows = [*pair("x", 1.2), *pair("x", 7.0, timer="events", phase="singly")]
    shown = show(runs.run(rows), "markdown")
    assert shown.count("| x |") == 1
    (mean,) = re.findall(r"^\| mine \| (\S+) \(1\) \| 1 \| 0 \| 0 \|", shown, re.MULTILINE)
    assert float(mean) == pytest.approx(1.2, rel=2e-3)
    series, _ = collect([runs.run(rows)], {"0a1b2c3d4e5f": 1})
    assert {point.row.phase for points in series.values() for point in points} == {""}
