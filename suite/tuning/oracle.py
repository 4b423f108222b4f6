"""How good was a pick? Times every legal tile of a case, and then the best of them beside the pick.

Pure but for the device it is given, as `racing`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from gemmgate.suite.cases import Tile
from gemmgate.suite.tuning.candidates import Candidate
from gemmgate.suite.tuning.racing import Device, Samples

TOGETHER = 48
"""Tiles that are timed in the same rounds, the pick among them each time: times are compared through it."""
ROUNDS = 4
BEST = 12
"""Tiles that are timed again, on fresh buffers, in rounds of which one half chooses and the other scores."""
SCORED_ROUNDS = 60
_AHEAD = 2
"""Batches that are asked for before they are timed: more would keep the compilers from the next case."""


@dataclass
class Sweep:
    """Tiles but the pick by key: `swept_s`, empty for what was not ready, and those `left_out` for want of time.

    `scored_s` are the last rounds, the pick's among them; `picks.regret` reads those.
    """

    tiles: dict[str, Tile] = field(default_factory=dict)
    swept_s: dict[str, Sequence[float]] = field(default_factory=dict)
    scored_s: Samples = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def sweep(
    ranked: Sequence[Candidate],
    pick: Candidate,
    device: Device,
    *,
    ahead: Callable[[Sequence[Candidate]], object] = lambda batch: None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Sweep:
    """All candidates beside the pick, fastest by the model first, and those among them that were best once more.

    `ahead` is told of candidates that come soon. Where time runs out, which is asked after each batch, the rest is
    left out.
    """
    others = [one for one in ranked if one.key != pick.key]
    batches = [others[first : first + TOGETHER] for first in range(0, len(others), TOGETHER)]
    found = Sweep({one.key: one.tile for one in (pick, *others)})
    relative: dict[str, float] = {}
    device.mount([pick])
    for batch in batches[:_AHEAD]:
        ahead(batch)
    for place, batch in enumerate(batches):
        if place and out_of_time():
            found.left_out = tuple(one.key for late in batches[place:] for one in late)
            break
        for later in batches[place + _AHEAD : place + _AHEAD + 1]:
            ahead(later)
        wrong = device.mount(batch)
        ready = [one.key for one in batch if not wrong[one.key]]
        samples = device.time([pick.key, *ready], ROUNDS)
        relative.update(_relative(samples, pick.key))
        found.swept_s.update({one.key: samples.get(one.key, ()) for one in batch})
        device.drop(ready)
    right = (key for key in sorted(relative, key=relative.__getitem__) if not device.check(key))
    found.scored_s = device.time([pick.key, *islice(right, BEST)], SCORED_ROUNDS, fresh=True)
    return found


def _relative(samples: Mapping[str, Sequence[float]], pick: str) -> dict[str, float]:
    """Time over the pick's in the same rounds; nothing where the clock gave the pick no time."""
    pick_s = samples.get(pick, ())
    return (
        {}
        if not pick_s
        else {
            key: statistics.median(value / beside for value, beside in zip(values, pick_s, strict=True))
            for key, values in samples.items()
            if key != pick
        }
    )
