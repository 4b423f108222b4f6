"""Devices that misbehave: no clock, throttle, drift, mode or tenant makes a measurement hang or look good."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="a bench runs in a process with torch")

from gemmgate.suite.measure import clock as clock_module  # noqa: E402  torch first
from gemmgate.suite.measure import machine  # noqa: E402
from gemmgate.suite.measure.clock import EventClock  # noqa: E402
from gemmgate.suite.measure.sampler import Launch, time_launches  # noqa: E402
from gemmgate.suite.measure.settle import Reading  # noqa: E402
from gemmgate.suite.measure.watched import WatchedClock  # noqa: E402
from tests.fakes import FakeClock, FakeCuda, FakeTelemetry, make_bench, measured_row  # noqa: E402


def _noise(n: int) -> float:
    """Within 0.3 % of 1, without a trend: the golden ratio's multiples fill the interval evenly."""
    return 1 + 0.003 * ((n * 0.6180339887) % 1 - 0.5)


def test_a_quiet_device_gives_a_row_without_marks() -> None:
    """On a steady clock the row is ok, its median is the time, and nothing is marked."""
    row = measured_row(lambda n: 1e-3 * _noise(n), FakeTelemetry())
    assert (row.status, row.marks) == ("ok", ())
    assert row.median_s == pytest.approx(1e-3, rel=2e-3)
    assert row.sm_clock_hz == 1.98e9


@pytest.mark.parametrize("impossible", [0.0, -1e-6, math.nan, math.inf])
@pytest.mark.parametrize("first", [0, 20])
def test_an_impossible_time_gives_no_number(impossible: float, first: int) -> None:
    """Zero, negative, NaN and endless times, from the start or later, make the row invalid and end at once."""
    row = measured_row(lambda n: impossible if n >= first else 1e-3 * _noise(n))
    assert (row.status, row.reason, row.median_s) == ("invalid", "impossible_time", None)


def test_one_impossible_time_costs_its_implementation_alone() -> None:
    """The other implementation of the same rounds is measured all the same."""
    clock = FakeClock(lambda n: 1e-3 * _noise(n))
    bench, work = make_bench(clock, names=("first", "second"))
    taken: dict[str, int] = {}

    def seconds(n: int) -> float:
        taken["n"] = n
        return -1.0 if n == 25 else 1e-3 * _noise(n)

    clock._seconds = seconds
    measured = bench.sample(work, ["first", "second"], "hot", None, None)["measured"]
    outcomes = sorted(outcome.get("status", "ok") for outcome in measured.values())
    assert outcomes == ["invalid", "ok"]
    assert taken["n"] < 1000


def test_a_clock_that_claims_no_time_does_not_hang() -> None:
    """Launches said to take a femtosecond are not repeated for ever to fill a sample."""
    row = measured_row(lambda n: 1e-15 * _noise(n), budget_s=1e-3)
    assert row.calls_per_sample <= 100_000


@pytest.mark.parametrize("mark", ["throttled", "power_limited", "shared", "clock_locked", "ecc_errors"])
def test_what_holds_in_59_percent_of_the_readings_is_a_mark(mark: str) -> None:
    """A device that throttles 59 % of the time, for ever, is measured to the end and marked; so is another tenant."""
    row = measured_row(lambda n: 1e-3 * _noise(n), FakeTelemetry(lambda n: {mark} if (n * 59) % 100 < 59 else set()))
    assert row.status == "ok"
    assert mark in row.marks


def test_a_throttle_always_on_filters_nothing() -> None:
    """Samples under a throttle reason are kept: all 40 of them."""
    row = measured_row(lambda n: 1e-3 * _noise(n), FakeTelemetry(lambda n: {"throttled"}))
    assert row.samples_n == 40


def test_a_clock_that_rises_is_marked() -> None:
    """A clock from 1.2 to 1.98 GHz during the samples, and times that fall with it, are `clock_moved` and `drift`."""
    telemetry = FakeTelemetry(clock_hz=lambda n: min(1.98e9, 1.2e9 + 0.08e9 * n))
    row = measured_row(lambda n: 1e-3 * max(1.0, 1.65 - 0.013 * n) * _noise(n), telemetry)
    assert {"clock_moved", "drift"} <= set(row.marks)


