"""What stands for a family where nobody asks for cases: some of its cases, and some of its tuned tiles. Pure.

The catalog knows cases without torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gemmgate.suite.cases import Case, Tile
from gemmgate.suite.catalog import Catalog, Choice, Selection
from gemmgate.suite.family_functions import counted

TUNED = "tuned"
CHOSEN = ("rule", TUNED)
"""The tiles compiled where nobody asks for others: what a kernel chooses without a table, and what tables hold."""


def is_representative(selection: Selection) -> bool:
    """Whether nobody asks for cases."""
    return not (selection.cases or selection.tags)


def chosen(known: Catalog, selection: Selection) -> list[Choice]:
    """What is selected; where neither cases nor tags are, of each family the largest case in each precision.

    Largest by the number of its operations, among those tagged `quick`, or all where a family tags none so. Large
    cases have the large tiles, in which registers and shared memory run out and tensor cores are used fully. An
    implementation that takes none of those cases comes with the largest that it does take.
    """
    choices = known.select(selection)
    if not is_representative(selection):
        return choices
    tagged = {choice.family.name for choice in choices if "quick" in choice.case.tags}
    by_size = sorted(choices, key=_size, reverse=True)  # of equal ones the first
    quick = [one for one in by_size if one.family.name not in tagged or "quick" in one.case.tags]
    kept: dict[tuple[str, str], set[str]] = {}
    precisions: set[tuple[str, str]] = set()
    shown: set[tuple[str, str]] = set()
    for choice in quick:
        family, case = choice.family.name, choice.case
        if (family, case.precision) not in precisions:
            precisions.add((family, case.precision))
            kept[family, case.name] = set(choice.implementations)
            shown |= {(family, name) for name in choice.implementations}
    for choice in (*quick, *by_size):
        family = choice.family.name
        if missing := {name for name in choice.implementations if (family, name) not in shown}:
            kept.setdefault((family, choice.case.name), set()).update(missing)
            shown |= {(family, name) for name in missing}
    return [
        replace(choice, implementations=tuple(name for name in choice.implementations if name in names))
        for choice in choices
        if (names := kept.get((choice.family.name, choice.case.name)))
    ]


def largest_of(choices: Sequence[Choice]) -> dict[tuple[str, str], str]:
    """By (family, implementation) the case with most operations: where one has to do."""
    largest: dict[tuple[str, str], Choice] = {}
    for choice in choices:
        for name in choice.implementations:
            held = largest.setdefault((choice.family.name, name), choice)
            if _size(choice) > _size(held):
                largest[choice.family.name, name] = choice
    return {place: choice.case.name for place, choice in largest.items()}


def _size(choice: Choice) -> int:
    return counted(choice.family.flop, choice.case)


def without_variants(
    places: Iterable[tuple[str, str, str]],
    modules: Mapping[tuple[str, str], str],
    largest: Mapping[tuple[str, str], str],
) -> list[tuple[str, str, str]]:
    """Of (family, implementation, case) those that are compiled: of each implementation at least its `largest`.

    `modules` are those that prepare the implementations. Who is prepared by one module shares most of its code, so
    the first of them is compiled in all its cases and stands for the others there.
    """
    first: dict[str, tuple[str, str]] = {}
    for place, module in modules.items():
        first.setdefault(module, place)
    return [
        (family, name, case)
        for family, name, case in places
        if first[modules[family, name]] == (family, name) or largest[family, name] == case
    ]


@dataclass(frozen=True)
class Tuned:
    """An entry of a table: the tile that was found for a case."""

    case: Case
    tile: Tile


def tuned_extremes(entries: Sequence[Tuned]) -> list[Tuned]:
    """Of one implementation's entries those with the smallest and the largest blocks, and with most outputs a warp.

    Code between them is of the same kind; what goes wrong, in registers, shared memory or the choice of
    instructions, goes wrong at the ends. At most three, in this order, none twice.
    """
    ordered = sorted(entries, key=lambda entry: entry.case.name)
    ends: list[Callable[[Tuned], float]] = [
        lambda entry: -_elements(entry.tile),
        lambda entry: _elements(entry.tile),
        lambda entry: _outputs_a_warp(entry.tile),
    ]
    found: list[Tuned] = []
    for end in ends if ordered else ():
        most = max(ordered, key=end)
        if most not in found:
            found.append(most)
    return found


def _elements(tile: Tile) -> int:
    """Of all blocks of a tile together, by the names that tiles use: `block_m`, `block_k` and the like."""
    return math.prod(int(size) for name, size in tile.items() if name.startswith("block_"))


def _outputs_a_warp(tile: Tile) -> float:
    """Sums that a warp holds in registers: `slices` times as many where its warps cut a block of K among them."""
    outputs = _elements({name: size for name, size in tile.items() if name != "block_k"})
    return outputs * int(tile.get("slices", 1)) / int(tile.get("num_warps", 1))
