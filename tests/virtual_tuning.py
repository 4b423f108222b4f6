"""A tuning in time that does not pass: compilers that take as long as a test says, and a device of known times.

The searches, their order and what they ask for are the tuner's own; processes, kernels and the clock are not there.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from gemmgate.suite.cases import Target, Tile
from gemmgate.suite.catalog import Item
from gemmgate.suite.records import Limits, Row
from gemmgate.suite.tuning import tuner as module
from gemmgate.suite.tuning.pool import KEPT_SHARE
from gemmgate.suite.tuning.racing import Search
from gemmgate.suite.tuning.requests import Requests
from gemmgate.suite.tuning.tuner import Tuner

REQUEST_S = 0.005
"""Of a request whose kernels another compiler has made or is making."""
MOUNT_S, ROUND_S, CHECK_S, FIXED_S = 0.012, 4e-4, 0.01, 0.25
"""Of a tile, of a tile in a round, of a check, and of each the beginning and the confirmation of a search: about as on
an H200, where a search that waits for nothing takes 0.8 s at 0.4 of the usual width."""


@dataclass
class World:
    """What is searched. `tiles` has those of an item, `untuned` what it uses without a search, `kernels` the binaries
    of a tile, `compile_s` how long each takes, `time_s` the device's time.
    """

    tiles: Callable[[Item], Sequence[Tile]]
    footprints: Callable[[Item], Sequence[dict[str, Any]] | None]
    untuned: Callable[[Item], Tile]
    kernels: Callable[[Item, Tile], Sequence[Hashable]]
    compile_s: Callable[[Hashable], float]
    time_s: Callable[[Item, str], float]
    noise: float = 0.006
    now: float = 0.0


class VirtualPool:
    """So many compilers, of which the usual share is kept; `now` goes on where somebody waits."""

    def __init__(self, world: World, count: int) -> None:
        self.world = world
        self.count = count
        self.requests = Requests()
        self.idle = [place < int(KEPT_SHARE * count) for place in range(count)]
        self.running: list[tuple[float, int, bool, Hashable, list[Hashable]]] = []
        self.order = 0
        self.items: dict[Hashable, Item] = {}
        self.claimed: set[Hashable] = set()
        self.made: set[Hashable] = set()
        self.replies: dict[Hashable, dict[str, Any]] = {}
        self.compile_s = self.waited_s = 0.0
        self.late: list[Hashable] = []

    def submit(self, key: Hashable, op: str, item: Item, priority: float, **fields: Any) -> None:
        self.items[key] = item
        if self.requests.add(key, priority, {"op": op, **fields}):
            self._assign()

    def advance(self, index: int) -> None:
        self.requests.advance(index)
        self._assign()

    def said(self, key: Hashable) -> dict[str, Any] | None:
        return self.replies.get(key)

    def wait(self, keys: Iterable[Hashable]) -> dict[Hashable, dict[str, Any]]:
        waiting, begin = list(keys), self.world.now
        while not all(map(self._is_done, waiting)):
            assert self.running, "nobody works at what is waited for"
            self.pass_until(self.running[0][0])
        self.waited_s += self.world.now - begin
        return {key: self.replies[key] for key in waiting}

    def pass_until(self, end: float) -> None:
        """Time goes on to `end`, and the compilers with it."""
        while self.running and self.running[0][0] <= end:
            self.world.now, _, is_kept, key, mine = heapq.heappop(self.running)
            self.made.update(mine)
            self.replies[key] = self.replies.pop((key, "begun"))
            self.idle.append(is_kept)
            self._assign()
        self.world.now = max(self.world.now, end)

    def _is_done(self, key: Hashable) -> bool:
        return key in self.replies and self.made.issuperset(self.replies[key]["kernels"])

    def _assign(self) -> None:
        for is_kept in sorted(self.idle):
            if not self.requests.has(urgent=is_kept):
                continue
            self.idle.remove(is_kept)
            key, request = self.requests.take(urgent=is_kept)
            reply, mine = self._answered(self.items[key], request)
            self.replies[key, "begun"] = reply
            seconds = REQUEST_S + sum(map(self.world.compile_s, mine))
            self.compile_s += seconds
            self.order += 1
            heapq.heappush(self.running, (self.world.now + seconds, self.order, is_kept, key, mine))

    def _answered(self, item: Item, request: dict[str, Any]) -> tuple[dict[str, Any], list[Hashable]]:
        if request["op"] == "space":
            tiles = {"tiles": self.world.tiles(item), "footprints": self.world.footprints(item)}
            return {**tiles, "refusal": None, "kernels": ()}, []
        tile = request["tile"] or self.world.untuned(item)
        kernels = self.world.kernels(item, tile)
        mine = [kernel for kernel in kernels if kernel not in self.claimed]
        self.claimed.update(mine)
        return {"tile": tile, "kernels": kernels}, mine


class VirtualWorker:
    """Answers what a race asks for, and lets time pass."""

    def __init__(self, world: World, pool: VirtualPool, target: Target, item: Callable[[], Item]) -> None:
        self._world, self._pool, self._item = world, pool, item
        self._random = random.Random(1)
        self.target = target
        self.steps_s: dict[str, float] = {}
        self.flags = {"ieee": {}, "acc32": {}, "tf32": {}}
        self.machine = SimpleNamespace(board="one")

    def ask(self, op: str, deadline_s: float, **fields: Any) -> dict[str, Any]:
        step = fields.get("step", op)
        seconds, reply = getattr(self, f"_{step}")(fields)
        self._pool.pass_until(self._world.now + seconds)
        return {"ok": True, "at": {}, **reply}

    def _begin(self, fields: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        return FIXED_S, {"cold": True}

    def _mount(self, fields: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        return MOUNT_S * len(fields["tiles"]), {"outcomes": {key: {"ok": True} for key in fields["tiles"]}}

    def _time(self, fields: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        keys, rounds = fields["keys"], fields["rounds"]
        samples = {key: [self._sample_s(key) for _ in range(rounds)] for key in keys}
        again_s = MOUNT_S * len(keys) if fields["fresh"] else 0.0
        return again_s + ROUND_S * rounds * len(keys), {"samples_s": samples}

    def _check(self, fields: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        return CHECK_S, {}

    def _drop(self, fields: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        return 0.0, {}

    def _sample(self, fields: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        names = fields["implementations"]
        return FIXED_S, {"measured": {name: {"samples_s": [self._sample_s(name) for _ in range(40)]} for name in names}}

    def _sample_s(self, key: str) -> float:
        return self._world.time_s(self._item(), key) * math.exp(self._random.gauss(0, self._world.noise))


@dataclass
class Told:
    """What a tuning came to: of each search in order what it found, its width, seconds, and those that it waited."""

    pool: VirtualPool
    items: list[Item] = field(default_factory=list)
    found: list[Search] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    taken_s: list[float] = field(default_factory=list)
    waited_s: list[float] = field(default_factory=list)
    skipped: int = 0

    def searched(self, item: Item, index: int, count: int, found: Search, rows: Sequence[Row], seconds: float) -> None:
        self.items.append(item)
        self.found.append(found)
        self.taken_s.append(seconds)
        self.waited_s.append(self.pool.waited_s - sum(self.waited_s))


def tuned(
    patch: pytest.MonkeyPatch,
    world: World,
    items: Sequence[Item],
    target: Target,
    *,
    compilers: int,
    seconds: float | None = None,
    start_s: float = 0.0,
) -> Told:
    """A tuning of these items with so many compilers, of whose time `start_s` are gone before the first."""
    pool = VirtualPool(world, compilers)
    told = Told(pool)
    under_way = [items[0]]
    worker: Any = VirtualWorker(world, pool, target, lambda: under_way[0])
    gpu_of, race = Tuner._gpu, Tuner._race

    def noted_gpu(tuner: Tuner, item: Item, excluded: Any, priority: float) -> Any:
        under_way[0] = item
        return gpu_of(tuner, item, excluded, priority)

    def noted_race(tuner: Tuner, gpu: Any, space: Any, out_of_time: Callable[[], bool]) -> Search:
        told.widths.append(space.width)
        return race(tuner, gpu, space, out_of_time)

    begun = world.now
    world.now += start_s
    with patch.context() as now:
        now.setattr(module, "time", SimpleNamespace(monotonic=lambda: world.now))
        now.setattr(module, "search_rows", lambda gpu, found, measure_s: [])
        now.setattr(module, "skipped_row", lambda gpu: None)
        now.setattr(Tuner, "_gpu", noted_gpu)
        now.setattr(Tuner, "_race", noted_race)
        compilers_: Any = pool
        made = Tuner(
            items, worker, compilers_, Limits(), lambda: worker, lambda rows: None, told, begun=begun, seconds=seconds
        )
        made.run()
    told.skipped = len(made.skipped)
    return told
