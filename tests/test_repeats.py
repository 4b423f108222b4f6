"""Results that are wrong now and then, or only later, are found: calls are repeated, before and after the timing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="a bench runs in a process with torch")

from gemmgate.suite.cases import Implementation, Prepared  # noqa: E402  torch first
from gemmgate.suite.measure import correctness  # noqa: E402
from gemmgate.suite.measure.refusal import Refused  # noqa: E402
from tests.fakes import FakeClock, make_bench  # noqa: E402


class Faulty:
    """A product of which the call of number n is multiplied by `factor(n)`; `calls` counts from 1."""

    def __init__(self, factor: Callable[[int], float], *, deterministic: bool = True) -> None:
        self.factor = factor
        self.calls = 0
        self.bench, self.work = make_bench(FakeClock(lambda n: 1e-3))
        prepared = Prepared(lambda inputs: lambda: self.product(inputs["a"], inputs["b"]))
        self.bench.prepare(
            self.work,
            Implementation("second", "own", deterministic, lambda case, target: None, lambda *given: prepared),
        )

    def product(self, a: Any, b: Any) -> Any:
        self.calls += 1
        return (a @ b) * self.factor(self.calls)

    def checked(self) -> dict[str, Any]:
        return self.bench.check(self.work, "second")

    def sampled(self) -> dict[str, Any]:
        measured: dict[str, Any] = self.bench.sample(self.work, ["second"], "hot", None, None)["measured"]["second"]
        return measured


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("period", [2, 3, 5, 7, 16, 24])
def test_what_is_wrong_now_and_then_is_found(period: int, deterministic: bool) -> None:
    """Twice the product in every n-th call, n up to 24, is wrong, and is not called a result that was kept."""
    faulty = Faulty(lambda n: 2.0 if n % period == 0 else 1.0, deterministic=deterministic)
    with pytest.raises(Refused, match="error 1 is above the bound") as refused:
        faulty.checked()
    assert (refused.value.status, refused.value.reason) == ("broken", "error_above_bound")


@pytest.mark.parametrize("first", [3, 10, 20])
def test_what_is_wrong_from_some_call_on_is_found(first: int) -> None:
    """Twice the product from the tenth call on is wrong before anything is timed."""
    with pytest.raises(Refused, match="error 1 is above the bound"):
        Faulty(lambda n: 2.0 if n >= first else 1.0).checked()


def test_what_gives_other_bits_once_is_not_repeatable() -> None:
    """One rounding more in the twentieth call is within the bound, and not what a deterministic one promises."""
    with pytest.raises(Refused) as refused:
        Faulty(lambda n: 1 + 2.0**-23 if n == 20 else 1.0).checked()
    assert refused.value.reason == "not_repeatable"
    assert Faulty(lambda n: 1 + 2.0**-23 if n == 20 else 1.0, deterministic=False).checked()["error"] < 1e-6


def test_slow_calls_are_repeated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a call takes a second, each set of inputs is called twice, and two changes of the first are tried."""
    clock = itertools.count(0.0)
    monkeypatch.setattr(correctness, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    faulty = Faulty(lambda n: 1.0)
    prepared = faulty.calls
    faulty.checked()
    assert faulty.calls - prepared == 2 + 2 + 2


@pytest.mark.parametrize("deterministic", [True, False])
def test_what_turns_wrong_after_the_samples_has_no_time(deterministic: bool) -> None:
    """Wrong in the fifteenth call after the samples, it is broken, and the samples are gone."""
    late: list[int] = []
    faulty = Faulty(lambda n: 2.0 if late and n == late[0] + 15 else 1.0, deterministic=deterministic)
    faulty.checked()
    faulty.bench.at = lambda name, step: late.append(faulty.calls) if step == "check after the samples" else None
    measured = faulty.sampled()
    assert (measured["status"], measured["reason"]) == ("broken", "error_above_bound")
    assert measured["detail"].startswith("after it was timed: error 1 is above the bound")
    assert "samples_s" not in measured


def keeping(begin: int) -> Faulty:
    """Right, and from so many calls on with each result kept by address."""
    kept: dict[int, Any] = {}
    faulty = Faulty(lambda n: 1.0)
    product = faulty.product
    faulty.product = lambda a, b: (  # type: ignore[method-assign]
        product(a, b) if faulty.calls < begin else kept.setdefault(a.data_ptr(), product(a, b)).clone()
    )
    return faulty


def test_who_begins_to_keep_results_while_timed_is_found() -> None:
    """A result kept by address from the sixtieth call on, which no check before the samples makes, is found after."""
    faulty = keeping(60)
    faulty.checked()
    assert faulty.calls < 60
    assert faulty.sampled()["reason"] == "output_remembered"


def test_who_keeps_the_last_of_other_values_is_found() -> None:
    """Kept by address from the sixth call on, a result of changed inputs comes again with the first inputs."""
    faulty = keeping(5)
    with pytest.raises(Refused, match="the inputs had their values again") as refused:
        faulty.checked()
    assert refused.value.reason == "output_remembered"


def test_what_is_right_keeps_its_samples_and_scratch() -> None:
    """The check after the samples leaves samples, workspaces and state as the timing had them."""
    faulty = Faulty(lambda n: 1.0)
    prepared = faulty.work.ready["second"]
    bind = prepared.bind

    def with_scratch(inputs: Any) -> Any:
        prepared.workspaces.append(torch.zeros(2))
        prepared.state.append(torch.zeros(3))
        return bind(inputs)

    object.__setattr__(prepared, "bind", with_scratch)
    faulty.checked()
    measured = faulty.sampled()
    assert len(measured["samples_s"]) == 40
    assert measured["workspace_bytes"] == 2 * 4 + 3 * 4
    assert (len(prepared.workspaces), len(prepared.state)) == (1, 1)
