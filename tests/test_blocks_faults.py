"""The loop over blocks where workers die or fail, time runs out, or a run goes on that was cut off."""

from __future__ import annotations

import pytest

from gemmgate.suite import blocks
from gemmgate.suite.block_values import BASELINE, CANDIDATE, phase_of, values
from gemmgate.suite.blocks import BlockPlan, Blocks
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.records import Row
from tests.fake_pair import BROKEN, ITEMS, Quiet, World, run, visited

ERROR = {"status": "error", "reason": "RuntimeError", "detail": "no", "fatal": False}


def test_what_is_stored_is_not_measured_again() -> None:
    """With the rows of a run that was cut off in its second block, only what is missing there is measured."""
    _, rows, _, _ = run(World(), items=ITEMS, blocks=range(2))
    kept = [row for row in rows if not (row.phase.startswith("block 1") and row.case != "a")]
    again = World()
    _, fresh, _, _ = run(again, items=ITEMS, blocks=range(3), rows=kept)
    assert {(row.case, row.phase) for row in fresh} == {
        (case, phase_of(block, side))
        for block, cases in ((1, "bc"), (2, "abc"))
        for case in cases
        for side in (BASELINE, CANDIDATE)
    }


def test_a_worker_that_dies_costs_a_fresh_pair_and_a_second_try() -> None:
    """The case it died in is measured by two new workers, like those after it, and no value is missing."""
    world = World()
    world.faults[CANDIDATE, "visit", "b"] = ["dies"]
    running, rows, found, progress = run(world, items=ITEMS, blocks=range(1))
    assert [value.path for value in found] == ["f/mm/a", "f/mm/b", "f/mm/c"]
    assert world.started == 4
    assert {row.status for row in rows} == {"ok"}
    assert running.given_up == {}
    assert progress.faults == [
        "f/mm/b: block 0: error (sigsegv) of the candidate: the worker ended with signal SIGSEGV"
    ]


def test_what_dies_twice_is_left_out_and_said() -> None:
    """It has one row with the reason and no value; the others have theirs, in later blocks too."""
    world = World()
    world.faults[BASELINE, "mount", "b"] = ["dies"] * 9
    running, rows, found, _ = run(world, items=ITEMS)
    assert [value.path for value in found] == ["f/mm/a", "f/mm/c"] * 2
    assert [(row.status, row.reason, row.phase) for row in rows if row.case == "b"] == [
        ("error", "sigsegv", "block 0 baseline")
    ]
    assert list(running.given_up) == ["f/mm/b"]


def test_a_wrong_result_is_not_tried_again_and_not_on_resumption_either() -> None:
    """`broken` costs its own case, at once and for good; an error in passing costs a second try."""
    world = World()
    world.faults[CANDIDATE, "check", "a"] = [BROKEN] * 9
    world.faults[CANDIDATE, "check", "b"] = [ERROR]
    _, rows, found, _ = run(world, items=ITEMS[:2])
    assert [value.path for value in found] == ["f/mm/b"] * 2
    assert [(row.case, row.status) for row in rows if row.status != "ok"] == [("a", "broken")]
    again = World()
    _, fresh, _, _ = run(again, items=ITEMS[:2], blocks=range(3), rows=rows)
    assert {row.case for row in fresh} == {"b"}


def test_a_throttled_block_is_visited_again_and_the_clean_visits_count() -> None:
    """After two spoiled visits the four are made again, and nothing of the first attempt is in the row."""
    world = World()
    world.marks = lambda side, count: ["throttled"] if count <= 2 else []
    _, rows, found, progress = run(world, blocks=range(1))
    assert visited(world) == "bccbbccb"
    assert [value.spoiled for value in found] == [False]
    assert rows[0].marks == () and rows[0].samples_n == 8
    assert progress.faults == ["f/mm/a: block 0: throttled, so visited again"]


def test_sides_that_launch_in_two_states_are_not_compared() -> None:
    """Where the candidate's nodes take a quarter less the block is spoiled, and a later execution measures it again."""
    world = World()
    world.node_s = lambda side, count: 0.55e-6 if side == CANDIDATE else 0.73e-6
    _, rows, found, _ = run(world, blocks=range(1))
    assert [value.spoiled for value in found] == [True]
    _, _, found, _ = run(World(), blocks=range(1), rows=rows)
    assert [value.spoiled for value in found] == [False]


@pytest.mark.parametrize(("case", "node_s"), [("a", 0.70e-6), ("a", None), ("c", 0.55e-6)])
def test_nodes_that_show_one_state_spoil_nothing(case: str, node_s: float | None) -> None:
    """Nodes 4 % apart are of one state, an unread one says nothing, and at the power limit the clock moves them."""
    world = World()
    world.node_s = lambda side, count: node_s if side == CANDIDATE else 0.73e-6
    _, _, found, _ = run(world, items=[item for item in ITEMS if item.case.name == case], blocks=range(1))
    assert [(value.candidate.node_s, value.spoiled) for value in found] == [(node_s, False)]


def test_a_block_that_stays_shared_is_reported_and_resumed() -> None:
    """Beside another process for ever, the loop ends, the value says so, and a later execution measures it again."""
    world = World()
    world.marks = lambda side, count: ["shared"]
    _, rows, found, _ = run(world, blocks=range(1))
    assert len(world.said("visit")) == 4 * 3
    assert [value.spoiled for value in found] == [True]
    _, fresh, found, _ = run(World(), blocks=range(1), rows=rows)
    assert [value.spoiled for value in found] == [False]
    assert [value.spoiled for value in values([*rows, *fresh])] == [False]


def test_no_block_begins_that_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a block takes 1.1 s, three fit in 4 s, the fourth is left and named."""
    world = World()
    monkeypatch.setattr(blocks.time, "monotonic", lambda: world.now)
    running, _, found, _ = run(world, blocks=range(9), seconds=4.0)
    assert running.unmeasured == tuple(range(len(found), 9))
    assert 3.0 <= world.now <= 4.0


def test_nobody_starts_for_blocks_that_find_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where time is up before the first block, which is measured all the same, no worker of a later one starts."""
    world = World()
    world.now = 5.0
    monkeypatch.setattr(blocks.time, "monotonic", lambda: world.now)
    running, _, found, _ = run(world, blocks=range(9), seconds=4.0)
    assert (len(found), running.unmeasured, world.started) == (1, tuple(range(1, 9)), 2)


def test_another_board_ends_the_loop() -> None:
    """Blocks of two boards are not one series, so a pair that finds another board is refused."""
    world = World(gpu=False)
    rows: list[Row] = []
    running = Blocks(BlockPlan(ITEMS[:1], range(2), "cold"), world.start, sink=rows.extend, progress=Quiet())
    turns = running.run()
    next(turns)
    world.board = "other"
    with pytest.raises(CannotMeasureError, match="another board"):
        next(turns)
    assert len(rows) == 2
    assert world.alive == 0


def test_who_stops_listening_leaves_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that has seen enough closes the loop, and every worker is gone, the early ones too."""
    monkeypatch.setattr(blocks, "pairs_ahead", lambda memory_bytes, cores: 2)
    world = World()
    turns = Blocks(BlockPlan(ITEMS, range(9), "cold"), world.start, sink=lambda rows: None, progress=Quiet()).run()
    next(turns)
    assert world.alive == 6
    turns.close()
    assert world.alive == 0
