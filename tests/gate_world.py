"""A gate played by workers that answer at once: each case takes what the test says, on either side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.catalog import Item
from gemmgate.suite.duet import Duet, DuetPlan
from gemmgate.suite.forecast import ON_A_GPU, Costs
from gemmgate.suite.looks import Noise
from gemmgate.suite.records import Row, Run, Stack
from tests.fake_pair import FAMILY, ITEMS, FakeWorker, Quiet, World
from tests.runs import H200, STACK, run

CPU = replace(H200, key="cpu-xeon-2c", model="Xeon")
COMMITS = {"base": "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567", "head": "f00dfeed00112233445566778899aabbccddeeff"}


class GateWorld(World):
    """`changes` maps a case to how much longer the candidate takes; `facts` to what `prepare` says, by side and case.

    `block_sd` scatters the launches so that blocks have that standard deviation.
    """

    def __init__(
        self,
        changes: Mapping[str, float] | None = None,
        *,
        gpu: bool = True,
        block_sd: float = 0.004,
        facts: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
        seed: int = 7,
    ) -> None:
        super().__init__(gpu=gpu, launch_sd=block_sd / math.sqrt(2))
        self.random = np.random.default_rng(seed)
        self.changes = changes or {}
        self.facts = facts or {}
        self.clock_hz: dict[str, float] = {}

    def start(self, side: str) -> FakeWorker:
        return GateWorker(self, side)


class GateWorker(FakeWorker):
    """As a worker of a gate, as far as survey and blocks use it."""

    world: GateWorld

    def __init__(self, world: GateWorld, side: str) -> None:
        super().__init__(world, side)
        self.stack = STACK

    def _prepare(self, fields: dict[str, Any]) -> dict[str, Any]:
        told = self.world.facts.get((self.side, self.case), {})
        tile = fields["tile"] or {"block": 64}
        return {"tile": tile, "algorithm": "fake", "device_code": "c0de", "compile_s": 0.1, **told}

    def _mount(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {**super()._mount(fields), "launches": f"grid of {self.case}"}

    def _visit(self, fields: dict[str, Any]) -> dict[str, Any]:
        visit = super()._visit(fields)
        change = self.world.changes.get(self.case, 0.0) if self.side == CANDIDATE else 0.0
        clock_hz = self.world.clock_hz.get(self.side, 1.98e9)
        return {**visit, "samples_s": [(1 + change) * s for s in visit["samples_s"]], "sm_clock_hz": clock_hz}


class Played:
    """A duet that has run, with the run that it would have stored."""

    def __init__(
        self,
        world: GateWorld,
        items: Sequence[Item] = ITEMS,
        *,
        fresh: Sequence[Item] = (),
        noise: Mapping[str, Noise] | None = None,
        same: Sequence[str] = (),
        rows: Sequence[Row] = (),
        everything: bool = False,
        against: Sequence[str] = (),
        release: GateWorld | None = None,
        seconds: float | None = None,
        costs: Costs = ON_A_GPU,
        **selection: Any,
    ) -> None:
        self.rows = list(rows)
        self.quiet = Quiet()
        known = {item.path: Noise(0.004, source="a calibration") for item in items} if noise is None else noise
        sources = {
            side: {item.path: "same" if item.case.name in same else side for item in items}
            for side in (BASELINE, CANDIDATE)
        }
        plan = DuetPlan(items, fresh, known, "cold", world.gpu, everything, sources=sources, seconds=seconds)
        duet = Duet(
            plan,
            world.start,
            sink=self.rows.extend,
            rows=lambda: tuple(self.rows),
            display=self._display,
            begun=0.0,
            costs=costs,
        )
        duet.run()
        if against:
            duet.against(against, (release or world).start, {})
        assert world.alive == 0
        self.run = gate_run(world, plan, self.rows, **selection)

    @contextmanager
    def _display(self) -> Iterator[Quiet]:
        yield self.quiet


def gate_run(world: GateWorld, plan: DuetPlan, rows: Sequence[Row], **selection: Any) -> Run:
    """The run of such a gate, without a date or a size that could differ."""
    told = {"dirty": False, "python": ""}
    return run(
        [replace(row, utc="2026-01-31T12:00:00Z") for row in rows],
        machine=H200 if world.gpu else CPU,
        stack=STACK,
        commit=COMMITS["head"],
        seconds={"total": 252.0},
        selection={
            "base": {**told, "revision": "origin/main", "commit": COMMITS["base"], "tree": "aaaa"},
            "head": {**told, "revision": "", "commit": COMMITS["head"], "tree": "bbbb"},
            "baseline_stack": asdict(selection.pop("baseline_stack", STACK)),
            "cache": "cold",
            "gates_time": world.gpu,
            "everything": plan.everything,
            "items": [[i.family.name, i.case.name, i.implementation] for i in plan.items],
            "missing": selection.pop("missing", []),
            "new": [[i.family.name, i.case.name, i.implementation] for i in plan.fresh],
            "files": {"f/mm": "kernels/f/mm.py"},
            "noise": {path: [n.sd, n.two_modes, n.source, n.blocks] for path, n in plan.noise.items()},
            "accepted": selection.pop("accepted", ""),
            **selection,
        },
    )


def cases(*names: str) -> list[Item]:
    """Items of the fake family."""
    return [item for item in ITEMS if item.case.name in names]


OTHER_STACK = replace(STACK, triton="3.7.1")
__all__ = ["CANDIDATE", "FAMILY", "ITEMS", "OTHER_STACK", "GateWorld", "Played", "Stack", "cases", "gate_run"]
