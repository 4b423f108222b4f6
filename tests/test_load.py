"""A load on a fake device: it has no pauses, however long somebody reads the board in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="a load runs in a process with torch")

from gemmgate.suite.measure import load as module  # noqa: E402  torch first
from gemmgate.suite.measure.load import Load  # noqa: E402

LAUNCH_S = 1e-3


class Device:
    """A stream in order, a host clock beside it, and the time that the stream had nothing to do."""

    def __init__(self) -> None:
        self.host_s = 0.0
        self.done_s = 0.0
        self.idle_s = 0.0

    def enqueue(self) -> None:
        self.idle_s += max(self.host_s - self.done_s, 0.0)
        self.done_s = max(self.done_s, self.host_s) + LAUNCH_S
        self.host_s += 1e-6

    def event(self) -> Any:
        event = SimpleNamespace(at=0.0)

        def record() -> None:
            event.at = self.done_s

        def synchronize() -> None:
            self.host_s = max(self.host_s, event.at)

        event.record, event.synchronize = record, synchronize
        return event


def loaded(device: Device, *, most_repeats: int | None = None, kind: str = "cuda") -> Load:
    """A load of launches of ten calls each on that device."""
    launch = SimpleNamespace(enqueue=device.enqueue, calls=10)
    timed: Any = SimpleNamespace(launch=launch, launch_s=LAUNCH_S, most_repeats=most_repeats)
    return Load(timed, torch.device(kind), now=lambda: device.host_s)


@pytest.mark.parametrize("reading_s", [1e-4, 8e-3, 30e-3])
def test_the_device_has_work_while_the_board_is_read(monkeypatch: pytest.MonkeyPatch, reading_s: float) -> None:
    """However long a reading takes, from the third on the device never waits, and all ended calls are counted."""
    device = Device()
    monkeypatch.setattr(module.torch.cuda, "Event", device.event)
    load = loaded(device)
    calls = 0
    for number in range(20):
        if number == 3:
            device.idle_s = 0.0
        calls += load()
        assert calls == pytest.approx(10 * min(device.host_s, device.done_s) / LAUNCH_S, abs=30 * 10)
        device.host_s += reading_s
    assert device.idle_s == 0.0
    assert calls > 0


def test_a_queue_of_single_calls_is_not_overfilled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches that are no graphs come in batches of at most what a sample of them may hold."""
    device = Device()
    monkeypatch.setattr(module.torch.cuda, "Event", device.event)
    load = loaded(device, most_repeats=3)
    assert (load(), load()) == (0, 3 * 10)


def test_on_a_cpu_a_batch_has_ended_when_the_call_returns() -> None:
    """Each call runs about 5 ms of launches and counts all of them."""
    load = loaded(Device(), kind="cpu")
    assert [load() for _ in range(3)] == [50, 50, 50]
