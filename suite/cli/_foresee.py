"""What a gate would take, for who asks before it begins; and what stored runs of a machine know that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.checkouts import Checkouts
from gemmgate.suite.cli import _terminal
from gemmgate.suite.cli._compiled_ahead import FEWEST
from gemmgate.suite.cli._gate_sides import Asked, find_items, make_sides, probe, sources_of, untouched
from gemmgate.suite.cli._stored import gathered
from gemmgate.suite.errors import unknown
from gemmgate.suite.forecast import IN_TURNS, ON_A_CPU, ON_A_GPU, Costs, Forecast, costs_of, forecast
from gemmgate.suite.judged import is_unchanged
from gemmgate.suite.looks import Noise
from gemmgate.suite.offers import Offer
from gemmgate.suite.records import METHOD_VERSION, Machine, Run
from gemmgate.suite.store import Store
from gemmgate.suite.watch import noise_by_case, whole

HERE = "here"


def foresee(asked: Asked, store: Store, checkouts: Checkouts, machine: str) -> Forecast:
    """Of this machine, or of one that stored runs know by a glob. Only `here` starts a worker, which tells its name."""
    known = {info.machine for folder in (store.calibrations, store.gates, store) for info in folder.runs()}
    keys = [key for key in sorted(known) if fnmatchcase(key, machine)]
    if machine != HERE and len(keys) != 1:
        raise unknown("machine", machine, [HERE, *(keys or known)])
    sides = make_sides(asked, checkouts)
    both, _, fresh = find_items(asked, sides)
    here = probe(asked.device, sides).machine if machine == HERE else None
    past = blocks_on(store, here.key if here else keys[0])
    on = here or _newest(past, keys[0])
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
    _terminal.say(f"machine {on.key}: {len(both)} items on both sides, {len(fresh)} new, {len(left)} untouched.")
    if may_be_same and not everything:
        _terminal.say(f"{len(may_be_same)} have equal sources; where the machine code is too, they are not timed.")
    noise = {path: Noise(*told) for path, told in noise_of_items(past, on, both).items()}
    kernels = sum(offer.may_be_own for offer in (*both, *fresh))
    return forecast(
        len(both) + len(fresh),
        [noise.get(path) for path in timed],
        costs_on(past, on),
        gates_time=on.is_gpu,
        compiled=kernels if on.is_gpu and kernels >= FEWEST else 0,
    )


def blocks_on(store: Store, key: str) -> list[Run]:
    """Finished calibrations and gates of a machine, oldest first; says how many cannot be read."""
    found = gathered([store.calibrations, store.gates], lambda info: info.machine == key)
    return sorted((run for runs in found for run in whole(runs)), key=lambda run: run.utc)


def costs_on(past: Sequence[Run], machine: Machine) -> Costs:
    """Seconds by calibrations and gates of a machine, in which workers shared it or took turns as now."""
    default = IN_TURNS if machine.takes_turns else ON_A_GPU if machine.is_gpu else ON_A_CPU
    return costs_of(_alike(past, machine), default)


def noise_of_items(past: Sequence[Run], machine: Machine, both: Sequence[Offer]) -> dict[str, list[Any]]:
    """What calibrations of a machine and gates of unchanged code, by the present method, know of the items' noise."""
    paths = {offer.path for offer in both}
    runs = [run for run in _alike(past, machine) if run.method == METHOD_VERSION]
    found = noise_by_case([run for run in runs if "base" not in run.selection or is_unchanged(run)])
    return {path: [n.sd, n.two_modes, n.source, n.blocks] for path, n in found.items() if path in paths}


def _alike(past: Sequence[Run], machine: Machine) -> list[Run]:
    """Blocks in turns are others than those of workers that share the device."""
    return [run for run in past if run.machine.takes_turns == machine.takes_turns]


def _newest(past: Sequence[Run], key: str) -> Machine:
    """A machine as its newest blocks have it; by its name alone where there are none."""
    return past[-1].machine if past else Machine(key, key)
