"""From what was asked of a gate to the stored run: sides, items, noise, lock, measuring."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from rich.console import Console

from gemmgate.suite import identity, offers
from gemmgate.suite.acceptances import may_be_accepted, read_acceptances
from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.catalog import Selection
from gemmgate.suite.checkouts import ACCEPTED, Checkouts, SideTree
from gemmgate.suite.cli import _terminal
from gemmgate.suite.cli._block_progress import BlockDisplay
from gemmgate.suite.cli._measuring import CACHES
from gemmgate.suite.duet import Duet, DuetPlan
from gemmgate.suite.errors import CannotMeasureError, UsageError
from gemmgate.suite.judged import is_unchanged, judged
from gemmgate.suite.locks import board_lock
from gemmgate.suite.looks import Noise
from gemmgate.suite.offers import Offer
from gemmgate.suite.outcomes import utc_now
from gemmgate.suite.pairs import LaunchSide
from gemmgate.suite.records import Machine, Run, Stack, run_id
from gemmgate.suite.store import Journal, Store
from gemmgate.suite.watch import noise_by_case
from gemmgate.suite.workers import Worker, private_caches

KEPT_CACHES = 8
"""Compiler caches of sides that stay: those used last."""
_EXCLUSIVE = ("exclusive_process", "exclusive_thread", "prohibited")


@dataclass(frozen=True)
class Asked:
    """The options of a gate. `pythons` are the base's and the head's, empty for the one that runs this."""

    base: str
    head: str
    selection: Selection
    device: str
    seconds: float | None
    everything: bool
    pythons: tuple[str, str]
    wait: bool
    cache: str
    resume: str
    suites: tuple[Path, ...]
    command: str


@dataclass(frozen=True)
class _Sides:
    trees: Mapping[str, SideTree]
    launch: Mapping[str, LaunchSide]

    def start(self, device: str, modules: Sequence[tuple[str, str]], side: str) -> Worker:
        return self.launch[side].start(device, self.trees[side].suites, modules)


def measure(asked: Asked, store: Store, checkouts: Checkouts, begun: float) -> Run:
    """Measures what is needed for a judgement, stores it, and gives the stored run."""
    earlier = store.gates.load(asked.resume) if asked.resume else None
    asked = _resumed(asked, earlier) if earlier else asked
    if asked.cache not in ("", *CACHES):
        raise UsageError(f"--cache is one of {', '.join(CACHES)}.")
    sides = _sides(asked, checkouts)
    base, head = (sides.trees[side] for side in (BASELINE, CANDIDATE))
    for name, side in (("base", base), ("head", head)):
        _terminal.say(f"{name} is {side.commit[:10]}{' with changes' if side.dirty else ''}.")
    both, missing, fresh = _items(asked, sides)
    machine, stacks = _probed(asked.device, sides)
    is_same = base.tree == head.tree and stacks[BASELINE] == stacks[CANDIDATE]
    if is_same and not asked.everything:
        _terminal.say("both sides are the same sources in the same stack: everything is timed, as a test of the gate.")
        asked = replace(asked, everything=True)
    now = _run(asked, checkouts, sides, machine, stacks, (both, missing, fresh))
    if earlier:
        _refuse_other_sides(earlier, now)
    else:
        now = replace(now, selection={**now.selection, "noise": _noise(store, machine, both)})
    plan = DuetPlan(
        offers.items(both),
        offers.items(fresh),
        {path: Noise(*told) for path, told in (earlier or now).selection["noise"].items()},
        now.selection["cache"],
        now.selection["gates_time"],
        asked.everything,
        seconds=asked.seconds,
        sources=_sources(sides, both),
        commits={side: tree.commit for side, tree in sides.trees.items()},
    )
    modules = sorted({(offer.case.family, offer.implementation) for offer in [*both, *fresh]})
    gates = store.gates
    with (
        board_lock(machine.board if machine.is_gpu else "", wait=asked.wait, say=_terminal.say),
        gates.resume(asked.resume, now) if earlier else gates.begin(now) as journal,
    ):
        duet = Duet(
            plan,
            partial(sides.start, asked.device, modules),
            sink=journal.append,
            rows=lambda: journal.rows,
            display=partial(BlockDisplay, Console(stderr=True)),
            begun=begun,
        )
        if plan.items or plan.fresh:
            duet.run()
            _against_release(duet, journal, asked, checkouts, sides, modules)
        journal.update(seconds={"total": time.monotonic() - begun})
        if not journal.rows:
            return replace(journal.run, rows=())
        path = journal.finish()
    _terminal.say(f"stored as {path}")
    return gates.load(str(path))


def _sides(asked: Asked, checkouts: Checkouts) -> _Sides:
    pythons = [python or sys.executable for python in asked.pythons]
    for python in pythons:
        if shutil.which(python) is None:
            raise UsageError(f"There is no interpreter {python}.")
    trees = {
        BASELINE: checkouts.side(BASELINE, asked.base),
        CANDIDATE: checkouts.side(CANDIDATE, asked.head),
    }
    launch = {
        side: LaunchSide(tree.overlay, python, _caches(tree), tree.commit)
        for (side, tree), python in zip(trees.items(), pythons, strict=True)
    }
    return _Sides(trees, launch)


def _caches(side: SideTree) -> dict[str, str]:
    """Compiler caches of that side's sources alone, kept for the next gate against them."""
    made = {}
    for name, folder in private_caches().items():
        root = Path(folder).parent / "sides"
        made[name] = str(root / side.tree / Path(folder).name)
        with suppress(OSError):  # another gate may tidy up too
            (root / side.tree).mkdir(parents=True, exist_ok=True)
            os.utime(root / side.tree)
            for old in sorted(root.iterdir(), key=lambda path: -path.stat().st_mtime)[KEPT_CACHES:]:
                shutil.rmtree(old, ignore_errors=True)
    return made


