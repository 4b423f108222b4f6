"""Which tiles are worth compiling: a model of their time, and a choice that does not trust it too far. Pure."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmgate.suite.cases import Footprint, Target, Tile

LATENCY_S = 1e-6
"""Of memory under load. By Little's law, bandwidth times this is what must be under way to use that bandwidth."""
UNKNOWN_BYTES_PER_S = 2e12
UNKNOWN_L2_BYTES_PER_S = 5e12
UNKNOWN_LAUNCH_S = 1e-6
"""Where nobody measured the device: only the order of the predictions counts."""
_BYTES_A_WARP = 2048
"""What a warp has under way in registers, where a kernel stages nothing in shared memory."""
_RESERVED_BYTES = 1024
"""Shared memory that a resident block takes beside its own; an SM has one such share more than a block may use."""
_SMALL_SM = {86: (48, 16), 87: (48, 16), 89: (48, 24), 120: (48, 24), 121: (48, 24)}
_USUAL_SM = (64, 32)
"""Warps and blocks that an SM holds, by the CUDA programming guide's table of compute capabilities."""
MOST_DIFFERENCES = 2


@dataclass(frozen=True)
class Rates:
    """What the model knows of a device beside its `Target`: seconds of a launch, bytes a second of memory and cache."""

    launch_s: float = UNKNOWN_LAUNCH_S
    bytes_per_s: float = UNKNOWN_BYTES_PER_S
    l2_bytes_per_s: float = UNKNOWN_L2_BYTES_PER_S


@dataclass(frozen=True)
class Candidate:
    """A tile with the name that times and rows know it by, and the time that the model gives it."""

    tile: Tile
    predicted_s: float

    @property
    def key(self) -> str:
        return spelled(self.tile)


def spelled(tile: Tile) -> str:
    """`block_k=64 block_m=16`, the same for equal tiles."""
    return " ".join(f"{name}={tile[name]}" for name in sorted(tile))


def predict_s(footprint: Footprint, target: Target, rates: Rates, least_bytes: int) -> float:
    """Launches, and the bytes at the rate that the loads under way allow, in whole waves of programs.

    Of the tile's traffic, `least_bytes` come from memory; what goes beyond is read or written again while the
    cache has it.
    """
    most_warps, most_blocks = _SMALL_SM.get(target.compute_capability, _USUAL_SM)
    by_shared = (target.shared_bytes + _RESERVED_BYTES) // (footprint.shared_bytes + _RESERVED_BYTES)
    resident = max(1, min(most_blocks, most_warps // max(footprint.warps, 1), by_shared))
    slots = max(1, target.sm_count) * resident
    programs = max(1, footprint.programs)
    under_way = min(programs, slots) * max(footprint.shared_bytes, footprint.warps * _BYTES_A_WARP)
    again_bytes = max(footprint.bytes_moved - least_bytes, 0)
    limited_s = least_bytes / rates.bytes_per_s + again_bytes / rates.l2_bytes_per_s
    loading_s = max(limited_s, footprint.bytes_moved * LATENCY_S / under_way)
    waves = programs / slots
    idle = math.ceil(waves) / waves if waves > 1 else 1.0
    return footprint.launches * rates.launch_s + idle * loading_s


def legal(footprint: Footprint, target: Target) -> bool:
    """Whether the device can hold one program at all."""
    return not target.shared_bytes or footprint.shared_bytes <= target.shared_bytes


def candidates(
    tiles: Sequence[Tile], footprints: Sequence[Footprint] | None, target: Target, rates: Rates, least_bytes: int
) -> list[Candidate]:
    """The tiles that fit, fastest by the model first. Without footprints all are alike, in their order."""
    if footprints is None:
        return [Candidate(tile, 0.0) for tile in tiles]
    made = [
        Candidate(tile, predict_s(footprint, target, rates, least_bytes))
        for tile, footprint in zip(tiles, footprints, strict=True)
        if legal(footprint, target)
    ]
    return sorted(made, key=lambda candidate: (candidate.predicted_s, candidate.key))


def pick(ranked: Sequence[Candidate], count: int) -> list[Candidate]:
    """At most `count` to begin with: half by the model, half so that every value of every field is tried.

    A value is tried in the best tile, by the model, that has it: what the model does not see, such as warps,
    so gets its chance. `ranked` comes from `candidates`.
    """
    covering: dict[tuple[str, Any], Candidate] = {}
    for candidate in ranked:
        for field, value in candidate.tile.items():
            covering.setdefault((field, value), candidate)
    chosen = {candidate.key: candidate for candidate in ranked[: max(1, count // 2)]}
    for candidate in sorted(covering.values(), key=lambda one: (one.predicted_s, one.key)):
        if len(chosen) < count:
            chosen.setdefault(candidate.key, candidate)
    for candidate in ranked:
        if len(chosen) >= count:
            break
        chosen.setdefault(candidate.key, candidate)
    return list(chosen.values())


def near(
    ranked: Sequence[Candidate], centers: Sequence[Tile], tried: Collection[str], count: int, most: int | None = None
) -> list[Candidate]:
    """At most `count` untried candidates that differ from one of the centers in one or two fields, nearest first.

    With `most`, at most so many of each center. Centers take turns, so that each gets its share.
    """
    known = set(tried)
    around = [_ring(ranked, center) for center in centers]
    found: list[Candidate] = []
    for turn in range(max(map(len, around), default=0)):
        for ring in around:
            if turn < len(ring) and len(found) < count and ring[turn].key not in known:
                known.add(ring[turn].key)
                found.append(ring[turn])
    return found


def _ring(ranked: Sequence[Candidate], center: Tile) -> list[Candidate]:
    """Those that differ from the center in one or two fields, nearest first and then fastest by the model."""
    apart = [(differences(one.tile, center), one.predicted_s, place) for place, one in enumerate(ranked)]
    return [ranked[place] for count, _, place in sorted(one for one in apart if 1 <= one[0] <= MOST_DIFFERENCES)]


def like(ranked: Sequence[Candidate], tiles: Sequence[Tile]) -> list[Candidate]:
    """For each of these tiles, which another case may have, the candidate that differs from it least."""
    found = {}
    for tile in tiles:
        if ranked:
            nearest = min(ranked, key=lambda one: (differences(one.tile, tile), one.predicted_s))
            found[nearest.key] = nearest
    return list(found.values())


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    """Fields in which two tiles differ."""
    if one.keys() == other.keys():
        return sum(map(operator.ne, one.values(), map(other.__getitem__, one)))
    return sum(one.get(name) != other.get(name) for name in {*one, *other})
