"""Between two cases: what a worker lets go of, and what it keeps."""

from __future__ import annotations

import gc
import io
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="workers hold tensors")

from gemmgate.suite.measure import rotation  # noqa: E402  torch first
from gemmgate.suite.measure.worker import Worker  # noqa: E402

GPU = torch.device("cuda", 0)
GIB = 1 << 30


class Case:
    """Held by itself, as graphs and closures are, so that only the collector frees it."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU of 100 GiB that nobody else uses; `held` are GiB of torch's allocator, of which `used` are in use."""
    made = SimpleNamespace(held=0, used=0, emptied=0)

    def empty() -> None:
        made.held, made.emptied = made.used, made.emptied + 1

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: ((100 - made.held) * GIB, 100 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: made.held * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: made.used * GIB)
    monkeypatch.setattr(torch.cuda, "empty_cache", empty)
    return made


def worker(frozen: list[int], monkeypatch: pytest.MonkeyPatch) -> Any:
    """One with a GPU and a case under way; each freeze is noted."""
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    made: Any = Worker(io.StringIO())
    made._device, made._works, made._visits = GPU, {}, {}
    begin(made)
    return made


def begin(made: Any) -> weakref.ref[Case]:
    """The next case."""
    case = Case()
    made._work, made._racing = case, None
    made._works["case"] = case
    return weakref.ref(case)


def test_memory_is_kept_while_half_of_it_is_free(board: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 50 of 100 GiB free what the allocator holds is kept for the next case, with 49 it is given back."""
    made = worker([], monkeypatch)
    board.held = 50
    made._drop({"reuse": True})
    assert board.emptied == 0
    board.held = 51
    made._drop({"reuse": True})
    assert board.emptied == 1


def test_memory_is_given_back_unless_it_is_to_be_used_again(
    board: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who does not say that the next case may have the same memory finds none of it held."""
    made = worker([], monkeypatch)
    board.held = 1
    made._drop({})
    assert (board.emptied, board.held) == (1, 0)


def test_a_case_is_gone_and_what_stays_is_looked_through_once(
    board: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dropped case is freed although it holds itself; after the first one, and only then, the collector is spared."""
    frozen: list[int] = []
    made = worker(frozen, monkeypatch)
    for _ in range(3):
        held = begin(made)
        made._drop({"reuse": True})
        assert held() is None
        assert len(frozen) == 1


def test_before_the_first_case_nothing_is_spared(board: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drop of nothing does not count as the first: what the first case imports is not there yet."""
    frozen: list[int] = []
    made = worker(frozen, monkeypatch)
    made._work = None
    made._works.clear()
    made._drop({"reuse": True})
    assert frozen == []


def test_what_the_allocator_holds_for_later_can_be_had(board: SimpleNamespace) -> None:
    """Of 100 GiB with 40 held and 10 in use, 90 can be had for inputs, and a quarter of them for a ring."""
    board.held, board.used = 40, 10
    assert rotation.no_room(90 * GIB, GPU) == ""
    assert rotation.no_room(91 * GIB, GPU) == "91.0 GiB are needed, and 90.0 GiB of memory are free"
    assert rotation.extra_slots(lambda slot: {}, 0, 9, 5 * GIB // 2, GPU) is not None
    assert rotation.extra_slots(lambda slot: {}, 0, 10, 5 * GIB // 2, GPU) is None
    assert rotation.free_share(GPU) == pytest.approx(0.6)
