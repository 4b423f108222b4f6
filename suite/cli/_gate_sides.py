"""The sides of a gate as the options name them: trees, interpreters, what they offer, and the machine they share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from gemmgate.suite import identity, offers
from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import Selection
from gemmgate.suite.checkouts import Checkouts, SideTree
from gemmgate.suite.errors import CannotMeasureError, UsageError
from gemmgate.suite.offers import Offer
from gemmgate.suite.pairs import LaunchSide
from gemmgate.suite.records import Machine, Stack, machine_key
from gemmgate.suite.tenants import Tenants
from gemmgate.suite.turns import Alone
from gemmgate.suite.workers import Worker, private_caches

KEPT_CACHES = 8
"""Compiler caches of sides that stay: those used last."""
_ANSWERS_WITHIN_S = 30.0
_CLOSED = ("exclusive_thread", "prohibited")


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
    static: tuple[str, ...] = ()
    """Architectures and machines that what changed is compiled for; empty for none."""


@dataclass(frozen=True)
class Sides:
    """Both sides on disk, and how their workers start."""

    trees: Mapping[str, SideTree]
    launch: Mapping[str, LaunchSide]

    def start(self, device: str, modules: Sequence[tuple[str, str]], side: str) -> Worker:
        return self.launch[side].start(device, self.trees[side].suites, modules)


def make_sides(asked: Asked, checkouts: Checkouts) -> Sides:
    """The sides that were asked for. Raises `UsageError` where a commit or an interpreter does not exist."""
    pythons = [python or sys.executable for python in asked.pythons]
    for python in filter(None, asked.pythons):
        _refuse_no_python(python)
    trees = {
        BASELINE: checkouts.side(BASELINE, asked.base),
        CANDIDATE: checkouts.side(CANDIDATE, asked.head),
    }
    launch = {
        side: LaunchSide(tree.overlay, python, side_caches(tree, python), tree.commit)
        for (side, tree), python in zip(trees.items(), pythons, strict=True)
    }
    return Sides(trees, launch)


def _refuse_no_python(program: str) -> None:
    """Before anything is asked of it: what else a program does with such words would read as a broken side."""
    if shutil.which(program) is None:
        raise UsageError(f"There is no interpreter {program}.")
    try:
        done = subprocess.run(
            [program, "-c", "import sys; print('Python', sys.version_info[0])"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWERS_WITHIN_S,
            check=False,
        )
        printed = done.stdout.strip().splitlines() or ["nothing"]
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{program} is no Python interpreter: {error}.") from error
    if printed[-1] != "Python 3":  # a site's own code may have printed before
        raise UsageError(f"{program} is no Python 3 interpreter: asked for its version, it printed {printed[-1]:.80}.")


def side_caches(side: SideTree, python: str) -> dict[str, str]:
    """Compiler caches of that side's sources and interpreter alone, kept for the next gate against them."""
    made = {}
    own = side.tree if python == sys.executable else f"{side.tree}-{machine_key(python)[-80:]}"
    for name, folder in private_caches().items():
        root = Path(folder).parent / "sides"
        made[name] = str(root / own / Path(folder).name)
        with suppress(OSError):  # another gate may tidy up too
            (root / own).mkdir(parents=True, exist_ok=True)
            os.utime(root / own)
            for old in sorted(root.iterdir(), key=lambda path: -path.stat().st_mtime)[KEPT_CACHES:]:
                shutil.rmtree(old, ignore_errors=True)
    return made


