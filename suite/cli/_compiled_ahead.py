"""What both sides of a gate will launch, compiled by many workers before the survey asks for one after the other."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gemmgate.suite import offers, warming
from gemmgate.suite.catalog import Choice
from gemmgate.suite.cli._gate_sides import Probed, Sides
from gemmgate.suite.offers import Offer
from gemmgate.suite.tuning.pool import WITHOUT_DEVICE
from gemmgate.suite.workers import Worker

FEWEST = 16
"""Pairs of case and kernel that are worth it. Fewer than a run needs: workers that compile start while those of the
survey do, for which a gate waits in any case.
"""
LEAST_S = 30.0
"""With fewer seconds for the gate nothing is compiled beforehand."""
MOST_SHARE = 1 / 3
"""Of the seconds for a gate, for this."""


@dataclass(frozen=True)
class Lacking:
    """What the compilers' caches of one side lack, or of `sides` that share them, since they are one and the same."""

    sides: tuple[str, ...]
    choices: Sequence[Choice]
    known: warming.Known


def lacking(sides: Sides, probed: Probed, wanted: Mapping[str, Sequence[Offer]]) -> list[Lacking]:
    """Of what is `wanted` of each side, cases with what may be a kernel of ours and was not compiled before."""
    sharing: dict[Path, list[str]] = {}
    for side in wanted:
        sharing.setdefault(Path(sides.launch[side].environment["TRITON_CACHE_DIR"]), []).append(side)
    found = []
    for folder, names in sharing.items():
        tree = sides.trees[names[0]]
        known = warming.Known(folder, tree.tree, tree.suites, probed.targets[names[0]])
        choices = known.lacking(offers.choices(offer for name in names for offer in wanted[name]))
        found.append(Lacking(tuple(names), choices, known))
    return found


def compile_ahead(
    sides: Sides,
    probed: Probed,
    wanted: Mapping[str, Sequence[Offer]],
    seconds: float | None,
    say: Callable[[str], object],
) -> None:
    """Compiles where that pays, each side with its own kernels, interpreter and caches, and says so."""
    if seconds is not None and seconds < LEAST_S:
        return
    cores = len(os.sched_getaffinity(0))
    found = lacking(sides, probed, wanted)
    counts = warming.shared(
        [warming.own_worker_count(probed.targets[one.sides[0]], cores, one.choices, FEWEST) for one in found]
    )
    if not any(counts):
        return
    with tempfile.TemporaryDirectory(prefix="gemmgate-claims-") as folder:
        crews = []
        for one, count in zip(found, counts, strict=True):
            claims = Path(folder) / one.sides[0]
            claims.mkdir()
            do = partial(warming.compile_only, probed.targets[one.sides[0]], claims, one.known)
            crews.append(warming.Crew(one.choices, count, _starter(sides, one), do, has_device=False))
        working = [(one, crew) for one, crew in zip(found, crews, strict=True) if crew.count]
        said = " and ".join(f"{len(one.choices)} cases of {_whose(one)}" for one, _ in working)
        say(f"compiling beforehand for {said}, with {sum(counts)} workers.")
        warmed = warming.warm([crew for _, crew in working], None if seconds is None else seconds * MOST_SHARE)
    if warmed.problem:
        say(f"compiled for {warmed.cases} of {warmed.of} cases; {warmed.problem}")


def _whose(one: Lacking) -> str:
    return f"the {one.sides[0]}" if len(one.sides) == 1 else "both sides, which are the same"


def _starter(sides: Sides, one: Lacking) -> Callable[[], Worker]:
    """Starts a worker of that side that sees no device."""
    launch = sides.launch[one.sides[0]]
    without = replace(launch, environment={**launch.environment, **WITHOUT_DEVICE})
    modules = sorted({(choice.family.name, name) for choice in one.choices for name in choice.implementations})
    return partial(without.start, "cpu", sides.trees[one.sides[0]].suites, modules)
