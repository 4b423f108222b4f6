"""Whether an entry of a tuned table can be used, as far as that is known without compiling it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemmgate.suite.cases import Case, Implementation, Refusal, Target, Tile

_MOST_WARPS = 32
"""A block has at most 1024 threads."""


def tuned_refusal(
    found: Implementation, case: Case | None, target: Target, key: str, entry: Mapping[str, Any]
) -> Refusal | None:
    """Why the entry of `key`, which `found` would use for `case`, is of no use there: a reason code and a sentence."""
    case_name, separator, name = key.partition("/")
    if separator and entry["implementation"] != name:
        return "implementation", f"The entry of '{key}' is of the implementation '{entry['implementation']}'."
    if case is None:
        return "no_case", f"The family has no case '{case_name}'."
    if entry["tile"] is None:
        return ("refused", "The entry has no tile.") if separator else None
    return _tile_refusal(found, case, target, entry["tile"])


def _tile_refusal(found: Implementation, case: Case, target: Target, tile: Tile) -> Refusal | None:
    """Why a tile cannot run there: the implementation's own word, and what holds for every launch by Triton."""
    if said := _illegal_value(tile):
        return "refused", said
    try:
        refusal = found.supports(case, target)
        needs = found.footprint(case, target, tile) if found.footprint and refusal is None else None
    except KeyError as error:
        return "refused", f"The tile has no field {error}."
    except (ValueError, TypeError) as error:
        return "refused", f"{str(error).rstrip('.')}."
    if refusal is not None:
        return refusal
    if said := _other_fields(found, case, target, tile):
        return "refused", said
    if needs is not None and target.shared_bytes and needs.shared_bytes > target.shared_bytes:
        said = f"It takes {needs.shared_bytes} bytes of shared memory a block; {target.arch} allows"
        return "shared_memory", f"{said} {target.shared_bytes}."
    return None


def _illegal_value(tile: Tile) -> str:
    """What no launch may have, whatever the kernel: no value, sizes below 1, warps no power of two or too many."""
    fields: Mapping[str, object] = tile  # as a file gave them
    for name, value in fields.items():
        if not isinstance(value, int | str):
            return f"{name} must be a whole number or a word, got {value!r}."
        if name.startswith(("block_", "num_")) and (type(value) is not int or value < 1):
            return f"{name} must be a whole number from 1 up, got {value!r}."
    warps = int(tile.get("num_warps", 1))
    if warps & (warps - 1) or warps > _MOST_WARPS:
        return f"num_warps must be a power of two up to {_MOST_WARPS}, got {warps}."
    return ""


def _other_fields(found: Implementation, case: Case, target: Target, tile: Tile) -> str:
    """What an implementation that has no footprint, and so has not looked at the tile, does not know of it."""
    space = found.tiles(case, target) if found.tiles and not found.footprint else ()
    if not space or any(set(one) == set(tile) for one in space):
        return ""
    return f"A tile has the fields {', '.join(sorted(space[0]))}, got {', '.join(sorted(tile))}."
