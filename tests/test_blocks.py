"""The loop over blocks, with workers that answer from a known world."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gemmgate.suite import block_visits, blocks
from gemmgate.suite.block_values import BASELINE, CANDIDATE, phase_of, read_phase
from gemmgate.suite.blocks import BlockPlan, Blocks
from gemmgate.suite.pairs import EDITED
from tests.fake_pair import BROKEN, ITEMS, Quiet, World, run, visited


def test_blocks_alternate_their_order() -> None:
    """The first block is visited baseline, candidate, candidate, baseline, the second the other way round."""
    world = World()
    run(world)
    assert visited(world) == "bccb" + "cbbc"


def test_each_block_has_two_fresh_workers_and_the_first_to_start_alternates() -> None:
    """Two workers start a block, and the side that takes the device first is not always the same."""
    world = World()
    run(world, blocks=range(3))
    assert [entry[1] for entry in world.said("start")] == [
        BASELINE,
        CANDIDATE,
        CANDIDATE,
        BASELINE,
        BASELINE,
        CANDIDATE,
    ]
    assert len({entry[3] for entry in world.said("visit")}) == 6


@pytest.mark.parametrize("gpu", [True, False])
def test_the_next_pair_starts_while_this_one_measures_unless_it_would_disturb(gpu: bool) -> None:
    """On a GPU the second block's workers start before the first block's visits, on a CPU after them."""
    world = World(gpu=gpu)
    run(world)
    order = [entry[0] for entry in world.log if entry[0] in ("start", "visit", "greet")]
    if gpu:
        assert order[:6] == ["start", "start", "greet", "greet", "start", "start"]
    else:
        assert order[:8] == ["start", "start", "greet", "greet", "visit", "visit", "visit", "visit"]


def test_workers_know_each_other_as_no_strangers() -> None:
    """Both are told both process numbers when they take the device, and of no other."""
    world = World()
    run(world, blocks=range(1))
    assert world.said("greet") == [("greet", BASELINE, (1001, 1002)), ("greet", CANDIDATE, (1001, 1002))]


def test_a_value_is_the_log_ratio_of_the_medians() -> None:
    """A candidate that takes 2 % longer, at a clock 1.96 to 1.98, has these log-ratios in time and in cycles."""
    _, rows, found, _ = run(World(slower=0.02))
    assert [value.log_ratio for value in found] == pytest.approx([math.log(1.02)] * 2)
    assert [value.cycles_log_ratio for value in found] == pytest.approx([math.log(1.02 * 1.96 / 1.98)] * 2)
    assert [row.phase for row in rows] == [phase_of(block, side) for block in (0, 1) for side in (BASELINE, CANDIDATE)]
    assert rows[0].median_s == pytest.approx(1e-5)
    assert rows[0].cycles == pytest.approx(1e-5 * 1.98e9)
    assert rows[0].samples_n == 2 * block_visits.FEW_REPLAYS
    assert rows[0].error == 1e-4 and rows[0].joules == 0.5


def test_later_blocks_measure_what_the_first_one_found_out() -> None:
    """Picks and lengths of the first block are asked for in the second, which searches, checks and reads nothing."""
    world = World()
    run(world, levels=(0.01,))
    assert [entry[4]["tile"] for entry in world.said("prepare")] == [None, None, {"block": 64}, None]
    assert [entry[1] for entry in world.said("check")] == [BASELINE, CANDIDATE]
    assert [(entry[1], entry[4].get("passes"), entry[4].get("extras")) for entry in world.said("mount")] == [
        (BASELINE, None, None),
        (CANDIDATE, 2, {"0.01": None}),
        (CANDIDATE, 2, {"0.01": [3, 1234.0]}),
        (BASELINE, 2, {}),
    ]
    assert [entry[4].get("again", False) for entry in world.said("mount")] == [False, False, True, True]


def test_all_levels_are_measured_within_the_same_workers() -> None:
    """After A B B A all levels stand around one pair of visits to the baseline, and each comes to its true size."""
    world = World()
    _, rows, found, _ = run(world, levels=(0.01, 0.05), blocks=range(2))
    assert visited(world) == "bccb" + "bccccb" + "cbbc" + "ccbbcc"
    levels = [entry[4]["level"] for entry in world.said("visit")]
    assert levels == [0.0] * 5 + [0.01, 0.05, 0.05, 0.01] + [0.0] * 5 + [0.01, 0.05, 0.0, 0.0, 0.05, 0.01]
    assert len({entry[3] for entry in world.said("visit")}) == 4
    assert [(value.block, value.level) for value in found] == [(b, x) for b in (0, 1) for x in (0, 0.01, 0.05)]
    for value in found:
        assert value.log_ratio == pytest.approx(math.log(1 + value.level))
    assert {row.phase for row in rows} >= {"block 0 candidate +1%", "block 1 baseline +5%"}


def test_levels_take_turns() -> None:
    """Of five levels two a block, each is measured in two of five blocks; the first block fits all of them."""
    world = World()
    levels = (0.005, 0.01, 0.02, 0.03, 0.05)
    _, _, found, _ = run(world, levels=levels, levels_a_block=2, blocks=range(5))
    counts = {level: sum(value.level == level for value in found) for level in (0.0, *levels)}
    assert counts == {0.0: 5, **dict.fromkeys(levels, 2)}
    mounted = [entry[4]["extras"] for entry in world.said("mount") if entry[1] == CANDIDATE]
    assert [sorted(extras) for extras in mounted] == [
        ["0.005", "0.01", "0.02", "0.03", "0.05"],
        ["0.02", "0.03"],
        ["0.005", "0.05"],
        ["0.01", "0.02"],
        ["0.03", "0.05"],
    ]
    assert [extras.get("0.02") for extras in mounted] == [None, [3, 1234.0], None, [3, 1234.0], None]


def test_an_edited_side_has_blocks_of_its_own() -> None:
    """A third worker is visited as a candidate where it was asked for, and its values say that they are of the edit."""
    world = World(launch_sd=0.0)
    world.edited = 0.03
    _, rows, found, _ = run(world, items=ITEMS[:2], edited=(ITEMS[1].path,), blocks=range(2))
    assert [(value.path, value.block, value.edited) for value in found] == [
        (path, block, edited)
        for block in (0, 1)
        for path, edited in ((ITEMS[0].path, False), (ITEMS[1].path, False), (ITEMS[1].path, True))
    ]
    for value in found:
        assert value.log_ratio == pytest.approx(math.log(1.03) if value.edited else 0.0)
        assert (value.is_plain, value.within is None) == (not value.edited, value.edited)
    assert [entry[1] for entry in world.said("visit")][8:12] == [BASELINE, EDITED, EDITED, BASELINE]
    assert [row.phase for row in rows][4:6] == ["block 0 baseline edited", "block 0 candidate edited"]
    _, fresh, _, _ = run(World(), items=ITEMS[:2], edited=(ITEMS[1].path,), blocks=range(2), rows=rows)
    assert fresh == []


@pytest.mark.parametrize("fault", ["dies", BROKEN])
def test_an_edit_that_fails_costs_nothing_else(fault: Any) -> None:
    """An edited side that is wrong or dies is left out with its reason, and the unchanged code has all its values."""
    world = World()
    world.faults[EDITED, "check", "b"] = [fault] * 9
    running, rows, found, _ = run(world, items=ITEMS[:2], edited=(ITEMS[1].path,), blocks=range(2))
    assert [(value.path, value.block) for value in found] == [(i.path, b) for b in (0, 1) for i in ITEMS[:2]]
    assert list(running.not_edited) == [ITEMS[1].path] and running.given_up == {}
    assert {row.status for row in rows} == {"ok"}


def test_all_items_are_ready_before_the_first_is_visited() -> None:
    """Of three items each is made ready first; where memory is short so many as fit, then the others."""
    world = World()
    run(world, items=ITEMS, blocks=range(1))
    order = "".join(entry[0][0] + entry[2] for entry in world.log if entry[0] in ("mount", "settle"))
    assert order == "mamambmbmcmc" + "sasbsc"
    world = World()
    world.memory_share = 0.3
    _, _, found, _ = run(world, items=ITEMS, blocks=range(1))
    order = "".join(entry[0][0] + entry[2] for entry in world.log if entry[0] in ("mount", "settle", "drop"))
    assert order == "mamambmb" + "sasb" + "dbdb" + "mcmcsc"
    assert len(found) == 3


def test_what_finds_no_room_beside_others_is_measured_alone() -> None:
    """A ring refused for its size while others are held is tried again by itself, and that is no fault."""
    refusal = {"status": "unsupported", "reason": "ring_too_large", "detail": "no room"}
    world = World()
    world.faults[BASELINE, "mount", "b"] = [refusal]
    running, _, found, progress = run(world, items=ITEMS, blocks=range(1))
    assert [value.path for value in found] == [item.path for item in ITEMS]
    assert (running.given_up, progress.faults) == ({}, [])
    world.faults[BASELINE, "mount", "b"] = [refusal] * 9
    running, _, found, _ = run(world, items=ITEMS, blocks=range(1))
    assert list(running.given_up) == [ITEMS[1].path]
    assert len(found) == 2


def test_later_pairs_take_the_device_while_items_are_made_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second block on the next pair takes the device before the first visit, and a pair after it starts."""
    monkeypatch.setattr(blocks, "pairs_ahead", lambda memory_bytes, cores: 2)
    world = World()
    run(world, blocks=range(4))
    said = [(entry[0], (entry[2] - 1) // 2 if entry[0] == "start" else None) for entry in world.log]
    starts = {pair: said.index(("start", pair)) for pair in range(4)}
    visits = [index for index, entry in enumerate(world.log) if entry[0] == "visit"]
    greets = [index for index, entry in enumerate(world.log) if entry[0] == "greet"][::2]
    assert starts[2] < visits[0] and visits[3] < starts[3] < visits[4]
    assert visits[3] < greets[1] < greets[2] < visits[4]  # the second pair, then the third beside it
    assert visits[7] < greets[3] < visits[8]
    third = next(entry[2] for entry in world.said("greet") if entry[2][:2] == (1005, 1006))
    assert third == (1005, 1006, 1003, 1004, 1007, 1008, 1001, 1002)


def test_seconds_are_said_by_what_they_went_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first block's seconds stand apart from the mean of later ones: a request takes 0.1 s here."""
    world = World()
    monkeypatch.setattr(block_visits, "monotonic", lambda: world.now)
    running, *_ = run(world, blocks=range(3), levels=(0.01,))
    first, later = running.spent
    assert first == pytest.approx(
        {"start": 0.0, "prepare": 0.2, "check": 0.2, "mount": 0.2, "settle": 0.1, "lead": 0.1, "visits": 0.8}
    )
    assert later == pytest.approx({**first, "check": 0.0})


def test_a_power_limited_case_is_warmed_at_each_visit_and_marked() -> None:
    """Of two cases only the one that settled at the power limit has load before each visit, and the mark."""
    world = World()
    _, rows, _, _ = run(world, items=ITEMS[1:])
    assert {(entry[2], entry[4]["warm_s"] > 0) for entry in world.said("visit")} == {("b", False), ("c", True)}
    assert {(row.case, "power_limited" in row.marks) for row in rows} == {("b", False), ("c", True)}


def test_settling_is_long_where_it_has_to_be() -> None:
    """Long for every case at first and for the first of a pair, short for others later."""
    world = World()
    run(world, items=ITEMS[:2])
    assert [entry[4]["least_s"] for entry in world.said("settle")] == [0.3, 0.3, 0.3, 0.02]


def test_without_energy_the_first_settling_is_as_that_at_the_power_limit() -> None:
    """Only the first case of a pair settles long; others 0.15 s in their first block, and short in later ones."""
    world = World()
    _, rows, _, _ = run(world, items=ITEMS, energy=False)
    assert [entry[4]["least_s"] for entry in world.said("settle")] == [0.3, 0.15, 0.15, 0.3, 0.02, 0.15]
    assert {(row.case, "power_limited" in row.marks) for row in rows} == {("a", False), ("b", False), ("c", True)}


def test_the_rows_of_a_case_are_handed_on_together() -> None:
    """Each case's two rows of a block come at once: what they are written to is asked to keep them once."""
    kept: list[int] = []
    running = Blocks(
        BlockPlan(ITEMS, range(2), "cold"), World().start, sink=lambda rows: kept.append(len(rows)), progress=Quiet()
    )
    assert len(list(running.run())) == 6
    assert kept == [2] * 6


@pytest.mark.parametrize("level", [0.0, 0.005, 0.01, 0.1])
@pytest.mark.parametrize("side", [BASELINE, CANDIDATE])
def test_a_phase_can_be_read_back(level: float, side: str) -> None:
    """What is written into a row's phase is what is read from it, and other phases are of no block."""
    assert read_phase(phase_of(12, side, level)) == (12, side, pytest.approx(level))
    assert read_phase("warm") is None


@pytest.mark.parametrize(
    ("gib", "cores", "expected"), [(8, 2, 1), (32, 8, 2), (128, 16, 4), (560, 128, 4), (16, 64, 1)]
)
def test_a_larger_host_starts_more_workers_ahead(gib: int, cores: int, expected: int) -> None:
    """16 GiB and four cores for each later block: one at least, four at most."""
    assert blocks.pairs_ahead(gib * 2**30, cores) == expected


def test_what_runs_at_a_free_clock_is_not_settled_again() -> None:
    """What settled at the highest clock seen does so in the first block alone, unless it is first in a pair; what was
    held below it settles in every block.
    """
    world = World()
    world.settles_at = {"a": 1.98e9, "b": 1.98e9, "c": 1.9e9}
    run(world, items=ITEMS, blocks=range(2))
    assert [entry[2] for entry in world.said("settle")] == ["a", "b", "c", "a", "c"]


def test_no_visit_comes_straight_from_a_load() -> None:
    """Before its first visit an item has one that does not count, of the other side than the first to be visited."""
    world = World()
    run(world, items=ITEMS[:2], blocks=range(2))
    order = "".join(f"{entry[0][0]}{entry[1][0]} " for entry in world.log if entry[0] in ("settle", "lead", "visit"))
    assert order.split() == 2 * ["sb", "lc", "vb", "vc", "vc", "vb"] + 2 * ["sc", "lb", "vc", "vb", "vb", "vc"]
