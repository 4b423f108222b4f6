"""Workers that answer at once, from a world in which every time is known, and the loop over blocks with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from gemmgate.suite.block_values import BASELINE, CANDIDATE, BlockValue
from gemmgate.suite.blocks import BlockPlan, Blocks
from gemmgate.suite.cases import Case, Family
from gemmgate.suite.catalog import Item
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.pairs import EDITED
from gemmgate.suite.records import Row
from gemmgate.suite.workers import WorkerLost


def _cases(*names: str) -> tuple[Case, ...]:
    return tuple(Case("f", name, {"n": 8}, "bf16", "acc32") for name in names)


FAMILY = Family(
    "f",
    "kernel",
    _cases("a", "b", "c"),
    (),
    (),
    flop=lambda case: 1000,
    bytes_moved=lambda case: 100,
    make_inputs="x:y",
    reference="x:y",
    error_bound=lambda case: 1e-3,
)
BROKEN = {"status": "broken", "reason": "not_finite", "detail": "NaN", "fatal": False}
ITEMS = [Item(FAMILY, case, "mm") for case in FAMILY.cases]


class World:
    """What the workers share: a log of what happened, a clock, and the faults to come.

    `memory_share` is what an item takes of the device's memory, `edited` the edited side's true change.
    `settles_at` is a case's clock in hertz, unknown otherwise.
    With `exclusive` only one may be on the device, which `nvml` lists; each visit takes a share of `drift` more.
    `launch_sd` scatters the log time from one worker to the next, `slower` is the candidate's true change.
    `timed` are cases whose preparing may take times.
    `faults` maps (side, operation, case) to what happens there, each once: an outcome, or `dies`.
    """

    def __init__(self, *, gpu: bool = True, launch_sd: float = 0.0, slower: float = 0.0, call_s: float = 1e-5) -> None:
        self.gpu = gpu
        self.launch_sd = launch_sd
        self.slower = slower
        self.call_s = call_s
        self.log: list[tuple[Any, ...]] = []
        self.timed: set[str] = set()
        self.faults: dict[tuple[str, str, str], list[Any]] = {}
        self.marks: Callable[[str, int], list[str]] = lambda side, count: []
        self.node_s: Callable[[str, int], float | None] = lambda side, count: 0.73e-6
        self.visits = 0
        self.now = 0.0
        self.random = np.random.default_rng(7)
        self.started = 0
        self.alive = 0
        self.board = "b"
        self.edited = 0.0
        self.memory_share = 0.0
        self.held: dict[int, int] = {}
        self.settles_at: dict[str, float] = {}
        self.exclusive = False
        self.drift = 0.0
        self.nvml = FakeNvml()

    def start(self, side: str) -> FakeWorker:
        return FakeWorker(self, side)

    def said(self, operation: str) -> list[tuple[Any, ...]]:
        return [entry for entry in self.log if entry[0] == operation]


class FakeNvml:
    """As `pynvml`, as far as `Tenants` uses it: one board whose processes stay listed a few looks after their end."""

    NVMLError = RuntimeError
    STAYS = -1

    def __init__(self, uuid: str = "GPU-b") -> None:
        self.uuid = uuid
        self.lingers = 2
        self.looks = 0
        self.listed: dict[int, int] = {}
        """How many more looks a process is seen, by its number."""

    def nvmlInit(self) -> None: ...  # noqa: N802  NVML's name

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802  NVML's name
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802  NVML's name
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802  NVML's name
        return self.uuid

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:  # noqa: N802  NVML's name
        self.looks += 1
        self.listed = {pid: left for pid, left in self.listed.items() if left}
        seen = [SimpleNamespace(pid=pid) for pid in self.listed]
        self.listed = {pid: left - (left > 0) for pid, left in self.listed.items()}
        return seen


class FakeWorker:
    """As `Worker`, as far as `Blocks` uses it."""

    def __init__(self, world: World, side: str) -> None:
        self.world = world
        self.side = side
        world.started += 1
        world.alive += 1
        self.number = world.started
        self.pid = 1000 + self.number
        self.machine = SimpleNamespace(board=world.board)
        self.target = SimpleNamespace(is_gpu=world.gpu)
        self.flags = {"acc32": {"f": "1"}}
        self.case = ""
        self.steps_s: dict[str, float] = {}
        self.launch: dict[str, float] = {}
        self._dead = False
        self._reply: dict[str, Any] = {}
        world.log.append(("start", side, self.number))

    def greet(self, beside: Any = ()) -> None:
        if self.world.exclusive and self.world.nvml.listed:
            raise CannotMeasureError("all CUDA-capable devices are busy or unavailable")
        self.world.nvml.listed[self.pid] = FakeNvml.STAYS
        self.world.log.append(("greet", self.side, tuple(beside)))

    def meet(self) -> None: ...

    def post(self, op: str, deadline_s: float, **fields: Any) -> None:
        self.world.now += 0.1
        self._reply = self._answer(op, fields)

    def collect(self) -> dict[str, Any]:
        if self._reply.get("dies"):
            raise WorkerLost("error", "sigsegv", "the worker ended with signal SIGSEGV", {})
        return self._reply

    def stop(self) -> None: ...

    def kill(self) -> None:
        if self.world.nvml.listed.get(self.pid) == FakeNvml.STAYS:
            self.world.nvml.listed[self.pid] = self.world.nvml.lingers
        self.world.alive -= not self._dead
        self._dead = True

    def _answer(self, op: str, fields: dict[str, Any]) -> dict[str, Any]:
        world = self.world
        if "item" in fields:
            self.case = fields["item"].rpartition("/")[2]
        if op == "prepare":
            self.case = fields["case"]["name"]
            self.launch[self.case] = math.exp(world.random.normal(0.0, world.launch_sd))
        world.log.append((op, self.side, self.case, self.number, fields))
        waiting = world.faults.get((self.side, op, self.case), [])
        if waiting:
            fault = waiting.pop(0)
            return {"dies": True} if fault == "dies" else fault
        return {"ok": True, "at": {}, **getattr(self, f"_{op}")(fields)}

    def _supports(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"timed": [[case["name"] in self.world.timed] * len(names) for case, names in fields["pairs"]]}

    def _prepare(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"tile": {"block": 64} if self.side == CANDIDATE else None, "algorithm": "fake", "compile_s": 0.1}

    def _check(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"error": 1e-4, "error_bound": 1e-3, "check_s": 0.1}

    def _mount(self, fields: dict[str, Any]) -> dict[str, Any]:
        extras = {level: extra or [3, 1234.0] for level, extra in fields.get("extras", {}).items()}
        self.world.held[self.number] = self.world.held.get(self.number, 0) + 1
        return {
            "passes": fields.get("passes") or 2,
            "calls": 128,
            "timer": "graph",
            "kernels": 1,
            "extras": extras,
            "free_share": 1.0 - self.world.memory_share * self.world.held[self.number],
        }

    def _drop(self, fields: dict[str, Any]) -> dict[str, Any]:
        self.world.held[self.number] = 0
        return {}

    def _settle(self, fields: dict[str, Any]) -> dict[str, Any]:
        clock_hz = self.world.settles_at.get(self.case)
        marks = ["power_limited"] if self.case == "c" else []
        return {"joules": 0.5, "marks": marks, "steady": True, "sm_clock_hz": clock_hz}

    def _lead(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _visit(self, fields: dict[str, Any]) -> dict[str, Any]:
        world = self.world
        world.visits += 1
        slower = (1 + world.slower) * (1 + fields["level"]) if self.side == CANDIDATE else 1.0
        slower *= 1 + world.drift * world.visits
        slower *= 1 + world.edited if self.side == EDITED else 1.0
        seconds = world.call_s * slower * self.launch[self.case]
        clock_hz = 1.98e9 if self.side == BASELINE else 1.96e9
        return {
            "samples_s": [seconds] * fields["replays"],
            "sm_clock_hz": clock_hz,
            "power_w": 300.0,
            "marks": world.marks(self.side, world.visits),
            "node_s": world.node_s(self.side, world.visits),
        }


class Quiet:
    """A progress display that only remembers faults."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def block(self, index: int, count: int) -> None: ...

    def item(self, path: str, index: int, count: int) -> None: ...

    def fault(self, path: str, sentence: str) -> None:
        self.faults.append(f"{path}: {sentence}")


def run(world: World, **fields: Any) -> tuple[Blocks, list[Row], list[BlockValue], Quiet]:
    """All of a plan: by default one case in two blocks."""
    rows, progress = list(fields.pop("rows", ())), Quiet()
    kept = list(rows)
    plan = BlockPlan(**{"items": ITEMS[:1], "blocks": range(2), "cache": "cold", **fields})
    running = Blocks(plan, world.start, sink=rows.extend, progress=progress, rows=kept, begun=0.0)
    found = list(running.run())
    assert world.alive == 0
    return running, rows[len(kept) :], found, progress


def visited(world: World) -> str:
    """Sides in the order of their visits, b for baseline."""
    return "".join(entry[1][0] for entry in world.said("visit"))