def find_items(asked: Asked, sides: Sides) -> tuple[list[Offer], list[Offer], list[Offer]]:
    """Offers of both sides, of the base alone and of the head alone. The base says which cases are meant."""
    selection = asked.selection
    if not selection.cases and not selection.tags and not asked.suites:
        selection = replace(selection, tags=("quick",))

    def offered(side: str) -> list[list[Offer] | UsageError]:
        tree, launch = sides.trees[side], sides.launch[side]
        asked = selection, Selection(implementations=("*",))
        return offers.ask_each(launch.python, tree.overlay, tree.suites, asked)

    with ThreadPoolExecutor() as pool:
        (old, base_every), (wanted, head_every) = pool.map(offered, (BASELINE, CANDIDATE))
    if isinstance(old, UsageError) and not isinstance(wanted, UsageError):
        raise UsageError(
            "The base has nothing of the sort, and the head does: select something that both have, beside which what "
            f"only the head has is checked. The base says: {old}"
        )
    old = _or_raise(old)
    if isinstance(wanted, UsageError):  # the base decides what is meant: the head may have nothing by that name
        wanted = []
    known = {offer.path for offer in _or_raise(base_every)}
    new = {offer.path: offer for offer in [*_or_raise(head_every), *wanted]}
    both = [offer for offer in old if offer.path in new and _means(offer) == _means(new[offer.path])]
    paths = {offer.path for offer in both}
    missing = [offer for offer in old if offer.path not in paths]
    fresh = [offer for offer in wanted if offer.path not in known and offer.path not in {o.path for o in old}]
    return both, missing, fresh


def _or_raise(found: list[Offer] | UsageError) -> list[Offer]:
    if isinstance(found, UsageError):
        raise found
    return found


def _means(offer: Offer) -> dict[str, Any]:
    """What a case's name stands for; tags and origins may change."""
    return {name: value for name, value in offer.case.to_json().items() if name not in ("tags", "origin")}


@dataclass(frozen=True)
class Probed:
    """The machine, and by side the stack of its interpreter and the device as that sees it."""

    machine: Machine
    stacks: Mapping[str, Stack]
    targets: Mapping[str, Target]


def probe(device: str, sides: Sides) -> Probed:
    """Raises where the device admits no process of ours."""
    machine = None
    by_python: dict[str, tuple[Stack, Target]] = {}
    for side, launch in sides.launch.items():
        if launch.python not in by_python:
            worker = sides.start(device, (), side)
            try:
                if machine and (alone := alone_on(machine)):
                    alone()
                worker.greet()
                worker.meet()
                by_python[launch.python] = worker.stack, worker.target
                machine = machine or worker.machine
            finally:
                worker.kill()
    assert machine is not None
    if machine.compute_mode in _CLOSED:
        raise CannotMeasureError(
            f"The GPU is in mode '{machine.compute_mode}', in which workers cannot use it as they do: "
            "`nvidia-smi -c DEFAULT` lets them, and `-c EXCLUSIVE_PROCESS` one at a time."
        )
    found = {side: by_python[launch.python] for side, launch in sides.launch.items()}
    return Probed(
        machine, {side: stack for side, (stack, _) in found.items()}, {side: one for side, (_, one) in found.items()}
    )


def alone_on(machine: Machine) -> Alone | None:
    """What workers wait for where one at a time may be on the board; None where they share it."""
    return Tenants(machine.board).wait_until_gone if machine.takes_turns else None


def files_of(found: Sequence[Offer], side: SideTree) -> dict[str, str]:
    """Where in the repository an implementation's source lies, by family and name."""
    return {
        f"{offer.case.family}/{offer.implementation}": Path(offer.file).relative_to(side.sources).as_posix()
        for offer in found
        if Path(offer.file).is_relative_to(side.sources)
    }


def sources_of(sides: Sides, both: Sequence[Offer]) -> dict[str, dict[str, str]]:
    """The hash of the sources behind each item, by side; empty for what an installed package brings."""
    return _hashes(sides, both, identity.source_hash)


def untouched(sides: Sides, both: Sequence[Offer]) -> set[str]:
    """Paths of items that are made of the same on both sides: sources, tables, and whatever they import by name."""
    hashes = _hashes(sides, both, identity.made_of_hash)
    return {path for path, text in hashes[BASELINE].items() if text and text == hashes[CANDIDATE][path]}


def _hashes(
    sides: Sides, both: Sequence[Offer], of: Callable[[Iterable[Path], Path], str]
) -> dict[str, dict[str, str]]:
    made: dict[str, dict[str, str]] = {}
    base = sides.trees[BASELINE].overlay.resolve()
    for side, tree in sides.trees.items():
        root = tree.overlay.resolve()

        @cache
        def hashed(*names: str, root: Path = root) -> str:
            if not all(Path(name).is_relative_to(base) for name in names):
                return ""
            return of([root / Path(name).relative_to(base) for name in names], root)

        made[side] = {offer.path: hashed(offer.file, offer.inputs) for offer in both}
    return made
