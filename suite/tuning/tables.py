"""Tuned tables as a tuning writes them; `kernels/_tuned.py` says what is in them and reads them for the kernels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gemmgate.kernels import _tuned
from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import Catalog
from gemmgate.suite.errors import UnreadableError, UsageError
from gemmgate.suite.records import Stack
from gemmgate.suite.store.files import explained, make_folders, write_whole
from gemmgate.suite.tuning.picks import Pick

Table = Mapping[str, Any]
_LINED = ("entries", "ranges")
"""Fields that are written a line an item, so that a change of one tile is a change of one line."""


def profile_of(target: Target) -> str:
    """The name of a device's own table."""
    return _tuned.profile_of(target)


def folder_of(package: str) -> Path:
    """Where a family's tables lie. Raises `UsageError` where its package is no folder."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"Package '{package}' is no folder, so no table can be written in it: name one with --tables.")
    return Path(next(iter(spec.submodule_search_locations))) / "tuned"


def read(path: Path) -> Table | None:
    """A table; None where there is none. Raises `UnreadableError` with the reason where it is not to be used."""
    try:
        return _tuned.read(path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UnreadableError(str(error)) from error


def refuse_other(path: Path, table: Table, known: Catalog, family: str, profile: str) -> None:
    """Raises `UsageError` where a table is of another family, or of another device than the one of this `profile`."""
    if table["profile"] != profile:
        raise UsageError(
            f"{path} is a table of {table['profile']}, and these times are of {profile}: "
            f"name the table {profile}.json, which `gemmgate tune` writes."
        )
    cases = {key.partition("/")[0] for key in table["entries"]}
    counts = {name: len(cases & {case.name for case in one.cases}) for name, one in known.families.items()}
    # A table does not name its family, and families may share cases: it is of one that has most of them.
    most = max(counts.values(), default=0)
    if cases and counts.get(family, 0) < max(most, int(family in counts)):
        owner = next((name for name, count in counts.items() if count == most > 0), "another family")
        raise UsageError(
            f"{path} is a table of {owner}, and these times are of {family}: name a table that was tuned for {family}."
        )


def updated(old: Table | None, profile: str, target: Target, stack: Stack, picks: Iterable[Pick]) -> Table:
    """The table with the entries of new picks in place of older ones, and the best implementation of their cases.

    An entry's `ratio` is the time of the yardstick over its own; `run` names the tuning it comes from, and so its
    stack: `stack` is that of the newest. Ranges are kept as they are.
    """
    entries: dict[str, Any] = dict(old["entries"]) if old else {}
    cases: dict[str, str] = {}
    for pick in picks:
        if pick.row.status != "ok" or pick.row.tile is None:
            continue
        entries[pick.key] = {
            "implementation": pick.row.implementation,
            "tile": dict(pick.row.tile),
            "ratio": round(pick.ratio.estimate, 4) if pick.ratio else None,
            "run": pick.row.run_id,
        }
        cases[pick.row.case] = pick.row.yardstick
    for case, yardstick in cases.items():
        entries[case] = _best(case, yardstick, entries)
    known = {"schema": _tuned.SCHEMA, "profile": profile, "arch": target.arch, "method": _tuned.METHOD}
    table = {**known, "stack": {name: value for name, value in asdict(stack).items() if value}, "entries": entries}
    return {**table, "ranges": old["ranges"]} if old and "ranges" in old else table


def _best(case: str, yardstick: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Of the implementations tuned for a case the one that is furthest ahead of the yardstick, or the yardstick."""
    tuned = [entry for key, entry in sorted(entries.items()) if key.startswith(f"{case}/")]
    best = max(tuned, key=lambda entry: entry["ratio"] or 0.0)
    if yardstick and (best["ratio"] or 0.0) < 1.0:
        return {"implementation": yardstick, "tile": None, "ratio": 1.0, "run": best["run"]}
    return dict(best)


def write(path: Path, table: Table, then: str = "") -> None:
    """All of it or nothing. Raises `UnwritableError`, which ends in `then`, where it cannot be written."""
    with explained("write", path, then):
        make_folders(path.parent)
        write_whole(path, spelled(table).encode(), anew=True)


def spelled(table: Table) -> str:
    """The text of a table: entries by name, a line each."""
    lines = []
    for name, value in table.items():
        text = json.dumps(value)
        if name in _LINED and value:
            items = [f"  {json.dumps(key)}: {json.dumps(value[key])}" for key in sorted(value)]
            text = "{\n" + ",\n".join(items) + "\n }"
        lines.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def package_of(known: Catalog, family: str, implementation: str) -> str:
    """Whose kernels look an entry up: the family's package, or that of who extends it."""
    return known.extensions.get((family, implementation), known.packages[family])
