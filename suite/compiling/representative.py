"""Which cases stand for a family where nobody asks for others. Pure: the catalog knows cases without torch."""

from __future__ import annotations

from gemmgate.suite.catalog import Catalog, Choice, Selection


def chosen(known: Catalog, selection: Selection) -> list[Choice]:
    """What is selected; where neither cases nor tags are, of each family the largest case in each precision.

    Largest by the number of its operations, among those tagged `quick`, or all where a family tags none so. Large
    cases have the large tiles, in which registers and shared memory run out and tensor cores are used fully.
    """
    choices = known.select(selection)
    if selection.cases or selection.tags:
        return choices
    quick = {choice.family.name for choice in choices if "quick" in choice.case.tags}
    largest: dict[tuple[str, str], Choice] = {}
    for choice in choices:
        name, case = choice.family.name, choice.case
        if name in quick and "quick" not in case.tags:
            continue
        held = largest.get((name, case.precision))
        if held is None or choice.family.flop(case) > held.family.flop(held.case):
            largest[name, case.precision] = choice
    return list(largest.values())
