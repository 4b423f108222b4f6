"""A kernel's tile: what was tuned for this device and case, else what a rule says. Pure, standard library only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gemmgate.kernels import _tuned
from gemmgate.kernels.dense_splitk.cases import case_of, sizes
from gemmgate.kernels.dense_splitk.tiling import Tile, limit_bytes, shared_bytes
from gemmgate.suite.cases import Case, Target

T = TypeVar("T", bound=Tile)
U = TypeVar("U")


def entry_of(case: Case, target: Target, name: str = "") -> Mapping[str, Any] | None:
    """The tuned entry of a case (with `name`, of that implementation); a case of another family's comes first.

    An epilogue changes little of what is best, so a case with one that was not tuned falls back on its product's.
    """
    product = case_of(*sizes(case), case.dtype, case.precision)
    for one in (case, product) if case.family != product.family else (case,):
        key = f"{one.name}/{name}" if name else one.name
        entry = _tuned.lookup(f"gemmgate.kernels.{one.family}", key, target)
        if entry is not None:
            return entry
    return None


def checked(case: Case, target: Target, read: Callable[[], U], shared_bytes: Callable[[U], int]) -> U:
    """What `read` makes of a tuned entry. Raises ValueError that says whose tile is damaged, or does not fit."""
    try:
        tile = read()
    except ValueError as error:
        raise ValueError(
            f"The tuned tile of {case.name} for {target.arch} is damaged: {error} Tune again, or remove it."
        ) from None
    if target.is_gpu and shared_bytes(tile) > limit_bytes(target):
        raise ValueError(f"The tuned tile of {case.name} does not fit {target.arch}: {tile}. Tune again, or remove it.")
    return tile


def choose_tile(name: str, rule: Callable[[Case, Target], T], case: Case, target: Target) -> T:
    """The tile of the implementation `name` for a case: tuned, else by the rule."""
    chosen = rule(case, target)
    entry = entry_of(case, target, name)
    tile = entry["tile"] if entry is not None else None
    if tile is None:
        return chosen
    return checked(case, target, lambda: type(chosen).from_data(tile), lambda tuned: shared_bytes(case, tuned))
