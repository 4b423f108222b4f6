"""The functions of a family and its implementations, which somebody else may have written.

Each answers rightly, or says what went wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from gemmgate.suite.cases import Case, Entry, Family, Implementation
from gemmgate.suite.errors import UsageError

_MOST = 2**63 - 1
"""A count is stored in 64 bits."""
_COUNT = "a whole number from 0 to 2**63 - 1"
_BOUND = "a finite number from 0 on"


class FamilyError(UsageError):
    """A function of a family raised, or returned what it may not: the sentence names family, case and function."""


def guarded(family: Family) -> Family:
    """The family with functions that check what they return, and raise nothing but `FamilyError`.

    `make_case` raises ValueError too, for what the family does not compute.
    """

    def of_case(name: str, is_right: Callable[[Any], bool], wanted: str) -> Any:
        return partial(_answer, family.name, name, getattr(family, name), is_right, wanted)

    makes = {
        name: of_case(name, partial(_is_case_of, family.name), "one of its cases")
        for name in ("twin", "make_case")
        if getattr(family, name) is not None
    }
    return replace(
        family,
        flop=of_case("flop", _is_count, _COUNT),
        bytes_moved=of_case("bytes_moved", _is_count, _COUNT),
        error_bound=of_case("error_bound", _is_bound, _BOUND),
        output_dtype=of_case("output_dtype", lambda answer: isinstance(answer, str), "the name of a dtype"),
        implementations=tuple(_guarded_entry(family.name, entry) for entry in family.implementations),
        **makes,
    )


def checked(family: str, implementation: Implementation) -> Implementation:
    """An implementation that says right what it supports and may err; what it raises its rows name in any case."""

    def right(name: str, is_right: Callable[[Any], bool], wanted: str) -> Any:
        function, said = getattr(implementation, name), f"{name} of '{implementation.name}'"
        return lambda case, *more: _right(_place(family, case), said, function(case, *more), is_right, wanted)

    bound = right("error_bound", _is_bound, _BOUND) if implementation.error_bound else None
    return replace(implementation, supports=right("supports", _is_refusal, "None or two texts"), error_bound=bound)


def _guarded_entry(family: str, entry: Entry) -> Entry:
    asked = partial(_answer, family, f"applies of '{entry.name}'", entry.applies, lambda _: True, "")
    return replace(entry, applies=asked)


def _answer(
    family: str, name: str, function: Callable[..., Any], is_right: Callable[[Any], bool], wanted: str, *asked: Any
) -> Any:
    where = _place(family, asked[0])
    try:
        answer = function(*asked)
    except Exception as error:
        if name == "make_case" and isinstance(error, ValueError):
            raise
        raise FamilyError(f"{where}: {name} raised {type(error).__name__}: {str(error) or 'no message'}.") from error
    return _right(where, name, answer, is_right, wanted)


def _place(family: str, asked: Any) -> str:
    return f"Family '{family}'" + (f", case '{asked.name}'" if isinstance(asked, Case) else "")


def _right(where: str, name: str, answer: Any, is_right: Callable[[Any], bool], wanted: str) -> Any:
    if not is_right(answer):
        raise FamilyError(f"{where}: {name} returned {answer!r:.100}, which is not {wanted}.")
    return answer


def _is_count(answer: Any) -> bool:
    return isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer <= _MOST


def _is_bound(answer: Any) -> bool:
    """Nothing is above an infinite bound, and nothing is within one that is not a number."""
    return isinstance(answer, int | float) and not isinstance(answer, bool) and math.isfinite(answer) and answer >= 0


def _is_refusal(answer: Any) -> bool:
    is_pair = isinstance(answer, tuple | list) and len(answer) == 2
    return answer is None or (is_pair and all(isinstance(text, str) for text in answer))


def _is_case_of(family: str, answer: Any) -> bool:
    return isinstance(answer, Case) and answer.family == family


def require(family: Family, case: Case) -> None:
    """Asks for all that a measurement of a case needs. Raises `FamilyError` for what a guarded family cannot answer."""
    for function in (family.flop, family.bytes_moved, family.error_bound, family.output_dtype):
        function(case)


def counted(function: Callable[[Case], int], case: Case) -> int:
    """`flop` or `bytes_moved` of a case; 0 where a guarded family cannot tell, which the case's rows then say."""
    try:
        return function(case)
    except FamilyError:
        return 0


def applies(entry: Entry, case: Case) -> bool:
    """Whether an implementation has a meaning for a case; yes where a guarded one cannot tell: a row then says so."""
    try:
        return bool(entry.applies(case))
    except FamilyError:
        return True
