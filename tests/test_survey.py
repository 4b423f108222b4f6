"""What a survey asks of two sides, in which order, and what it makes of faults; on workers that answer at once."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.block_visits import BlockPlan
from gemmgate.suite.duet import Duet, DuetPlan
from gemmgate.suite.survey import Survey, Surveyed
from tests.fake_pair import BROKEN, ITEMS, Quiet
from tests.gate_world import GateWorld


def survey(world: GateWorld, *, fresh: tuple[str, ...] = ()) -> tuple[dict[str, Surveyed], Quiet]:
    """What came of each case, and what was told meanwhile."""
    progress = Quiet()
    running = Survey(BlockPlan(ITEMS, (), "cold"), world.start, progress, fresh)
    found = {one.item.case.name: one for one in running.run()}
    assert world.alive == 0
    return found, progress


def asked(world: GateWorld, case: str) -> list[str]:
    """Operation and side of each request about a case before it was mounted, as `prepare b`."""
    return [f"{op} {side[0]}" for op, side, about, *_ in world.log if about == case and op in ("prepare", "check")]


def test_both_sides_are_at_work_at_once() -> None:
    """Either side is asked before the other has answered, to prepare and then to check."""
    world = GateWorld()
    found, _ = survey(world)
    assert asked(world, "b") == ["prepare b", "prepare c", "check b", "check c"]
    assert all(one.known for one in found.values())


def test_who_takes_times_is_not_disturbed() -> None:
    """Where preparing may take times on either side, the candidate begins once the baseline is through."""
    world = GateWorld()
    world.timed = {"b"}
    survey(world)
    assert asked(world, "b") == ["prepare b", "check b", "prepare c", "check c"]
    assert asked(world, "c") == ["prepare b", "prepare c", "check b", "check c"]


@pytest.mark.parametrize("operation", ["prepare", "check"])
def test_a_fault_of_one_side_hides_none_of_the_other(operation: str) -> None:
    """Where both fail in the same request each has its own outcome, and the next case is surveyed as ever."""
    world = GateWorld()
    world.faults[BASELINE, operation, "a"] = [{**BROKEN, "detail": "the base"}]
    world.faults[CANDIDATE, operation, "a"] = [{**BROKEN, "detail": "the head"}]
    found, progress = survey(world)
    assert {side: facts["detail"] for side, facts in found["a"].facts.items()} == {
        BASELINE: "the base",
        CANDIDATE: "the head",
    }
    assert len(progress.faults) == 2
    assert found["a"].known is None and found["b"].known is not None


@pytest.mark.parametrize("faults", [["dies"], [{"status": "error", "reason": "x", "detail": "x", "fatal": False}]])
@pytest.mark.parametrize("sides", [(BASELINE,), (CANDIDATE,), (BASELINE, CANDIDATE)])
def test_a_fault_costs_its_side_a_second_try(sides: tuple[str, ...], faults: list[Any]) -> None:
    """One death or error a side, also of both at once, and every case is known all the same."""
    world = GateWorld()
    for side in sides:
        world.faults[side, "check", "b"] = list(faults)
    found, progress = survey(world)
    assert all(one.known for one in found.values())
    assert len(progress.faults) == len(sides)


def test_a_worker_that_dies_before_the_first_case_costs_no_case() -> None:
    """Where asking who takes times ends a worker, cases go one side after the other in a fresh pair."""
    world = GateWorld()
    world.faults[CANDIDATE, "supports", ""] = ["dies"]
    found, _ = survey(world)
    assert all(one.known for one in found.values())
    assert asked(world, "a") == ["prepare b", "check b", "prepare c", "check c"]


def test_what_only_the_candidate_has_is_asked_of_it_alone() -> None:
    """A fresh case is prepared and checked on one side, others on both."""
    world = GateWorld()
    survey(world, fresh=(ITEMS[1].path,))
    assert asked(world, "b") == ["prepare c", "check c"]


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_the_workers_of_the_survey_start_while_kernels_are_compiled(is_interrupted: bool) -> None:
    """Both have begun to take the device before compiling begins, survey afterwards, and end where it is cut off."""
    world = GateWorld()
    seen: list[list[str]] = []

    def ahead() -> None:
        seen.append([entry[0] for entry in world.log])
        if is_interrupted:
            raise KeyboardInterrupt

    plan = DuetPlan(ITEMS, (), {}, "cold", gates_time=False)
    duet = Duet(plan, world.start, sink=id, rows=tuple, display=lambda: nullcontext(Quiet()), ahead=ahead, begun=0.0)
    if is_interrupted:
        with pytest.raises(KeyboardInterrupt):
            duet.run()
    else:
        duet.run()
        assert {entry[3] for entry in world.said("check")} == {1, 2}
        assert "warming" in duet.spent_s
    assert seen == [["start", "start", "greet", "greet"]]
    assert world.alive == 0