def test_two_modes_are_marked() -> None:
    """Times that jump between 1 and 1.1 ms every few samples are reported as two modes, with none dropped."""
    row = measured_row(lambda n: (1e-3 if (n * 7) % 10 < 5 else 1.1e-3) * _noise(n))
    assert "two_modes" in row.marks
    assert row.samples_n == 40


# the clock of the device


def _event_clock(monkeypatch: pytest.MonkeyPatch) -> tuple[EventClock, FakeCuda]:
    device = FakeCuda()
    monkeypatch.setattr(clock_module, "torch", SimpleNamespace(cuda=device))
    monkeypatch.setattr(clock_module, "_spin_rate", lambda: device.cycles_per_s)
    return EventClock("graph"), device


def test_the_host_is_no_part_of_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 us of work that take 500 us to queue are timed as 10 us, whatever is queued before."""
    clock, device = _event_clock(monkeypatch)
    launch = Launch(lambda: device.run(10e-6, 500e-6), 1, host_s=500e-6)
    long = Launch(lambda: device.run(5e-3, 10e-6), 1, host_s=10e-6)
    assert time_launches(clock, [launch, long, launch]) == pytest.approx([10e-6, 5e-3, 10e-6], rel=1e-6)
    assert clock.starved == [False, False, False]


def test_a_spin_that_was_too_short_is_noticed_and_longer_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the host needs four times what it needed before, the launch is timed again behind a longer spin."""
    clock, device = _event_clock(monkeypatch)
    launch = Launch(lambda: device.run(10e-6, 400e-6), 1, host_s=100e-6)
    assert time_launches(clock, [launch]) == pytest.approx([10e-6], rel=1e-6)
    assert clock.starved == [False]
    assert len(device.spins) == 2


def test_a_host_that_is_always_too_slow_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waits for the device cannot be queued ahead: its time is kept, marked `host_bound`, and it ends."""
    clock, device = _event_clock(monkeypatch)
    waits = Launch(lambda: (device.synchronize(), device.run(10e-6, 1e-6))[0], 1, host_s=1e-6)
    quick = Launch(lambda: device.run(10e-6, 1e-6), 1, host_s=1e-6)
    watched = WatchedClock(clock, FakeTelemetry())  # type: ignore[arg-type]
    for _ in range(40):
        time_launches(watched, [waits, quick])
    assert watched.seen(waits)["marks"] == ["host_bound"]
    assert watched.seen(quick)["marks"] == []
    assert len(device.spins) == 80 + 20


def test_clocks_are_read_while_the_device_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Telemetry is read when everything is queued and nothing has been waited for."""
    clock, device = _event_clock(monkeypatch)
    busy = []
    telemetry = FakeTelemetry(marks=lambda n: (busy.append(device.device_s > device.host_s), set())[1])
    launch = Launch(lambda: device.run(1e-3, 1e-6), 1, host_s=1e-6)
    time_launches(WatchedClock(clock, telemetry), [launch, launch])  # type: ignore[arg-type]
    assert busy == [True]


# NVML


class FakeNvml:
    """The functions of NVML that are read, from a table; what it does not have, the driver does not support."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
    NVMLError = ValueError

    def __init__(self, uuids: tuple[str, ...] = ("GPU-1",), **answers: Any) -> None:
        self.uuids = uuids
        self.answers = answers

    def nvmlInit(self) -> None:  # noqa: N802  NVML calls it so
        """Succeeds."""

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid not in self.uuids:
            raise ValueError(f"not found: {uuid}")
        return uuid

    def __getattr__(self, name: str) -> Any:
        known = self.answers.get(name.removeprefix("nvmlDeviceGet"))
        if known is None:
            raise AttributeError(name)
        return lambda handle, *arguments: known(handle) if callable(known) else known


def _telemetry(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml) -> machine.Telemetry:
    monkeypatch.setattr(machine, "pynvml", nvml)
    monkeypatch.setattr(machine.torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1"))
    return machine.Telemetry(torch.device("cuda", 0))


@pytest.mark.parametrize(
    ("reasons", "marks"),
    [
        (0x0, set()),
        (0x1, set()),
        (0x2, {"clock_locked"}),
        (0x4, {"power_limited"}),
        (0x8, {"throttled"}),
        (0x10, {"clock_locked"}),
        (0x24, {"power_limited", "throttled"}),
        (0x40, {"throttled"}),
        (0x80, {"throttled"}),
    ],
)
def test_reasons_of_the_driver_are_marks(monkeypatch: pytest.MonkeyPatch, reasons: int, marks: set[str]) -> None:
    """Each of the driver's throttle bits is the mark that it means; an idle GPU has none."""
    assert _telemetry(monkeypatch, FakeNvml(CurrentClocksThrottleReasons=reasons)).marks() == marks


