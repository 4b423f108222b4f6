"""The harness's own choice of a tile: the whole space of an implementation on screening samples."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from gemmgate.suite.cases import Implementation, Prepared, Target
from gemmgate.suite.measure.refusal import Refused, status_of
from gemmgate.suite.measure.sampler import Clock, sample
from gemmgate.suite.measure.timed import Timed, make_timed
from gemmgate.suite.measure.work import Work

SCREENING_ROUNDS = 8


def screen(
    work: Work,
    implementation: Implementation,
    target: Target,
    clocks: dict[str, Clock],
    at: Callable[[str, str], None],
) -> tuple[Prepared, dict[str, float]]:
    """The tile whose screening samples are fastest, which is measured afresh later.

    Returns it prepared, with the median seconds a call of every tile that could be timed. Raises `Refused` where none
    could.
    """
    assert implementation.tiles is not None
    candidates: list[tuple[str, Prepared, Timed]] = []
    problems: list[str] = []
    cache = "cold" if work.ring.cold else "hot"
    for tile in implementation.tiles(work.case, target):
        at(implementation.name, f"screen {dict(tile)}")
        try:
            prepared = implementation.prepare(work.case, work.ring.slots[0], target, tile)
            timed = make_timed(implementation.name, prepared, work.ring, cache, clocks, lambda step: None)
            candidates.append((" ".join(f"{name}={value}" for name, value in tile.items()), prepared, timed))
        except Exception as error:
            if status_of(error)["fatal"]:
                raise
            problems.append(f"{dict(tile)}: {error}")
    if not candidates:
        raise Refused("unsupported", "no_candidate", "; ".join(problems) or "the space of tiles is empty")
    # Launches of graphs and of single calls are timed by events alike, so any clock of the device does.
    samples = sample(next(iter(clocks.values())), [timed.launch for _, _, timed in candidates], SCREENING_ROUNDS)
    medians = [statistics.median(values) for values in samples]
    screened_s = {tile: median for (tile, _, _), median in zip(candidates, medians, strict=True)}
    return candidates[medians.index(min(medians))][1], screened_s
