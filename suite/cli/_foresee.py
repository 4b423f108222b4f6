"""What a gate would take, for who asks before it begins; and what stored runs of a machine know that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.checkouts import Checkouts
from gemmgate.suite.cli import _terminal
from gemmgate.suite.cli._gate_sides import Asked, find_items, make_sides, probe, sources_of, untouched
from gemmgate.suite.errors import unknown
from gemmgate.suite.forecast import ON_A_CPU, ON_A_GPU, Costs, Forecast, costs_of, forecast
from gemmgate.suite.judged import is_unchanged
from gemmgate.suite.looks import Noise
from gemmgate.suite.offers import Offer
from gemmgate.suite.records import METHOD_VERSION, Run
from gemmgate.suite.store import Store
from gemmgate.suite.watch import noise_by_case

HERE = "here"


def foresee(asked: Asked, store: Store, checkouts: Checkouts, machine: str) -> Forecast:
    """Of this machine, or of one that stored runs know by a glob. Only `here` starts a worker, which tells its name."""
    known = {info.machine for folder in (store.calibrations, store.gates, store) for info in folder.runs()}
    keys = [key for key in sorted(known) if fnmatchcase(key, machine)]
    if machine != HERE and len(keys) != 1:
        raise unknown("machine", machine, [HERE, *(keys or known)])
    sides = make_sides(asked, checkouts)
    both, _, fresh = find_items(asked, sides)
    key = probe(asked.device, sides)[0].key if machine == HERE else keys[0]
    sources = sources_of(sides, both)
    may_be_same = [
        offer.path for offer in both if sources[BASELINE][offer.path] == sources[CANDIDATE][offer.path] != ""
    ]
    left: set[str] = set()
    everything = asked.everything or (asked.head and sides.trees[BASELINE].tree == sides.trees[CANDIDATE].tree)
    if not everything and sides.launch[BASELINE].python == sides.launch[CANDIDATE].python:
        left = untouched(sides, both)
        both = [offer for offer in both if offer.path not in left]
        may_be_same = [path for path in may_be_same if path not in left]
    timed = [offer.path for offer in both if everything or offer.path not in may_be_same]
    _terminal.say(f"machine {key}: {len(both)} items on both sides, {len(fresh)} new, {len(left)} untouched.")
    if may_be_same and not everything:
        _terminal.say(f"{len(may_be_same)} have equal sources; where the machine code is too, they are not timed.")
    noise = {path: Noise(*told) for path, told in noise_of_items(store, key, both).items()}
    return forecast(
        len(both) + len(fresh), [noise.get(path) for path in timed], costs_on(store, key), gates_time=is_gpu(key)
    )


def is_gpu(machine: str) -> bool:
    """By its key: those of CPUs say so."""
    return not machine.startswith("cpu-")


def costs_on(store: Store, machine: str) -> Costs:
    """Seconds by stored gates and calibrations of a machine."""
    return costs_of(_finished(store, machine), ON_A_GPU if is_gpu(machine) else ON_A_CPU)


def noise_of_items(store: Store, machine: str, both: Sequence[Offer]) -> dict[str, list[Any]]:
    """What calibrations of a machine and gates of unchanged code, by the present method, know of the items' noise."""
    paths = {offer.path for offer in both}
    runs = [run for run in _finished(store, machine) if run.method == METHOD_VERSION]
    found = noise_by_case([run for run in runs if "base" not in run.selection or is_unchanged(run)])
    return {path: [n.sd, n.two_modes, n.source, n.blocks] for path, n in found.items() if path in paths}


def _finished(store: Store, machine: str) -> list[Run]:
    """Calibrations and gates, oldest first."""
    runs = []
    for folder in (store.calibrations, store.gates):
        infos = [info for info in folder.runs() if info.machine == machine and info.state == "finished"]
        runs += [folder.load(str(info.path)) for info in infos]
    return sorted(runs, key=lambda run: run.utc)