def test_another_tenant_is_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process on the GPU that is not this one is `shared`; this one alone is not."""
    own = SimpleNamespace(pid=machine.os.getpid())
    alone = _telemetry(monkeypatch, FakeNvml(ComputeRunningProcesses=[own]))
    assert alone.marks() == set()
    shared = _telemetry(monkeypatch, FakeNvml(ComputeRunningProcesses=[own, SimpleNamespace(pid=1)]))
    assert shared.marks() == {"shared"}


def test_only_new_memory_errors_are_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uncorrected errors of before the run do not count; one more does."""
    counts = iter([3, 3, 4])
    telemetry = _telemetry(monkeypatch, FakeNvml(TotalEccErrors=lambda handle: next(counts)))
    assert telemetry.marks() == set()
    assert telemetry.marks() == {"ecc_errors"}


def test_settings_of_an_administrator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power limit by default, a chosen clock, compute mode and ECC are read; what NVML does not have is empty."""
    nvml = FakeNvml(
        ApplicationsClock=1410,
        DefaultApplicationsClock=1980,
        PowerManagementDefaultLimit=700_000,
        ComputeMode=3,
        EccMode=[1, 1],
    )
    assert _telemetry(monkeypatch, nvml).settings() == {
        "power_default_w": 700.0,
        "clock_set_hz": 1.41e9,
        "compute_mode": "exclusive_process",
        "ecc": "on",
    }
    assert _telemetry(monkeypatch, FakeNvml()).settings() == {
        "power_default_w": 0.0,
        "clock_set_hz": 0.0,
        "compute_mode": "",
        "ecc": "",
    }


def test_a_slice_is_read_through_its_whole_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a MIG instance the handle is that of the GPU it is part of, which has the clocks."""
    nvml = FakeNvml(("MIG-1",), DeviceHandleFromMigDeviceHandle="GPU-whole", ClockInfo=lambda handle: 1980)
    telemetry = _telemetry(monkeypatch, nvml)
    assert telemetry._handle == "GPU-whole"
    assert telemetry.sm_clock_hz == 1.98e9
    assert machine._mig_profile("NVIDIA H200 MIG 1g.18gb") == "1g.18gb"


def test_without_nvml_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver does not know the GPU, readings are empty and nothing is marked."""
    telemetry = _telemetry(monkeypatch, FakeNvml(()))
    assert (telemetry.marks(), telemetry.sm_clock_hz, telemetry.power_w) == (set(), None, None)


def test_energy_is_that_of_the_load_alone_and_none_where_nothing_counts() -> None:
    """A board that uses 2 J a call says so for a call of 2 ms; one without a counter costs no time and says nothing."""
    calls = 0

    class Counting(FakeTelemetry):
        max_sm_clock_hz = None

        @property
        def joules(self) -> float:
            return 2.0 * calls

        def reading(self) -> Reading:
            return Reading(joules=self.joules)

    def seconds(n: int) -> float:
        return 2e-3 * _noise(n)

    bench, work = make_bench(FakeClock(seconds), Counting())
    bind = work.ready["first"].bind

    def counting(inputs: Any) -> Any:
        call = bind(inputs)

        def counted() -> Any:
            nonlocal calls
            calls += 1
            time.sleep(2e-3)
            return call()

        return counted

    work.ready["first"] = replace(work.ready["first"], bind=counting)
    measured = bench.sample(work, ["first"], "hot", None, None, energy=True)["measured"]["first"]
    assert measured["joules"] == pytest.approx(2.0)
    assert len(measured["samples_s"]) == 40
    silent = FakeTelemetry()
    silent.joules = None  # type: ignore[attr-defined]
    bench, work = make_bench(FakeClock(seconds), silent)
    assert "joules" not in bench.sample(work, ["first"], "hot", None, None, energy=True)["measured"]["first"]
