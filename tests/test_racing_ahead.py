"""What is compiled before anybody waits for it: in which order, and what a tuning gains, in time that does not pass."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Hashable
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from gemmgate.suite.cases import Case, Footprint, Target, Tile
from gemmgate.suite.catalog import Item
from gemmgate.suite.tuning import tuner as module
from gemmgate.suite.tuning.candidates import Candidate, spelled
from gemmgate.suite.tuning.gpu import guess
from gemmgate.suite.tuning.pace import WIDTHS, rules_of
from gemmgate.suite.tuning.requests import Requests
from tests.fakes import FAMILY
from tests.virtual_tuning import Told, World, tuned

TARGET = Target("sm_90", "NVIDIA H200", sm_count=132, shared_bytes=232448)
SIZES, LENGTHS = (16, 32, 48), (4096, 8192, 12288, 16384, 20480, 24576, 28672, 32768)
ITEMS = [
    Item(FAMILY, Case("toy", f"n{size}-k{length}-fp32", {"n": size, "k": length}, "fp32", "ieee"), "second")
    for size in SIZES
    for length in LENGTHS
]
FIELDS = {"block": (16, 32, 64), "depth": (64, 128, 256, 512), "warps": (2, 4, 8), "stages": (2, 3, 4)}
SPLITS = (16, 32, 64, 128)
TILES = [dict(zip((*FIELDS, "splits"), values, strict=True)) for values in itertools.product(*FIELDS.values(), SPLITS)]
KEYS = [spelled(tile) for tile in TILES]


def drawn(*of: Any) -> random.Random:
    """Always the same for the same arguments."""
    return random.Random(repr(of))


def kernels(item: Item, tile: Tile) -> list[Hashable]:
    """A binary for all K and all numbers of ranges, as most are; the lengths below 12288 have their own."""
    short = min(item.case.dims["k"], 12288)
    return [(item.case.dims["n"], short, *(tile[name] for name in FIELDS))]


def compile_s(kernel: Hashable) -> float:
    """As recorded on an H200: 0.56 s in the mean, some several seconds."""
    return 0.41 * math.exp(drawn("compile", kernel).gauss(0, 0.8))


def model(item: Item, tile: Tile) -> float:
    """What the footprints say: each field has its effect, as large for all K of a size."""
    effects = sum(drawn(item.case.dims["n"], name, value).uniform(0, 0.3) for name, value in tile.items())
    return item.case.dims["k"] * math.exp(effects)


def world() -> World:
    """24 cases of 432 tiles, of which eight each have nearly the same binaries; the model errs by 10 %."""
    times = {
        (item, key): 1e-9 * model(item, tile) * math.exp(drawn(item.path, key).gauss(0, 0.1))
        for item in ITEMS
        for key, tile in zip(KEYS, TILES, strict=True)
    }
    footprints = {
        item: [asdict(Footprint(132, 4, 65536, round(1e3 * model(item, tile)))) for tile in TILES] for item in ITEMS
    }
    return World(
        tiles=lambda item: TILES,
        footprints=footprints.__getitem__,
        untuned=lambda item: TILES[200],
        kernels=kernels,
        compile_s=compile_s,
        time_s=lambda item, key: times.get((item, key), 1e-4),
    )


@pytest.fixture(scope="module")
def both() -> tuple[Told, Told]:
    """The same tuning by 14 compilers with nothing guessed, and as it is."""
    with pytest.MonkeyPatch.context() as patch:
        told = tuned(patch, world(), ITEMS, TARGET, compilers=14)
        patch.setattr(module, "guess", lambda *asked, **fields: None)
        return tuned(patch, world(), ITEMS, TARGET, compilers=14), told


def test_a_tuning_waits_less_where_it_guesses(both: tuple[Told, Told]) -> None:
    """Compilers that would rest make what may join: searches stand still for less than half as long."""
    without, told = both
    assert len(told.found) == len(without.found) == len(ITEMS)
    assert sum(told.waited_s[1:]) < 0.5 * sum(without.waited_s[1:])
    assert sum(told.taken_s) < sum(without.taken_s)


def test_few_compilers_guess_less() -> None:
    """Where each case has binaries of its own, 6 compilers that guess still end earlier than those that do not."""
    ends = []
    for is_guessing in (True, False):
        own = replace(world(), kernels=lambda item, tile: [(item.path, *(tile[name] for name in FIELDS))])
        with pytest.MonkeyPatch.context() as patch:
            if not is_guessing:
                patch.setattr(module, "guess", lambda *asked, **fields: None)
            tuned(patch, own, ITEMS[:12], TARGET, compilers=6)
        ends.append(own.now)
    assert ends[0] < ends[1]


def test_guesses_change_no_pick(both: tuple[Told, Told]) -> None:
    """What was compiled ahead decides when a search goes on, and nothing that it finds."""
    without, told = both
    assert without.found == told.found
    assert all(found.winner for found in told.found)


def test_guesses_hold_up_no_first_candidates() -> None:
    """What may join in case 3 comes after all that the widest search of case 4 begins with, and before case 5."""
    asked: list[float] = []
    pool: Any = SimpleNamespace(submit=lambda key, op, item, priority, **fields: asked.append(priority))
    guess(pool, ITEMS[0], [Candidate(tile, 0.0) for tile in TILES[: module.GUESSED]], 3)
    assert len(asked) == module.GUESSED and asked == sorted(asked)
    assert 4 + 1e-3 * (1 + rules_of(WIDTHS[1]).first) < asked[0] and asked[-1] < 5


def order(requests: Requests, *, urgent: bool = False) -> list[Hashable]:
    """The keys in the order in which they are taken."""
    taken = []
    while requests.has(urgent=urgent):
        taken.append(requests.take(urgent=urgent)[0])
    return taken


def test_the_most_urgent_comes_first_and_once() -> None:
    """Requests are taken by priority and then in their order; a key that was taken is passed over."""
    requests = Requests()
    assert [requests.add(key, priority, {}) for key, priority in (("b", 2.0), ("a", 1.0), ("c", 2.0))] == [True] * 3
    assert not requests.add("b", 3.0, {})
    assert order(requests) == ["a", "b", "c"]
    assert not requests.add("a", 0.0, {}) and order(requests) == []
    with pytest.raises(LookupError):
        requests.take(urgent=False)


def test_a_guess_that_somebody_waits_for_comes_earlier() -> None:
    """Asked for again with a smaller priority, a request is taken by that one, once."""
    requests = Requests()
    for key, priority in (("guess", 4.5), ("next", 4.0), ("guess", 3.0)):
        assert requests.add(key, priority, {})
    assert order(requests) == ["guess", "next"]


def test_some_compilers_take_only_what_the_case_under_way_needs() -> None:
    """At case 3 those take what is less than 4, and the others go on with the rest; before any case, all take all."""
    requests = Requests()
    requests.add("space", -1.0, {})
    assert requests.has(urgent=True)
    requests.add("late", 4.0, {})
    requests.add("now", 3.9, {})
    requests.advance(3)
    assert order(requests, urgent=True) == ["now"]
    assert order(requests) == ["late"]


def test_guesses_of_cases_gone_by_are_forgotten() -> None:
    """At case 4 what was asked for with less is gone; asked for again it is there, and what was taken stays so."""
    requests = Requests()
    for key, priority in (("begun", 1.0), ("guess", 3.5), ("kept", 4.0)):
        requests.add(key, priority, {})
    assert requests.take(urgent=False)[0] == "begun"
    requests.advance(4)
    assert not requests.add("begun", 4.0, {})
    assert requests.add("guess", 5.0, {})
    assert order(requests) == ["kept", "guess"]
