"""From what was asked of a gate to the stored run: sides, items, noise, lock, measuring."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from gemmgate.suite import offers
from gemmgate.suite.acceptances import may_be_accepted, read_acceptances
from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.catalog import Item, Selection
from gemmgate.suite.checkouts import ACCEPTED, Checkouts, SideTree
from gemmgate.suite.cli import _terminal
from gemmgate.suite.cli._beginning import begin_run
from gemmgate.suite.cli._compiled_ahead import compile_ahead
from gemmgate.suite.cli._compiled_sides import ARCHITECTURES, compile_sides
from gemmgate.suite.cli._foresee import blocks_on, costs_on, noise_of_items
from gemmgate.suite.cli._gate_sides import (
    Asked,
    Sides,
    alone_on,
    files_of,
    find_items,
    make_sides,
    probe,
    side_caches,
    sources_of,
    untouched,
)
from gemmgate.suite.cli._measuring import CACHES
from gemmgate.suite.cli._progress import BlockDisplay
from gemmgate.suite.commits import Commit
from gemmgate.suite.duet import Duet, DuetPlan
from gemmgate.suite.errors import UsageError
from gemmgate.suite.forecast import Costs, forecast
from gemmgate.suite.judged import judged
from gemmgate.suite.judged_static import KIND
from gemmgate.suite.locks import board_lock
from gemmgate.suite.looks import Noise
from gemmgate.suite.offers import Offer
from gemmgate.suite.records import Machine, Run, Stack
from gemmgate.suite.store import Journal, Store


def measure(asked: Asked, store: Store, folder: Path, begun: float) -> Run:
    """Measures what is needed for a judgement, stores it, and gives the stored run. The sides are put into `folder`."""
    earlier = store.gates.load(asked.resume) if asked.resume else None
    asked = _resumed(asked, earlier) if earlier else asked
    if asked.cache not in ("", *CACHES):
        raise UsageError(f"--cache is one of {', '.join(CACHES)}.")
    checkouts = Checkouts(folder, asked.suites)  # those of the gate that is resumed
    sides = make_sides(asked, checkouts)
    base, head = (sides.trees[side] for side in (BASELINE, CANDIDATE))
    for name, side in (("base", base), ("head", head)):
        _terminal.say(f"{name} is {side.commit[:10]}{' with changes' if side.dirty else ''}.")
    both, missing, fresh = find_items(asked, sides)
    probed = probe(asked.device, sides)
    machine, stacks = probed.machine, probed.stacks
    if asked.head and base.tree == head.tree and stacks[BASELINE] == stacks[CANDIDATE] and not asked.everything:
        _terminal.say("both sides are the same sources in the same stack: everything is timed, as a test of the gate.")
        asked = replace(asked, everything=True)
    left: list[Offer] = []
    if not asked.everything and stacks[BASELINE] == stacks[CANDIDATE]:
        paths = untouched(sides, both)
        left = [offer for offer in both if offer.path in paths]
        both = [offer for offer in both if offer.path not in paths]
    now = _run(asked, checkouts, sides, machine, stacks, (both, missing, fresh, left))
    if earlier:
        _refuse_other_sides(earlier, now)
    past = blocks_on(store, machine.key)
    noise = earlier.selection["noise"] if earlier else noise_of_items(past, machine, both)
    now = replace(now, selection={**now.selection, "noise": noise})
    if machine.takes_turns:
        _terminal.say("the GPU admits one process at a time: both sides take turns, three processes a block.")
    sources = sources_of(sides, both)
    plan = DuetPlan(
        offers.items(both),
        offers.items(fresh),
        {path: Noise(*told) for path, told in noise.items()},
        now.selection["cache"],
        now.selection["gates_time"],
        asked.everything,
        seconds=asked.seconds,
        sources=sources,
        commits={side: tree.commit for side, tree in sides.trees.items()},
    )
    modules = sorted({(offer.case.family, offer.implementation) for offer in [*both, *fresh]})
    gates, measured = store.gates, probed.targets[CANDIDATE].arch if machine.is_gpu else ""
    has_compiled = earlier is not None and any(row.kind == KIND for row in earlier.rows)
    compiled = [] if has_compiled else compile_sides(asked, sides, both, sources, measured, _terminal.say)
    costs = costs_on(past, machine)
    with (
        board_lock(machine.board if machine.is_gpu else "", wait=asked.wait, say=_terminal.say),
        gates.resume(asked.resume, now) if earlier else gates.begin(now) as journal,
    ):
        duet = Duet(
            plan,
            partial(sides.start, asked.device, modules),
            sink=journal.extend,
            rows=lambda: journal.rows,
            display=partial(BlockDisplay, Console(stderr=True)),
            begun=begun,
            ahead=partial(
                compile_ahead,
                sides,
                probed,
                {BASELINE: both, CANDIDATE: [*both, *fresh]},
                asked.seconds,
                _terminal.say,
            ),
            surveyed_all=partial(_say_what_follows, plan, costs, begun),
            costs=costs,
            alone=alone_on(machine),
        )
        setup_s = time.monotonic() - begun
        journal.extend(compiled)
        try:
            if plan.items or plan.fresh:
                duet.run()
                _against_release(duet, journal, asked, checkouts, sides, modules)
        except KeyboardInterrupt:
            if journal.rows:
                _terminal.say(
                    f"interrupted: what was measured is kept. Go on with `gemmgate gate --resume {journal.run.id}`."
                )
            raise typer.Exit(_terminal.INTERRUPTED) from None
        before_s = earlier.seconds if earlier else {}
        spent_s = {"setup": setup_s, **duet.spent_s, "total": time.monotonic() - begun}
        journal.update(seconds={name: taken_s + before_s.get(name, 0.0) for name, taken_s in spent_s.items()})
        if not journal.rows:
            return replace(journal.run, rows=())
        path = journal.finish()
    _terminal.say(f"stored as {path}")
    return gates.load(str(path))


def _say_what_follows(plan: DuetPlan, costs: Costs, begun: float, items: Sequence[Item]) -> None:
    """Once it is known what is timed."""
    if not items or not plan.gates_time:
        return
    found = forecast(0, [plan.noise.get(item.path) for item in items], replace(costs, setup_s=0.0), gates_time=True)
    _terminal.say(f"{len(items)} items are timed: about {found.total_s:.0f} s more where nothing changed.")
    if plan.seconds is not None:
        left_s = max(plan.seconds - (time.monotonic() - begun), 0.0)
        if found.total_s > left_s:
            _terminal.say(f"--seconds {plan.seconds:g} leaves {left_s:.0f} s: what is not reached cannot be judged.")


def _run(
    asked: Asked,
    checkouts: Checkouts,
    sides: Sides,
    machine: Machine,
    stacks: Mapping[str, Stack],
    found: tuple[list[Offer], list[Offer], list[Offer], list[Offer]],
) -> Run:
    base, head = (sides.trees[side] for side in (BASELINE, CANDIDATE))
    both, missing, fresh, left = ([[o.case.family, o.case.name, o.implementation] for o in of] for of in found)
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
        "untouched": left,
        "files": files_of(found[0], sides.trees[BASELINE]),
        "noise": {},
        "accepted": accepted,
        "suites": [str(suite) for suite in asked.suites],
        "static": list(asked.static),
    }
    return begin_run(machine, stacks[CANDIDATE], selection, Commit(head.commit, dirty=head.dirty))


def _told(side: SideTree, python: str) -> dict[str, Any]:
    return {
        "revision": side.revision,
        "commit": side.commit,
        "dirty": side.dirty,
        "tree": side.tree,
        "python": python,
    }


def _resumed(asked: Asked, earlier: Run) -> Asked:
    """The options of the gate that is resumed, under the present device and patience."""
    sides = (asked.base, asked.head, *asked.pythons)
    is_told = any(sides) or asked.selection != Selection() or asked.suites or asked.cache
    if is_told or asked.static != ARCHITECTURES:
        raise UsageError(
            f"--resume {asked.resume} goes on with what that gate began with: leave out sides, selection, --suite, "
            "--cache and --static."
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
        static=tuple(told.get("static", asked.static)),
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
    sides: Sides,
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
    launch = replace(
        sides.launch[BASELINE], overlay=release.overlay, environment=side_caches(release, sides.launch[BASELINE].python)
    )
    with_release = Sides({**sides.trees, BASELINE: release}, {**sides.launch, BASELINE: launch})
    start = partial(with_release.start, asked.device, modules)
    duet.against(paths, start, {BASELINE: release.commit, CANDIDATE: sides.trees[CANDIDATE].commit})
