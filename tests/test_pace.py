"""All searches begin within the seconds given, narrower where they have to be, by a clock that a test drives."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from gemmgate.suite.cases import Case, Target
from gemmgate.suite.catalog import Item
from gemmgate.suite.records import Limits
from gemmgate.suite.tuning import tuner as module
from gemmgate.suite.tuning.pace import WIDTHS, Pace, rules_of
from gemmgate.suite.tuning.racing import Rules, Search
from gemmgate.suite.tuning.tuner import Tuner
from tests.fakes import FAMILY

TILES = [{"block": block, "warps": warps} for block in (16, 32, 64) for warps in (2, 4, 8)]


@dataclass
class World:
    """Searches that take `fixed_s` and `width_s` for each width, 0.6 to 1.6 times; the first takes 9 s more."""

    fixed_s: float
    width_s: float
    now: float = 0.0
    widths: list[float] = field(default_factory=list)
    random: random.Random = field(default_factory=lambda: random.Random(1))

    def search(self, tuner: Tuner, item: Item, index: int, begin: float, share_s: float) -> tuple[Search, list[Any]]:
        width = tuner._spaces[item].width
        self.now += (self.fixed_s + width * self.width_s) * self.random.uniform(0.6, 1.6) + (0.0 if index else 9.0)
        self.widths.append(width)
        return Search(), []


class FakePool:
    """Every case has the same tiles, and compilers that take no time."""

    compile_s = waited_s = 0.0
    count = 1

    def submit(self, *request: Any, **fields: Any) -> None: ...

    def advance(self, index: int) -> None: ...

    def said(self, key: Any) -> None: ...

    def wait(self, keys: Any) -> dict[Any, dict[str, Any]]:
        return {key: {"tiles": TILES, "footprints": None, "refusal": None} for key in keys}


def tuned(monkeypatch: pytest.MonkeyPatch, world: World, count: int, seconds: float | None) -> Tuner:
    """A tuning of so many cases, 20 s of whose time are gone before the first."""
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: world.now))
    monkeypatch.setattr(Tuner, "_search", lambda *arguments: world.search(*arguments))
    cases = [Case("toy", f"n{n}-fp32", {"n": n}, "fp32", "ieee") for n in range(1, count + 1)]
    worker: Any = SimpleNamespace(
        target=Target("cpu"), steps_s={}, flags={"ieee": {}}, machine=SimpleNamespace(board="one")
    )
    told: Any = SimpleNamespace(searched=lambda *arguments: None)
    pool: Any = FakePool()
    items = [Item(FAMILY, case, "second") for case in cases]
    made = Tuner(
        items, worker, pool, Limits(), lambda: worker, lambda rows: None, told, begun=world.now, seconds=seconds
    )
    world.now += 20.0
    made.run()
    return made


@pytest.mark.parametrize(("fixed_s", "width_s"), [(1.1, 0.7), (1.0, 0.9), (0.7, 1.6), (0.3, 0.3)])
def test_all_searches_begin_in_time(monkeypatch: pytest.MonkeyPatch, fixed_s: float, width_s: float) -> None:
    """128 searches of 235 s are all made, whatever they really take, and end within 3 s of it or are the widest."""
    world = World(fixed_s, width_s)
    made = tuned(monkeypatch, world, 128, 235.0)
    assert made.skipped == [] and len(world.widths) == 128
    assert world.now < 238
    assert world.now > 220 or world.widths[-1] == WIDTHS[1]


def test_what_does_not_fit_narrow_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not even the narrowest fit, as many as do are made, the narrowest, and the others are skipped."""
    world = World(1.2, 0.8)
    made = tuned(monkeypatch, world, 128, 100.0)
    assert 30 < len(world.widths) < 90 and len(made.skipped) == 128 - len(world.widths)
    assert set(world.widths[10:]) == {WIDTHS[0]} and 95 < world.now < 103


def test_without_a_limit_searches_are_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """No seconds, no share: each search is of the usual width, however long they take."""
    world = World(5.0, 5.0)
    assert tuned(monkeypatch, world, 5, None).skipped == []
    assert world.widths == [1.0] * 5


def test_the_first_search_does_not_count() -> None:
    """A first search that takes 11 s changes nothing; later ones of twice what was foreseen double what is expected."""
    pace = Pace()
    before = pace.expected_s(0.5)
    pace.took(0.5, 11.0)
    assert pace.expected_s(0.5) == before
    pace.took(0.5, 2 * before)
    assert pace.expected_s(0.5) == pytest.approx(2 * before)


@pytest.mark.parametrize(
    ("width", "first", "joins", "joining"), [(1.0, 18, 2, 12), (0.5, 9, 2, 8), (0.4, 7, 2, 7), (3.0, 54, 2, 36)]
)
def test_widths_by_hand(width: float, first: int, joins: int, joining: int) -> None:
    """The candidates of the usual search, 18 and twice 12, grow in proportion; those that join shrink by less."""
    found = rules_of(width)
    assert (found.first, found.joins, found.joining) == (first, joins, joining)
    assert found.finalists == Rules().finalists


def test_a_tile_that_runs_without_a_search_and_does_not_compile_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search whose incumbent could not be compiled has none, and the tuning keeps the compiler's reason."""
    made = tuned(monkeypatch, World(1.0, 1.0), 1, None)
    item = made.items[0]
    failed = {"failed": {"status": "error", "reason": "TypeError", "detail": "a function is no constant"}, "tile": None}
    monkeypatch.setattr(made.pool, "wait", lambda keys: dict.fromkeys(keys, failed), raising=False)
    assert made._incumbent(item) is None
    assert made.without_incumbent == {item.path: "a function is no constant"}
