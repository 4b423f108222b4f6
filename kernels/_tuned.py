"""What was tuned for a device: a family's tables `tuned/<profile>.json`, as its kernels read them. Standard library.

A table is a JSON object {schema, profile, arch, method, stack, entries, ranges}. `entries` maps a case's name to
the best implementation, `<case name>/<implementation>` to that implementation's best tile; each value is
{implementation, tile, ratio, run}. `ranges`, which may be missing, maps a key to [{up_to, implementation, tile}, ...]
with `up_to` ascending. `gemmgate tune` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any

from gemmgate.suite.cases import Target

SCHEMA = 1
"""Of the file."""
METHOD = 1
"""Of the search that fills it. What another one chose was chosen by other rules, and is refused."""

_FIELDS: Mapping[str, type] = {"profile": str, "arch": str, "method": int, "stack": dict, "entries": dict}


def profile_of(target: Target) -> str:
    """The name of a device's own table: `nvidia-h200`; its arch where the device has no name."""
    return re.sub(r"[^a-z0-9]+", "-", target.name.lower()).strip("-") or target.arch


def lookup(package: str, key: str, target: Target) -> Mapping[str, Any] | None:
    """The entry of `key` in the tables of a package: the device's own first, then any of its arch; None without one.

    Pure, since the files are part of the code. Raises ValueError with the file's path where a table that could have
    the answer is damaged or none of ours; tables of other devices do not matter.
    """
    for table in _tables_for(package, target):
        if key in table["entries"]:
            return MappingProxyType(table["entries"][key])
    return None


def entries(package: str, target: Target) -> Mapping[str, Mapping[str, Any]]:
    """By key all entries that `lookup` finds for a device."""
    found: dict[str, Mapping[str, Any]] = {}
    for table in reversed(list(_tables_for(package, target))):
        found |= table["entries"]
    return MappingProxyType(found)


def ranges(package: str, key: str, target: Target) -> Sequence[Mapping[str, Any]]:
    """The ranges of `key`, `up_to` ascending, found as by `lookup`; empty without any."""
    for table in _tables_for(package, target):
        if key in table.get("ranges", {}):
            return tuple(map(MappingProxyType, table["ranges"][key]))
    return ()


def damaged(package: str) -> Mapping[str, str]:
    """By profile what is wrong with files of which not even the architecture can be told."""
    return {table["profile"]: table["damage"] for table in _tables(package) if "damage" in table and not table["arch"]}


def read(file: Traversable) -> dict[str, Any]:
    """As `parse`; what is no text is a ValueError too. Raises FileNotFoundError where there is none."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ValueError(
            f"Tuned table {file} cannot be read: {why}. Restore it, or remove it and tune again."
        ) from None
    return parse(text, str(file))


def parse(text: str, name: str) -> dict[str, Any]:
    """A table from its JSON. Raises ValueError that says what is wrong with the table called `name`."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"Tuned table {name} is not JSON: {error}. Restore it, or tune again.") from None
    if not isinstance(table, dict) or table.get("schema") != SCHEMA:
        found = table.get("schema") if isinstance(table, dict) else None
        raise ValueError(f"Tuned table {name} has schema {found}, not {SCHEMA}: tune again with `gemmgate tune`.")
    wrong = [field for field, kind in _FIELDS.items() if not isinstance(table.get(field), kind)]
    if wrong:
        raise ValueError(f"Tuned table {name} lacks {', '.join(wrong)}: restore it, or tune again.")
    if table["method"] != METHOD:
        raise ValueError(
            f"Tuned table {name} was found by method {table['method']} of the search, not {METHOD}: "
            "tune again with `gemmgate tune`."
        )
    _check_entries(table, name)
    return table


def _check_entries(table: Mapping[str, Any], name: str) -> None:
    """Every entry names an implementation and a tile; ranges ascend."""
    for key, entry in table["entries"].items():
        if not _is_entry(entry):
            raise ValueError(f"Tuned table {name}: entry '{key}' needs an implementation and a tile: {entry}.")
    ranges = table.get("ranges", {})
    if not isinstance(ranges, dict):
        raise ValueError(f"Tuned table {name}: ranges is no object: {ranges}. Restore it, or tune again.")
    for key, pieces in ranges.items():
        ends = [piece.get("up_to") for piece in pieces if _is_entry(piece)] if isinstance(pieces, list) else None
        if ends is None or len(ends) < len(pieces) or not _ascends(ends):
            raise ValueError(
                f"Tuned table {name}: ranges of '{key}' need an ascending up_to, an implementation and a tile each."
            )


def _ascends(ends: list[object]) -> bool:
    numbers = [end for end in ends if isinstance(end, int | float)]
    return len(numbers) == len(ends) and numbers == sorted(set(numbers))


def _is_entry(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("implementation"), str)
        and isinstance(value.get("tile", ""), dict | None)
    )


def _tables_for(package: str, target: Target) -> Iterator[Mapping[str, Any]]:
    """The device's own table, then the others of its arch by name. Raises ValueError at one that is damaged."""
    own = profile_of(target)
    found = sorted(
        (table for table in _tables(package) if table["profile"] == own or table["arch"] == target.arch),
        key=lambda table: (table["profile"] != own, table["profile"]),
    )
    for table in found:
        if "damage" in table:
            raise ValueError(table["damage"])
        yield table


@cache
def _tables(package: str) -> tuple[Mapping[str, Any], ...]:
    """All tables of a package, with the `damage` of those that are of no use; read once a process."""
    folder = resources.files(package) / "tuned"
    if not folder.is_dir():
        return ()
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    return tuple(map(_table_or_damage, files))


def _table_or_damage(file: Traversable) -> Mapping[str, Any]:
    """A table; of a damaged one the profile by the file's name, the arch as far as it can be told, and the damage."""
    try:
        return read(file)
    except ValueError as error:
        begun = b""
        with suppress(OSError):
            begun = file.read_bytes()
        arch = re.search(rb'"arch"\s*:\s*"(\w+)"', begun)
        profile = file.name.removesuffix(".json")
        return {"profile": profile, "arch": arch[1].decode("ascii", "replace") if arch else "", "damage": str(error)}
