"""`do_bench` and `measure` for programs of their own: the interface of Triton's, and ratios with an interval."""

from __future__ import annotations

import inspect
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="what is timed is torch's")

from gemmgate.suite.measure import do_bench, drop_in, measure  # noqa: E402  torch first

ROOT = Path(__file__).parents[1]
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has clocks of its own, see test_measure_gpu")


def test_it_takes_what_triton_takes() -> None:
    """The parameters of `triton.testing.do_bench`, in order and with their defaults, are ours."""
    testing = pytest.importorskip("triton.testing", reason="Triton has wheels for Linux alone")
    theirs, ours = (inspect.signature(function).parameters for function in (testing.do_bench, do_bench))
    assert [(p.name, p.default, p.kind) for p in ours.values()] == [
        (p.name, p.default, p.kind) for p in theirs.values()
    ]


def test_asking_for_it_alone_imports_torch() -> None:
    """Importing the package does not import torch; taking `do_bench` out of it does."""
    code = (
        "import sys, gemmgate.suite.measure as m\n"
        "print('torch' in sys.modules)\n"
        "from gemmgate.suite.measure import do_bench\n"
        "print('torch' in sys.modules, callable(do_bench))"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "True", "True"]


class Ticking:
    """A `perf_counter` that only moves when a call says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1e-9
        return self.now


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Ticking:
    """Time stands still but for what the timed functions take."""
    counter = Ticking()
    monkeypatch.setattr(time, "perf_counter", counter)
    monkeypatch.setattr(drop_in.torch.cuda, "is_available", lambda: False)
    return counter


def _taking(counter: Ticking, seconds: float):
    def call(*arguments: object) -> None:
        counter.now += seconds

    return call


@pytest.mark.parametrize("mode", ["min", "max", "mean", "median"])
def test_milliseconds_of_a_call(ticking: Ticking, mode: str) -> None:
    """A call of 2 ms takes 2, in milliseconds, however it is summarised."""
    assert do_bench(_taking(ticking, 2e-3), return_mode=mode) == pytest.approx(2.0, rel=1e-3)


def test_all_times_and_quantiles_are_those_of_triton(ticking: Ticking) -> None:
    """`all` is a list of times, one quantile a number, several a list: as Triton's own summary makes of the same."""
    testing = pytest.importorskip("triton.testing", reason="Triton has wheels for Linux alone")
    durations = iter([1e-3 * (1 + i % 7) for i in range(10_000)])

    def call() -> None:
        ticking.now += next(durations)

    times = do_bench(call, warmup=0, rep=100, return_mode="all")
    assert all(isinstance(ms, float) for ms in times)
    assert len(times) >= 5
    for quantiles in (None, [0.5], [0.5, 0.2, 0.8], [0.0, 1.0]):
        expected = testing._summarize_statistics(times, quantiles, "mean")
        assert drop_in._summarised(times, quantiles, "mean") == pytest.approx(expected)


def test_rep_is_how_long_it_measures(ticking: Ticking) -> None:
    """100 ms hold about 50 calls of 2 ms, and a call longer than that is still made five times."""
    assert len(do_bench(_taking(ticking, 2e-3), warmup=0, rep=100, return_mode="all")) == pytest.approx(50, abs=1)
    assert len(do_bench(_taking(ticking, 1.0), warmup=0, rep=100, return_mode="all")) == 5


def test_gradients_are_dropped_before_each_call(ticking: Ticking) -> None:
    """With `grad_to_none` no call finds a gradient of an earlier one."""
    weight = SimpleNamespace(grad=None)
    found = []

    def call() -> None:
        found.append(weight.grad)
        weight.grad = 1.0
        ticking.now += 1e-2

    do_bench(call, warmup=0, rep=50, grad_to_none=[weight])  # type: ignore[list-item]
    assert set(found) == {None}


@pytest.mark.parametrize(("arguments", "said"), [({"return_mode": "fastest"}, "none of"), ({"quantiles": [2]}, "2")])
def test_what_it_refuses(ticking: Ticking, arguments: dict[str, object], said: str) -> None:
    """Another mode and a quantile above 1 are errors that say so."""
    with pytest.raises(ValueError, match=said):
        do_bench(_taking(ticking, 1e-3), **arguments)  # type: ignore[arg-type]


def test_the_ratio_of_a_pair(ticking: Ticking) -> None:
    """3 ms over 2 ms is 1.5, and each has its own median."""
    found = measure(_taking(ticking, 3e-3), _taking(ticking, 2e-3), (1, 2))
    assert found.ratio.estimate == pytest.approx(1.5, rel=1e-3)
    assert (found.ratio.low, found.ratio.high) == pytest.approx((1.5, 1.5), rel=1e-3)
    assert (found.first.median_s, found.second.median_s) == pytest.approx((3e-3, 2e-3), rel=1e-3)
    assert (found.timer, found.cache) == ("perf_counter", "hot")


def test_fresh_arguments_go_round(ticking: Ticking, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function from a number to arguments makes as many sets as the cache takes, and both functions see all."""
    monkeypatch.setattr(drop_in, "last_level_cache_bytes", lambda: 4096)
    seen: dict[str, set[float]] = {"a": set(), "b": set()}

    def using(name: str):
        def call(x: torch.Tensor) -> None:
            seen[name].add(float(x[0]))
            ticking.now += 1e-3

        return call

    found = measure(using("a"), using("b"), lambda slot: (torch.full((256,), float(slot)),))
    assert found.cache == "cold"
    assert seen["a"] == seen["b"] == set(map(float, range(12)))  # 12 sets of 1 KiB are three times 4 KiB


@on_cpu
def test_on_a_real_clock() -> None:
    """On the clock of this machine times are positive and a ratio lies within its interval."""
    matrix = torch.randn(64, 64)
    ratio = measure(lambda: matrix @ matrix, lambda: matrix + matrix, seconds=0.1).ratio
    assert 0 < ratio.low <= ratio.estimate <= ratio.high
    assert min(do_bench(lambda: matrix @ matrix, warmup=1, rep=5, return_mode="all")) > 0
