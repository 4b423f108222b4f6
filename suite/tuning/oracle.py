"""How good were the picks? Times every legal tile of a case, and then the best of them beside the pick."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import islice

from gemmgate.suite.records import Row
from gemmgate.suite.tuning.candidates import Candidate
from gemmgate.suite.tuning.gpu import Gpu, compile_ahead
from gemmgate.suite.tuning.picks import ORACLE, SWEEP
from gemmgate.suite.tuning.racing import Search
from gemmgate.suite.tuning.rows import wide_rows

TOGETHER = 48
"""Tiles that are timed in the same rounds, the pick among them each time: times are compared through it."""
ROUNDS = 4
BEST = 12
"""Tiles that are timed again, on fresh buffers, in rounds of which one half chooses and the other scores."""
SCORED_ROUNDS = 60


def sweep(gpu: Gpu, ranked: Sequence[Candidate], found: Search) -> list[Row]:
    """The rows of all tiles, and of the best beside the pick: `picks.regret` reads the latter."""
    assert found.winner is not None
    pick = Candidate(found.tiles[found.winner], 0.0)
    others = [one for one in ranked if one.key != pick.key]
    tiles = {one.key: one.tile for one in (pick, *others)}
    for place, one in enumerate(others):
        compile_ahead(gpu.pool, gpu.item, one, gpu.priority + 0.5 + 1e-5 * place)
    gpu.mount([pick])
    swept: dict[str, list[float]] = {}
    relative: dict[str, float] = {}
    for first in range(0, len(others), TOGETHER):
        batch = others[first : first + TOGETHER]
        wrong = gpu.mount(batch)
        ready = [one.key for one in batch if not wrong[one.key]]
        samples = gpu.time([pick.key, *ready], ROUNDS)
        relative.update(_relative(samples, pick.key))
        swept.update({key: values for key, values in samples.items() if key != pick.key})
        gpu.drop(ready)
    right = (key for key in sorted(relative, key=relative.__getitem__) if not gpu.check(key))
    best = list(islice(right, BEST))
    scored = gpu.time([pick.key, *best], SCORED_ROUNDS, fresh=True)
    return [*wide_rows(gpu, SWEEP, swept, tiles), *wide_rows(gpu, ORACLE, scored, tiles)]


def _relative(samples: Mapping[str, Sequence[float]], pick: str) -> dict[str, float]:
    """Time over the pick's in the same rounds."""
    pick_s = samples[pick]
    return {
        key: statistics.median(value / beside for value, beside in zip(values, pick_s, strict=True))
        for key, values in samples.items()
        if key != pick
    }