def _items(asked: Asked, sides: _Sides) -> tuple[list[Offer], list[Offer], list[Offer]]:
    """Offers of both sides, of the base alone and of the head alone. The base says which cases are meant."""
    selection = asked.selection
    if not selection.cases and not selection.tags and not asked.suites:
        selection = replace(selection, tags=("quick",))

    def offered(side: str, what: Selection) -> list[Offer]:
        tree, launch = sides.trees[side], sides.launch[side]
        return offers.ask(launch.python, tree.overlay, tree.suites, what)

    every = Selection(implementations=("*",))
    old, known = offered(BASELINE, selection), {offer.path for offer in offered(BASELINE, every)}
    wanted: list[Offer] = []
    with suppress(UsageError):  # the base decides what is meant: the head may have nothing by that name
        wanted = offered(CANDIDATE, selection)
    new = {offer.path: offer for offer in [*offered(CANDIDATE, every), *wanted]}
    both = [offer for offer in old if offer.path in new and _means(offer) == _means(new[offer.path])]
    paths = {offer.path for offer in both}
    missing = [offer for offer in old if offer.path not in paths]
    fresh = [offer for offer in wanted if offer.path not in known and offer.path not in {o.path for o in old}]
    return both, missing, fresh


def _means(offer: Offer) -> dict[str, Any]:
    """What a case's name stands for; tags and origins may change."""
    return {name: value for name, value in offer.case.to_json().items() if name not in ("tags", "origin")}


def _probed(device: str, sides: _Sides) -> tuple[Machine, dict[str, Stack]]:
    """The machine, and the stack of each side's interpreter. Raises where no two processes may use the device."""
    stacks: dict[str, Stack] = {}
    machine = None
    by_python: dict[str, Stack] = {}
    for side, launch in sides.launch.items():
        if launch.python not in by_python:
            worker = sides.start(device, (), side)
            try:
                worker.greet()
                worker.meet()
                by_python[launch.python], machine = worker.stack, machine or worker.machine
            finally:
                worker.kill()
        stacks[side] = by_python[launch.python]
    assert machine is not None
    if machine.compute_mode.lower().replace(" ", "_") in _EXCLUSIVE:
        raise CannotMeasureError(
            f"The GPU is in mode '{machine.compute_mode}', in which the two sides cannot take turns on it: "
            "`nvidia-smi -c DEFAULT` lets them."
        )
    return machine, stacks


def _run(
    asked: Asked,
    checkouts: Checkouts,
    sides: _Sides,
    machine: Machine,
    stacks: Mapping[str, Stack],
    found: tuple[list[Offer], list[Offer], list[Offer]],
) -> Run:
    base, head = (sides.trees[side] for side in (BASELINE, CANDIDATE))
    both, missing, fresh = ([[o.case.family, o.case.name, o.implementation] for o in of] for of in found)
    utc = utc_now()
    accepted = checkouts.read(base, ACCEPTED) or ""
    read_acceptances(accepted, ACCEPTED)  # what is wrong with it is said before anything is measured
    selection: dict[str, Any] = {
        **asked.selection.to_json(),
        "base": _told(base, asked.pythons[0]),
        "head": _told(head, asked.pythons[1]),
        "baseline_stack": asdict(stacks[BASELINE]),
        "cache": asked.cache or ("cold" if machine.is_gpu else "hot"),
        "gates_time": machine.is_gpu,
        "everything": asked.everything,
        "items": both,
        "missing": missing,
        "new": fresh,
        "files": _files(found[0], sides.trees[BASELINE]),
        "noise": {},
        "accepted": accepted,
        "suites": [str(suite) for suite in asked.suites],
    }
    return Run(
        id=run_id(utc, head.commit, dirty=head.dirty),
        utc=utc,
        commit=head.commit,
        dirty=head.dirty,
        machine=machine,
        stack=stacks[CANDIDATE],
        selection=selection,
        command=asked.command,
    )


