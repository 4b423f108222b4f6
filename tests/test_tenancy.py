"""Other processes on the CPU: whether they took cores that are measured, and what a row then says."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="a bench runs in a process with torch")

from gemmgate.suite.measure import machine, tenancy  # noqa: E402  torch first
from gemmgate.suite.measure.tenancy import Spent, is_busy  # noqa: E402
from tests.fakes import measured_row  # noqa: E402


@pytest.mark.parametrize(
    ("others", "threads", "cores", "busy"),
    [
        (0.0, 2, 2, False),
        (0.15, 2, 2, False),  # below a tenth of two threads, 0.2
        (0.25, 2, 2, True),
        (1.0, 2, 2, True),
        (2.05, 2, 4, False),  # two cores are free, and 0.2 beside them
        (2.25, 2, 4, True),
        (0.05, 1, 1, False),
        (0.15, 1, 1, True),
        (0.3, 4, 2, False),  # more threads than cores: none is free, and 0.4 are allowed
        (0.5, 4, 2, True),
    ],
)
def test_others_count_where_they_take_what_we_use(others: float, threads: int, cores: int, busy: bool) -> None:
    """Over ten seconds in which our threads ran all the time, so many cores of others are busy or not."""
    begin, own_s = Spent(5.0, 100.0, 7.0), 10.0 * min(threads, cores)
    end = Spent(15.0, 100.0 + own_s + 10.0 * others, 7.0 + own_s)
    assert is_busy(begin, end, threads, cores) is busy


def test_nothing_is_said_of_a_moment() -> None:
    """Over less than a tenth of a second the system's hundredths tell nothing."""
    assert not is_busy(Spent(0.0, 0.0, 0.0), Spent(0.09, 0.18, 0.0), 2, 2)
    assert is_busy(Spent(0.0, 0.0, 0.0), Spent(0.11, 0.22, 0.0), 2, 2)


def test_idle_cores_and_guests_that_count_twice_are_not_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of user 7, nice 1, system 2, idle 90, iowait 4, steal 3 and guest 5 seconds 13 were spent, 2.5 of them here."""
    times = namedtuple("times", "user nice system idle iowait steal guest guest_nice")
    process = SimpleNamespace(cpu_times=lambda: SimpleNamespace(user=2.0, system=0.5))
    fake = SimpleNamespace(
        cpu_times=lambda: times(7.0, 1.0, 2.0, 90.0, 4.0, 3.0, 5.0, 0.0),
        Process=lambda: process,
    )
    monkeypatch.setattr(tenancy, "psutil", fake)
    found = Spent.read()
    assert (found.all_s, found.own_s) == (13.0, 2.5)


@pytest.mark.parametrize(("others", "marks"), [(0.0, ()), (1.0, ("busy",))])
def test_a_row_timed_beside_others_is_marked(
    monkeypatch: pytest.MonkeyPatch, others: float, marks: tuple[str, ...]
) -> None:
    """One core of others on a CPU whose cores we all use marks the row `busy`; our own work does not."""
    readings = iter(range(1000))

    class Scripted:
        @staticmethod
        def read() -> Spent:
            now = float(next(readings))
            return Spent(now, now * (1 + others), now)

    monkeypatch.setattr(machine, "Spent", Scripted)
    monkeypatch.setattr(machine.psutil, "cpu_count", lambda logical: 1)
    monkeypatch.setattr(machine.torch, "get_num_threads", lambda: 1)
    telemetry = machine.Telemetry(torch.device("cpu"))
    row = measured_row(lambda n: 1e-3 * (1 + 0.003 * ((n * 0.6180339887) % 1)), telemetry)  # type: ignore[arg-type]
    assert (row.status, row.marks) == ("ok", marks)
