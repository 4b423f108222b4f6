"""Which cases are compiled where nobody asks for any."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgate.suite import catalog
from gemmgate.suite.cases import Case, Entry, Family
from gemmgate.suite.catalog import Catalog, Selection
from gemmgate.suite.compiling.representative import Tuned, chosen, largest_of, tuned_extremes, without_variants


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


def test_who_takes_no_large_case_comes_with_its_own() -> None:
    """What takes neither of the two cases comes with the largest quick case it takes; what takes no quick one, too."""
    few = Entry("few", "few:IMPLEMENTATION", lambda case: case.dims["k"] < 10)
    slow = Entry("slow", "slow:IMPLEMENTATION", lambda case: case.name == "d")
    family = replace(FAMILY, implementations=(*FAMILY.implementations, few, slow))
    found = chosen(Catalog({"f": family}, {"f": "f"}), Selection())
    assert {choice.case.name: choice.implementations for choice in found} == {
        "b": ("one",),
        "c": ("one", "few"),
        "d": ("slow",),
    }


def test_variants_are_shown_in_one_case() -> None:
    """Of two that one module prepares, the first is kept in both cases and the second in the one with most work."""
    entries = (Entry("one", "m:ALL"), Entry("two", "m:ALL"), Entry("other", "n:IT"))
    choices = chosen(Catalog({"f": replace(FAMILY, implementations=entries)}, {"f": "f"}), Selection())
    places = [("f", name, choice.case.name) for choice in choices for name in choice.implementations]
    modules = {("f", "one"): "m", ("f", "two"): "m", ("f", "other"): "n"}
    assert set(without_variants(places, modules, largest_of(choices))) == {
        ("f", "one", "b"),
        ("f", "one", "c"),
        ("f", "two", "b"),
        ("f", "other", "b"),
        ("f", "other", "c"),
    }


def test_the_ends_of_a_table_stand_for_it() -> None:
    """The smallest and the largest tile by their blocks and the one with most outputs a warp; none twice."""
    tiles = {
        "a": {"block_m": 16, "block_n": 16, "block_k": 64, "num_warps": 4},
        "b": {"block_m": 64, "block_n": 64, "block_k": 512, "num_warps": 8},  # 512 outputs a warp
        "c": {"block_m": 64, "block_n": 64, "block_k": 64, "num_warps": 4},  # 1024
        "d": {"block_m": 16, "block_n": 32, "block_k": 128, "num_warps": 4, "slices": 4},  # 512
    }
    entries = [Tuned(case(name, 8, "ieee"), tile) for name, tile in tiles.items()]
    assert [one.case.name for one in tuned_extremes(entries)] == ["a", "b", "c"]
    assert [one.case.name for one in tuned_extremes(entries[:1])] == ["a"]
    assert tuned_extremes([]) == []


def test_every_implementation_is_represented() -> None:
    """No family of the catalog and nothing that some case of it offers without request is left out."""
    known = catalog.find()
    found = {(choice.family.name, name) for choice in chosen(known, Selection()) for name in choice.implementations}
    everything = known.select(Selection())
    assert found == {(choice.family.name, name) for choice in everything for name in choice.implementations}
    assert {family for family, _ in found} == set(known.families)