def _told(side: SideTree, python: str) -> dict[str, Any]:
    return {
        "revision": side.revision,
        "commit": side.commit,
        "dirty": side.dirty,
        "tree": side.tree,
        "python": python,
    }


def _files(found: Sequence[Offer], side: SideTree) -> dict[str, str]:
    """Where in the repository an implementation's source lies, by family and name."""
    return {
        f"{offer.case.family}/{offer.implementation}": Path(offer.file).relative_to(side.sources).as_posix()
        for offer in found
        if Path(offer.file).is_relative_to(side.sources)
    }


def _sources(sides: _Sides, both: Sequence[Offer]) -> dict[str, dict[str, str]]:
    """The hash of the sources behind each item, by side; empty for what an installed package brings."""
    made: dict[str, dict[str, str]] = {}
    base = sides.trees[BASELINE].overlay.resolve()
    for side, tree in sides.trees.items():
        root = tree.overlay.resolve()

        @cache
        def hashed(*names: str, root: Path = root) -> str:
            if not all(Path(name).is_relative_to(base) for name in names):
                return ""
            return identity.source_hash([root / Path(name).relative_to(base) for name in names], root)

        made[side] = {offer.path: hashed(offer.file, offer.inputs) for offer in both}
    return made


def _noise(store: Store, machine: Machine, both: Sequence[Offer]) -> dict[str, list[Any]]:
    """What calibrations of this machine and gates of unchanged code know of the items' noise."""
    paths = {offer.path for offer in both}
    runs = []
    for folder in (store.calibrations, store.gates):
        infos = [info for info in folder.runs() if info.machine == machine.key and info.state == "finished"]
        runs += [folder.load(str(info.path)) for info in infos]
    runs = [run for run in runs if "base" not in run.selection or is_unchanged(run)]
    found = noise_by_case(sorted(runs, key=lambda run: run.utc))
    return {path: [n.sd, n.two_modes, n.source, n.blocks] for path, n in found.items() if path in paths}


def _resumed(asked: Asked, earlier: Run) -> Asked:
    """The options of the gate that is resumed, under the present device and patience."""
    if asked.base or asked.head or asked.selection != Selection() or any(asked.pythons) or asked.suites:
        raise UsageError(
            f"--resume {asked.resume} goes on with what that gate began with: leave out sides, selection and --suite."
        )
    told = earlier.selection
    return replace(
        asked,
        base=told["base"]["revision"],
        head=told["head"]["revision"],
        selection=Selection.from_json(told),
        pythons=(told["base"]["python"], told["head"]["python"]),
        everything=told["everything"],
        cache=told["cache"],
        suites=tuple(map(Path, told["suites"])),
    )


def _refuse_other_sides(earlier: Run, now: Run) -> None:
    for side in ("base", "head"):
        then, found = (run.selection[side]["tree"] for run in (earlier, now))
        if then != found:
            raise UsageError(
                f"Gate {earlier.id} cannot be resumed: its {side} has other sources by now. Begin a new one."
            )


def _against_release(
    duet: Duet,
    journal: Journal,
    asked: Asked,
    checkouts: Checkouts,
    sides: _Sides,
    modules: Sequence[tuple[str, str]],
) -> None:
    """What an acceptance may cover is measured against the last release too, so that small steps do not add up."""
    run = replace(journal.run, rows=journal.rows)
    file = read_acceptances(run.selection["accepted"], ACCEPTED)
    paths = {
        one.path
        for one in judged(run)
        if may_be_accepted(one.comparison)
        and one.comparison.change is not None
        and any(entry.matches(one.path) for entry in file.entries)
    }
    if not paths or not run.selection["gates_time"]:
        return
    tag = checkouts.release(sides.trees[BASELINE])
    if not tag:
        _terminal.say("no release is tagged, so what was accepted since then has no budget.")
        return
    release = checkouts.side("release", tag)
    _terminal.say(f"what is accepted is measured against {tag} too.")
    launch = replace(sides.launch[BASELINE], overlay=release.overlay, environment=_caches(release))
    with_release = _Sides({**sides.trees, BASELINE: release}, {**sides.launch, BASELINE: launch})
    start = partial(with_release.start, asked.device, modules)
    duet.against(paths, start, {BASELINE: release.commit, CANDIDATE: sides.trees[CANDIDATE].commit})
