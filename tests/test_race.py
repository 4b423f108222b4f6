"""The worker's side of a search on a CPU with a fake clock: parts of the ring, and when the load settles."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="rings hold tensors")

from gemmgate.suite.measure import race as module  # noqa: E402  torch first
from gemmgate.suite.measure.race import WINDOW_CALLS, Race  # noqa: E402
from tests.fakes import FakeClock, make_bench  # noqa: E402


@pytest.fixture
def race(monkeypatch: pytest.MonkeyPatch) -> tuple[Race, list[float], list[str]]:
    """A race of two tiles over 600 slots, the time that a test sets, and a note of each look at the launches."""
    now, looks = [0.0], []
    bench, work = make_bench(FakeClock(lambda n: 1e-3), cache_bytes=200 * 128, names=("first", "second"))
    bench.launching = SimpleNamespace(steady=lambda: looks.append("steady"))  # type: ignore[assignment]
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    made = Race(bench, work, lambda name: work.implementations[name])
    assert len(work.ring.slots) == 600
    for name in ("first", "second"):
        made.mount(work.implementations[name], {name: {"tile": name}})
    return made, now, looks


def test_rounds_that_follow_at_once_do_not_settle_again(race: tuple[Race, list[float], list[str]]) -> None:
    """The load settles before the first rounds and after a pause of 0.06 s, but not 0.04 s after other rounds."""
    made, now, looks = race
    for pause_s, settled in ((0.0, 1), (0.04, 1), (0.06, 2)):
        now[0] += pause_s
        assert all(len(values) == 4 for values in made.time(["first", "second"], 4, fresh=False).values())
        assert len(looks) == settled


def test_finals_bind_a_long_part_of_the_ring(race: tuple[Race, list[float], list[str]]) -> None:
    """A race binds as many slots as make a sample, the finals 256 of 600: each in turn, the next ones after them."""
    made, _, _ = race
    runners: dict[str, Any] = made._runners
    assert {len(runner.kept[0]) for runner in runners.values()} == {WINDOW_CALLS[0]}
    made.time(["first", "second"], 2, fresh=True)
    assert {len(runner.kept[0]) for runner in runners.values()} == {WINDOW_CALLS[1]}
    assert made._begin == 8 + 8 + 256 + 256
