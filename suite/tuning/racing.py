"""The search of one case on a device: race, finals, confirmation. Pure but for the device it is given.

All candidates run in the same interleaved rounds, and those that are surely slower than the best so far drop out;
tiles near the best join in. The last few are checked, timed again on fresh samples, and the winner once more beside
its runner-up and the tile that would be used without a search. Given the device's answers the result is determined.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gemmgate.suite.cases import Tile
from gemmgate.suite.statistics import Interval, ratio_interval
from gemmgate.suite.tuning.candidates import Candidate, near

Samples = Mapping[str, Sequence[float]]
"""Seconds a call by key, the i-th of each from the same round."""
AROUND = 3
"""Times the candidates that join: so many are looked for, and those that do not join yet are told to `ahead`."""


@dataclass(frozen=True)
class Rules:
    """How much of what a search does.

    On seven H200 cases of which every tile was timed, 28 first and three times 10 that join come to picks as good, from
    a third more tiles, and wait for the compilers once more.
    """

    first: int = 18
    joining: int = 12
    joins: int = 2
    centers: int = 3
    rounds: tuple[int, ...] = (4, 4, 8, 8)
    finalists: int = 4
    final_rounds: int = 20
    margin: float = 0.005
    clear: float = 1.15
    confidence: float = 0.998


class Device(Protocol):
    """What a search needs: real compilers and a GPU, or a table of known times."""

    def mount(self, candidates: Sequence[Candidate]) -> Mapping[str, str]:
        """Makes candidates ready to be timed; for each key what is wrong with it, or an empty text."""
        ...

    def time(self, keys: Sequence[str], rounds: int, *, fresh: bool = False) -> Samples:
        """Interleaved rounds; with `fresh`, over buffers that no earlier sample used."""
        ...

    def check(self, key: str) -> str:
        """What is wrong with its results, or an empty text."""
        ...

    def drop(self, keys: Sequence[str]) -> None:
        """These will not be timed again, except that finals may mount them anew."""
        ...

    def confirm(self, keys: Sequence[str]) -> Samples:
        """The full method of a measurement; a key that fails there is missing from the answer."""
        ...


@dataclass
class Search:
    """What a search came to. `winner` is None where nothing was right, or nothing could be timed.

    `incumbent` is what the implementation chooses without a search.
    """

    incumbent: str | None = None
    winner: str | None = None
    runner_up: str | None = None
    tiles: dict[str, Tile] = field(default_factory=dict)
    raced_s: dict[str, list[float]] = field(default_factory=dict)
    final_s: Samples = field(default_factory=dict)
    confirmed_s: Samples = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def gain(self) -> Interval | None:
        """Time of the incumbent over that of the winner, from the confirmation alone; None without both."""
        if self.winner is None or self.incumbent is None or self.incumbent not in self.confirmed_s:
            return None
        return ratio_interval(self.confirmed_s[self.incumbent], self.confirmed_s[self.winner], paired=True)


def search(
    ranked: Sequence[Candidate],
    begin_with: Sequence[Candidate],
    device: Device,
    *,
    incumbent: Candidate | None = None,
    rules: Rules = Rules(),
    ahead: Callable[[Sequence[Candidate]], object] = lambda guessed: None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Search:
    """Searches the candidates, those of `begin_with` first, the incumbent among them where there is one.

    `ahead` is told of candidates that may join later; what it does with them changes nothing here. Where time runs
    out, what is known by then goes to the finals.
    """
    found = Search(incumbent=incumbent.key if incumbent else None)
    alive = _mount(begin_with, device, found)
    for turn, rounds in enumerate((rules.rounds[0],) * rules.joins + rules.rounds):
        if not alive or (turn and out_of_time()):
            break
        alive = _race(alive, rounds, device, found, rules)
        if turn < rules.joins:
            best = sorted(alive, key=lambda key: _raced_s(found, key))[: rules.centers]
            tried = {*found.raced_s, *found.failed}
            around = near(ranked, [found.tiles[key] for key in best], tried, AROUND * rules.joining)
            if turn + 1 < rules.joins:
                ahead(around[rules.joining :])
            alive += _mount(around[: rules.joining], device, found)
        elif len(alive) <= rules.finalists:
            break
    finalists = _right(sorted(found.raced_s, key=lambda key: _raced_s(found, key)), device, found, rules.finalists)
    if not finalists:
        return found
    beside = [key for key in (found.incumbent,) if key and key not in finalists and _is_right(key, device, found)]
    found.final_s = device.time([*finalists, *beside], rules.final_rounds, fresh=True)
    order = sorted(found.final_s, key=lambda key: statistics.median(found.final_s[key]))
    found.confirmed_s = device.confirm(order[:2] + [key for key in order[2:] if key == found.incumbent])
    order = _settled(found)
    found.winner, found.runner_up = order[0] if order else None, order[1] if len(order) > 1 else None
    return found


def survivors(samples: Mapping[str, Sequence[float]], rules: Rules) -> list[str]:
    """Keys that may still be the best: not surely slower than the fastest, by the rounds that both ran in."""
    leader = min(samples, key=lambda key: statistics.median(samples[key]))
    best_s = samples[leader]
    kept = []
    for key, values in samples.items():
        if key != leader:
            both = min(len(values), len(best_s))
            ratio = ratio_interval(best_s[-both:], values[-both:], paired=True, confidence=rules.confidence)
            is_clear = min(values[-both:]) > rules.clear * max(best_s[-both:])
            if is_clear or ratio.high < 1 / (1 + rules.margin):
                continue
        kept.append(key)
    return kept


def _mount(candidates: Sequence[Candidate], device: Device, found: Search) -> list[str]:
    """Keys that are ready; the others have failed."""
    wrong = device.mount(candidates) if candidates else {}
    for candidate in candidates:
        found.tiles[candidate.key] = candidate.tile
        if reason := wrong[candidate.key]:
            found.failed[candidate.key] = reason
    return [candidate.key for candidate in candidates if not wrong[candidate.key]]


def _race(alive: Sequence[str], rounds: int, device: Device, found: Search, rules: Rules) -> list[str]:
    """A stage: those that are left after it. The incumbent may drop out here: the finals bring it back."""
    for key, values in device.time(alive, rounds).items():
        found.raced_s.setdefault(key, []).extend(values)
    raced = {key: found.raced_s[key] for key in alive if key in found.raced_s}
    kept = survivors(raced, rules) if raced else []
    device.drop([key for key in alive if key not in kept])
    return kept


def _raced_s(found: Search, key: str) -> float:
    return statistics.median(found.raced_s[key])


def _right(order: Sequence[str], device: Device, found: Search, count: int) -> list[str]:
    """The first `count` of an order whose results are right."""
    right: list[str] = []
    for key in order:
        if len(right) == count:
            break
        if _is_right(key, device, found):
            right.append(key)
    return right


def _is_right(key: str, device: Device, found: Search) -> bool:
    """Checks it, unless it failed or was never ready."""
    if key in found.failed or key not in found.raced_s:
        return False
    if wrong := device.check(key):
        found.failed[key] = wrong
    return not wrong


def _settled(found: Search) -> list[str]:
    """Fastest first by all fresh samples, of those that the confirmation did not lose."""

    def log_s(key: str) -> float:
        logs = [math.log(seconds) for seconds in (*found.final_s[key], *found.confirmed_s[key])]
        return statistics.median(logs)

    return sorted(found.confirmed_s, key=log_s)
