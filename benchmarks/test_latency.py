"""pytest-benchmark over the same cases: `pytest benchmarks --benchmark-json=latency.json`. See docs/history.md.

pytest-benchmark times calls from Python, which says little about a kernel. So the samples are taken by gemmgate, on
the device, and replayed here through a timer that moves by one sample a call.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import CACHES, CHOICES, Rows, measure

POINTS = [
    pytest.param(choice.family.name, choice.case.name, name, cache, id=f"{choice.case.name}-{name}-{cache}")
    for choice in CHOICES
    for name in choice.implementations
    for cache in CACHES
]
FACTS = ("status", "dtype", "precision", "tile", "algorithm", "kernels", "error", "timer", "cache_proof", "marks")


class DeviceClock:
    """Reads the time that the replayed samples have taken."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def __repr__(self) -> str:
        return "time of the replayed samples"


CLOCK = DeviceClock()


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Everything that is selected, measured when the first test asks."""
    return measure()


@pytest.mark.benchmark(timer=CLOCK)
@pytest.mark.parametrize(("family", "case", "implementation", "cache"), POINTS)
def test_latency(benchmark: Any, rows: Rows, family: str, case: str, implementation: str, cache: str) -> None:
    """The implementation is right, and its samples are those that the device took."""
    row = rows.get((family, case, implementation, cache))
    if row is None or row.status == "unsupported":
        pytest.skip(row.detail if row else f"not measured {cache}: this device or the time did not allow it")
    assert row.status == "ok", f"{row.status} ({row.reason}) {row.detail}"
    samples = iter(row.samples_s)

    def replay() -> None:
        CLOCK.now_s += next(samples)

    benchmark.group = f"{family}/{case} {cache}"
    benchmark.extra_info.update({name: getattr(row, name) for name in FACTS}, implementation=implementation)
    benchmark.pedantic(replay, rounds=row.samples_n)
