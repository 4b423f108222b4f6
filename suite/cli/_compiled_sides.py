"""What a change does to code for GPUs that are not here: both sides of it, compiled before a board is taken."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from gemmgate.suite import catalog, profiles
from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.catalog import Selection
from gemmgate.suite.cli._gate_sides import Asked, Sides
from gemmgate.suite.compiling.plan import FAMILY, Request, compile_rows, installed
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.judged_static import of_side
from gemmgate.suite.offers import Offer
from gemmgate.suite.pairs import SIDES
from gemmgate.suite.records import Row
from gemmgate.suite.workers import private_caches

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
"""One of each generation that kernels here are written for."""


def compile_sides(
    asked: Asked,
    sides: Sides,
    both: Sequence[Offer],
    sources: Mapping[str, Mapping[str, str]],
    measured: str,
    say: Callable[[str], object],
) -> list[Row]:
    """Rows of both sides, of implementations whose sources or tuned tables differ; the architecture `measured` is left
    to the clock.

    Empty where nothing that launches Triton kernels differs, where Triton is not installed, or between interpreters.
    """
    changed = _changed(sides, both, sources)
    found = [(name, profiles.target(name)) for name in asked.static]
    targets = {
        name if name == target.arch else f"{target.arch}:{name}": target
        for name, target in found
        if target.arch != measured
    }
    if not (changed and targets) or any(asked.pythons) or not installed("triton"):
        return []
    said = ", ".join(f"{family}/{name}" for family, name in changed)
    say(f"what changed is compiled for {', '.join(targets)} too: {said}.")
    cache = Path(private_caches()["TRITON_CACHE_DIR"]).parent / FAMILY
    rows: list[Row] = []
    for family in dict.fromkeys(name for name, _ in changed):
        own = tuple(implementation for name, implementation in changed if name == family)
        selection = Selection(families=(family,), implementations=own)
        for side in SIDES:
            tree = sides.trees[side]
            request = Request(selection, targets, suites=tree.suites)
            try:
                compiled = compile_rows(request, tree.overlay, cache, os.cpu_count() or 1)
            except CannotMeasureError as error:
                say(f"{family} is not compiled for other GPUs: {error}")
                break
            rows += of_side(compiled, side, tree.commit)
    return rows


def _changed(
    sides: Sides, both: Sequence[Offer], sources: Mapping[str, Mapping[str, str]]
) -> Collection[tuple[str, str]]:
    """(family, implementation) of what differs and speaks of Triton, in the order of the items."""
    found: dict[tuple[str, str], None] = {}
    table_differs: dict[Path, bool] = {}
    for offer in both:
        key = offer.case.family, offer.implementation
        file = Path(offer.file)
        if key in found or not file.is_file() or "triton" not in file.read_text(encoding="utf-8"):
            continue
        tables = file.parent / "tuned"
        if tables not in table_differs:
            table_differs[tables] = _differs(sides, tables)
        if table_differs[tables] or sources[BASELINE][offer.path] != sources[CANDIDATE][offer.path]:
            found[key] = None
    return found


def _differs(sides: Sides, tables: Path) -> bool:
    """Whether a folder of tuned tables is another one on the candidate's side."""
    base = sides.trees[BASELINE]
    if not tables.is_relative_to(base.sources):
        return False
    other = sides.trees[CANDIDATE].sources / tables.relative_to(base.sources)
    return catalog.tree_hash(tables) != catalog.tree_hash(other)
