"""Which cases are compiled where nobody asks for any."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgate.suite import catalog
from gemmgate.suite.cases import Case, Entry, Family
from gemmgate.suite.catalog import Catalog, Selection
from gemmgate.suite.compiling.representative import chosen


def case(name: str, k: int, precision: str, *tags: str) -> Case:
    return Case("f", name, {"k": k}, "fp32", precision, tags=tags)


CASES = (
    case("a", 8, "ieee", "quick"),
    case("b", 16, "ieee", "quick"),
    case("c", 4, "tf32", "quick"),
    case("d", 99, "tf32", "full"),
)
FAMILY = Family(
    name="f",
    runner="kernel",
    cases=CASES,
    implementations=(Entry("one", "one:IMPLEMENTATION"),),
    yardsticks=(),
    flop=lambda case: case.dims["k"],
    bytes_moved=lambda case: 1,
    make_inputs="inputs:make",
    reference="inputs:reference",
    error_bound=lambda case: 1.0,
)


def names(family: Family, **asked: tuple[str, ...]) -> list[str]:
    return [choice.case.name for choice in chosen(Catalog({"f": family}, {"f": "f"}), Selection(**asked))]


def test_the_largest_quick_case_in_each_precision() -> None:
    """Of the quick ones 16 and 4 operations are most in their precision; the larger one is not quick."""
    assert names(FAMILY) == ["b", "c"]


def test_a_family_without_quick_cases_is_represented_too() -> None:
    """Where no case is quick, all count."""
    assert names(replace(FAMILY, cases=tuple(replace(case, tags=("full",)) for case in CASES))) == ["b", "d"]


@pytest.mark.parametrize(
    ("asked", "expected"), [({"cases": ("*",)}, ["a", "b", "c", "d"]), ({"tags": ("quick",)}, ["a", "b", "c"])]
)
def test_what_is_asked_for_is_taken(asked: dict[str, tuple[str, ...]], expected: list[str]) -> None:
    """Cases and tags that are asked for are all compiled."""
    assert names(FAMILY, **asked) == expected


def test_every_family_is_represented() -> None:
    """No family of the catalog is left out, and each has few cases."""
    known = catalog.find()
    found = [choice.family.name for choice in chosen(known, Selection())]
    assert set(found) == set(known.families)
    assert max(found.count(name) for name in known.families) <= 4
