"""The cases that calibration chooses where none are named."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from gemmgate.suite import catalog
from gemmgate.suite.measure.limits import roof_s
from gemmgate.suite.records import Limits
from gemmgate.suite.spread import key, spread

H200 = Limits(bytes_per_s=4.2e12, flop_per_s={"bf16": 790e12, "fp16": 790e12, "fp32": 50e12, "fp32.tf32": 400e12})
CHOICES = catalog.find().select(catalog.Selection(families=("dense_splitk",)))


def least_s(choice: catalog.Choice) -> float | None:
    """By round figures of an H200."""
    return roof_s(H200, choice.case, "cold", choice.family.flop(choice.case), choice.family.bytes_moved(choice.case))


USABLE = {(key(choice), name) for choice in CHOICES for name in choice.implementations if name != "decompose_k_best"}
ITEMS = spread(CHOICES, least_s, USABLE, count=20, between_s=(5e-8, 3e-4))


def test_cases_are_many_and_different() -> None:
    """Twenty cases with their yardstick, none twice, in order of their least time, and some other implementations."""
    paths = [item.path for item in ITEMS]
    assert len(set(paths)) == len(paths) >= 25
    yardsticks = [item for item in ITEMS if item.implementation in item.family.yardsticks]
    assert len(yardsticks) == 20
    times = [least_s(catalog.Choice(item.family, item.case, ())) for item in yardsticks]
    assert times == sorted(times, key=float)


def test_the_spread_is_wide() -> None:
    """Least times reach over a factor of a hundred, with every format and a product that meets the power limit."""
    yardsticks = [item for item in ITEMS if item.implementation in item.family.yardsticks]
    times = [least_s(catalog.Choice(item.family, item.case, ())) or 0.0 for item in yardsticks]
    assert times[-1] / times[0] > 100
    assert min(Counter((item.case.dtype, item.case.precision) for item in yardsticks).values()) >= 2
    assert any(item.case.name.startswith("m4096-n4096-k4096") for item in yardsticks)


def test_other_implementations_are_of_every_kind() -> None:
    """Those beside the yardstick are from one place where implementations live each, searching ones left out."""
    others = {item.implementation for item in ITEMS if item.implementation not in item.family.yardsticks}
    assert "triton_split_k" in others
    assert "decompose_k_best" not in others
    (family,) = {item.family for item in ITEMS}
    where = {entry.name: entry.where for entry in family.implementations}
    assert len({where[name] for name in others}) == len(others) >= 5


def test_items_of_a_case_stand_together() -> None:
    """So that two implementations of a case share its inputs, no case comes up, goes away and comes up again."""
    cases = [item.case.name for item in ITEMS]
    assert sum(a != b for a, b in pairwise(cases)) == len(set(cases)) - 1


def test_nothing_is_chosen_where_nothing_is_usable() -> None:
    """With no usable implementation, or no time in reach, the spread is empty."""
    assert spread(CHOICES, least_s, set(), count=20, between_s=(5e-8, 3e-4)) == []
    assert spread(CHOICES, least_s, USABLE, count=20, between_s=(1.0, 2.0)) == []
