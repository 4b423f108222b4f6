"""What was tuned for a router, found for any number of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from gemmgate.kernels import _tuned
from gemmgate.kernels.router.cases import DRAWN, MODELS, TOKENS, has_bias, output_dtype, shape_key, sizes
from gemmgate.suite.cases import Case, Target

PACKAGE = "gemmgate.kernels.router"

AnyTile = TypeVar("AnyTile")

_MODEL_OF = {
    (model.experts, model.hidden, model.dtype, model.out, model.bias): model.name for model in reversed(MODELS + DRAWN)
}
"""A model's name by its sizes and dtypes: a product that nobody named is tuned as the model's."""


def tuned_tile(implementation: str, case: Case, target: Target) -> dict[str, Any] | None:
    """The implementation's own best tile: that of the case, else that of the next larger T that was tuned, up to the
    next power of two, else that of the range of T that the case lies in.
    """
    for name in _names(case):
        entry = _tuned.lookup(PACKAGE, f"{name}/{implementation}", target)
        if entry is not None and entry.get("tile"):
            return dict(entry["tile"])
    piece = range_of(case, target, implementation)
    return dict(piece["tile"]) if piece is not None and piece.get("tile") else None


def tile_of(kind: type[AnyTile], name: str, numbers: Mapping[str, Any]) -> AnyTile:
    """The tile of the kernel `name` that a table or a search describes.

    Raises `ValueError` where fields are missing, not known or no whole numbers, or where the kernel has no such tile.
    """
    known = {field.name: field.default is MISSING for field in fields(kind)}  # type: ignore[arg-type]
    again = "If it is from a tuned table, tune again with `gemmgate tune`."
    if set(numbers) - set(known) or any(needed and field not in numbers for field, needed in known.items()):
        told = ", ".join(numbers) or "none"
        raise ValueError(f"A tile of {name} has the fields {', '.join(known)}; got {told}. {again}")
    for field, number in numbers.items():
        if type(number) is not int:
            raise ValueError(f"A tile of {name}: {field} must be a whole number, got {number!r}. {again}")
    return kind(**numbers)


def entry_of(case: Case, target: Target) -> tuple[str, Mapping[str, Any]] | None:
    """The case whose best implementation was tuned, and its entry: the case itself or the next larger T, as above.

    What a library wins at a larger T says nothing of this one: kernels are for the smaller.
    """
    own = own_names(case)
    for name in _names(case):
        entry = _tuned.lookup(PACKAGE, name, target)
        if entry is not None and (entry.get("tile") or name in own):
            return name, entry
    return None


def own_names(case: Case) -> tuple[str, str]:
    """What the case itself is called, by its own name and by that of the model whose sizes it has."""
    return case.name, f"{_model_of(case)}-t{sizes(case)[0]}-{case.dtype}"


def _names(case: Case) -> list[str]:
    """Of the case and of its model at T up to the next power of two, the least first: they fill the same tiles."""
    t, _, _ = sizes(case)
    model, most = _model_of(case), 1 << max(t - 1, 0).bit_length()
    return [case.name, *(f"{model}-t{tokens}-{case.dtype}" for tokens in TOKENS if model and t <= tokens <= most)]


def range_of(case: Case, target: Target, implementation: str = "") -> Mapping[str, Any] | None:
    """The tuned range of T that a case lies in, over all implementations or of one.

    None where none was tuned, below the least T of the first and beyond the last: nothing was measured there. Where a
    range ends need not have been measured: it lies between two T that were.
    """
    t, _, _ = sizes(case)
    key = shape_key(case) + (f"/{implementation}" if implementation else "")
    pieces = _tuned.ranges(PACKAGE, key, target)
    if not pieces or t < _measured(pieces[0])[0]:
        return None
    return next((piece for piece in pieces if t <= piece["up_to"]), None)


def reaches(piece: Mapping[str, Any], case: Case) -> bool:
    """Whether the T of a case is among those that were measured for a range, from the least to the largest."""
    t, _, _ = sizes(case)
    least, most = _measured(piece)
    return least <= t <= most


def _measured(piece: Mapping[str, Any]) -> tuple[int, int]:
    least, most = piece.get("measured") or (1, piece["up_to"])
    return int(least), int(most)


def _model_of(case: Case) -> str:
    """The model whose sizes and dtypes a case has, whatever it is called; empty where there is none."""
    _, n, k = sizes(case)
    return _MODEL_OF.get((n, k, case.dtype, output_dtype(case), has_bias(case)), "")
