"""A device that does what a test says: its clock, its telemetry, and a family of one small product."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from gemmgate.suite.cases import Case, Entry, Family, Implementation, Prepared, Target
from gemmgate.suite.measure.bench import Bench
from gemmgate.suite.measure.work import Work
from gemmgate.suite.outcomes import row_of
from gemmgate.suite.records import Row

CASE = Case("toy", "n4-fp32", {"n": 4}, "fp32", "ieee")
FAMILY = Family(
    name="toy",
    runner="kernel",
    cases=(CASE,),
    implementations=(Entry("first", "x:y"), Entry("second", "x:y")),
    yardsticks=("first",),
    flop=lambda case: 128,
    bytes_moved=lambda case: 192,
    make_inputs="x:y",
    reference="x:y",
    error_bound=lambda case: 1e-6,
    activations=("a",),
)


class FakeClock:
    """Says what `seconds(implementation, n)` says of the n-th launch that it times; NaN and less than 0 included."""

    name = "perf_counter"

    def __init__(self, seconds: Callable[[int], float]) -> None:
        self._seconds = seconds
        self._count = itertools.count()

    def start(self, launches: Sequence[Any]) -> Callable[[], list[float]]:
        times = []
        for launch in launches:
            launch.enqueue()
            times.append(self._seconds(next(self._count)) * launch.calls)
        return lambda: times


class FakeTelemetry:
    """Readings as scripted: `marks(n)` and `clock_hz(n)` for the n-th."""

    def __init__(
        self,
        marks: Callable[[int], set[str]] = lambda n: set(),
        clock_hz: Callable[[int], float] = lambda n: 1.98e9,
    ) -> None:
        self._marks, self._clock_hz = marks, clock_hz
        self._readings = itertools.count()
        self.power_w = 300.0
        self._now = 0

    @property
    def sm_clock_hz(self) -> float:
        self._now = next(self._readings)
        return self._clock_hz(self._now)

    def marks(self) -> set[str]:
        return self._marks(self._now)

    def spent(self) -> None:
        """Nothing is known of other processes."""

    def busy_marks(self, begin: None, end: None) -> set[str]:
        return set()


def make_inputs(slot: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(slot)
    return {name: torch.randn(4, 4, generator=generator) for name in ("a", "b")}


class CachedClock(FakeClock):
    """A device with a cache of so many slots that forgets what was used longest ago: 2 us a call there, else 8 us."""

    def __init__(self, slots: int) -> None:
        super().__init__(lambda n: 0.0)
        self._size = slots
        self._held: dict[int, None] = {}
        self._spent_s = 0.0

    def touch(self, slot: int) -> None:
        """What a call does that reads the slot at this address."""
        self._spent_s += 2e-6 if slot in self._held else 8e-6
        self._held.pop(slot, None)
        self._held[slot] = None
        if len(self._held) > self._size:
            del self._held[next(iter(self._held))]

    def start(self, launches: Sequence[Any]) -> Callable[[], list[float]]:
        times = []
        for launch in launches:
            before = self._spent_s
            launch.enqueue()
            noise = 1 + 0.004 * ((next(self._count) * 0.6180339887) % 1 - 0.5)
            times.append((self._spent_s - before) * noise)
        return lambda: times


def _implementation(name: str, touch: Callable[[int], None]) -> Implementation:
    def prepare(case: Case, example: Any, target: Target, tile: Any) -> Prepared:
        def bind(inputs: Any) -> Callable[[], torch.Tensor]:
            def call() -> torch.Tensor:
                touch(inputs["b"].data_ptr())
                return inputs["a"] @ inputs["b"]

            return call

        return Prepared(bind)

    return Implementation(name, "own", True, lambda case, target: None, prepare)


def make_bench(
    clock: FakeClock,
    telemetry: FakeTelemetry | None = None,
    *,
    cache_bytes: int = 1024,
    names: Sequence[str] = ("first",),
) -> tuple[Bench, Work]:
    """A worker's bench on a CPU whose clock is the fake one, with a cold ring and everything prepared and checked."""
    fake: Any = telemetry or FakeTelemetry()
    bench = Bench(torch.device("cpu"), Target("cpu", l2_bytes=cache_bytes), fake, lambda name, step: None)
    bench.clocks = {"perf_counter": clock}
    work = bench.begin(FAMILY, CASE, make_inputs, lambda x: x["a"].double() @ x["b"].double(), cold=True)
    for name in names:
        bench.prepare(work, _implementation(name, getattr(clock, "touch", lambda slot: None)))
        bench.check(work, name)
    return bench, work


def measured_row(
    seconds: Callable[[int], float], telemetry: FakeTelemetry | None = None, *, budget_s: float | None = None
) -> Row:
    """The row that comes of sampling one implementation on such a device."""
    bench, work = make_bench(FakeClock(seconds), telemetry)
    outcome = bench.sample(work, ["first"], "hot", budget_s, None)["measured"]["first"]
    return row_of(FAMILY, CASE, "first", outcome, cache="hot", timer="perf_counter")


class FakeCuda:
    """Streams in order, and a host that takes time to queue: `torch.cuda` as far as an `EventClock` uses it."""

    def __init__(self, cycles_per_s: float = 1e9) -> None:
        self.host_s = 0.0
        self.device_s = 0.0
        self.cycles_per_s = cycles_per_s
        self.spins: list[float] = []

    def run(self, device_s: float, host_s: float) -> None:
        """Work that the host needs `host_s` to queue and the device `device_s` to do."""
        self.host_s += host_s
        self.device_s = max(self.device_s, self.host_s) + device_s

    def _sleep(self, cycles: int) -> None:
        self.spins.append(cycles / self.cycles_per_s)
        self.run(cycles / self.cycles_per_s, 1e-6)

    def synchronize(self) -> None:
        self.host_s = max(self.host_s, self.device_s)

    def Event(self, *, enable_timing: bool) -> Any:  # noqa: N802  torch calls it so
        event = SimpleNamespace(at=0.0)

        def record() -> None:
            self.host_s += 1e-6
            event.at = max(self.device_s, self.host_s)

        event.record = record
        event.query = lambda: event.at <= self.host_s
        event.synchronize = self.synchronize
        event.elapsed_time = lambda end: 1e3 * (end.at - event.at)
        return event
