"""A spread of cases that shows a machine's noise: short and long, bound by memory and by arithmetic, every format.

Knows no family: cases are placed by the least time that the machine's roofs allow for them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from gemmgate.suite.catalog import Choice, Item
from gemmgate.suite.family_functions import counted

OTHERS_EVERY = 3
"""Beside every third case's yardstick stands another implementation of the case."""
_USED = 0.25
"""How far, in log time, a case of a format that was not chosen yet may be from its place."""


def spread(
    choices: Sequence[Choice],
    least_s: Callable[[Choice], float | None],
    usable: Collection[tuple[str, str]],
    *,
    count: int,
    between_s: tuple[float, float],
) -> list[Item]:
    """The yardsticks of `count` cases that stand evenly over log time, and some other implementations beside them.

    `least_s` is the least time of a case; `usable` holds (path of a case, implementation). The case with
    the most arithmetic a byte is always among them: it is what meets the power limit.
    """
    placed = []
    for choice in choices:
        seconds, yardstick = least_s(choice), _yardstick(choice, usable)
        if seconds and yardstick and between_s[0] <= seconds <= between_s[1]:
            placed.append((math.log(seconds), choice))
    if not placed:
        return []
    chosen = [max(placed, key=lambda one: _flop_a_byte(one[1]))]
    low, high = min(place for place, _ in placed), max(place for place, _ in placed)
    formats: Counter[tuple[str, str]] = Counter()
    for index in range(count - 1):
        target = low + (high - low) * index / max(count - 2, 1)
        left = [one for one in placed if one not in chosen]
        if not left:
            break
        nearest = min(left, key=lambda one: abs(one[0] - target) + _USED * formats[_format(one[1])])
        formats[_format(nearest[1])] += 1
        chosen.append(nearest)
    cases = [choice for _, choice in sorted(chosen, key=lambda one: one[0])]
    return list(_items(cases, usable))


def key(choice: Choice) -> str:
    """The path of a case in `usable`."""
    return f"{choice.family.name}/{choice.case.name}"


def _items(cases: Iterable[Choice], usable: Collection[tuple[str, str]]) -> Iterable[Item]:
    used: Counter[str] = Counter()
    for index, choice in enumerate(cases):
        yardstick = _yardstick(choice, usable)
        assert yardstick is not None
        yield Item(choice.family, choice.case, yardstick)
        if index % OTHERS_EVERY:
            continue
        where = {entry.name: entry.where for entry in choice.family.implementations}
        others = [
            name
            for name in choice.implementations
            if name not in choice.family.yardsticks and (key(choice), name) in usable
        ]
        if others:
            # Entries that live at one place are variants of one thing: one of each place in turn.
            rarest = min((where[name] for name in others), key=lambda place: used[place])
            used[rarest] += 1
            variants = [name for name in others if where[name] == rarest]
            yield Item(choice.family, choice.case, variants[len(variants) // 2])


def _yardstick(choice: Choice, usable: Collection[tuple[str, str]]) -> str | None:
    return next((name for name in choice.family.yardsticks if (key(choice), name) in usable), None)


def _flop_a_byte(choice: Choice) -> float:
    family, case = choice.family, choice.case
    return counted(family.flop, case) / max(counted(family.bytes_moved, case), 1)


def _format(choice: Choice) -> tuple[str, str]:
    return choice.case.dtype, choice.case.precision
