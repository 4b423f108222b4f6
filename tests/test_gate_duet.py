"""Whole gates on a fake clock: from two sides that answer at once to verdicts, an exit code and what is shown."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from gemmgate.suite.acceptances import read_acceptances
from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.compare import Verdict
from gemmgate.suite.forecast import Costs
from gemmgate.suite.judged import Judged
from gemmgate.suite.judgement import Judgement, judgement
from gemmgate.suite.looks import LOOKS, Noise
from gemmgate.suite.stages import FRESH
from tests.fake_pair import BROKEN, FakeWorker
from tests.gate_world import ITEMS, OTHER_STACK, GateWorld, Played, cases

UNSUPPORTED = {"status": "unsupported", "reason": "needs_sm_100", "detail": "needs sm_100", "fatal": False}
ACCEPTED = '[[accept]]\ncase = "f/mm/a"\nbound = 0.06\nreason = "needed for correctness"\nexpires = 2026-06-30\n'


def of(found: Judgement, case: str) -> Judged:
    """The item of a case."""
    return next(one for one in found.items if one.comparison.row.case == case)


def verdicts(found: Judgement) -> dict[str, tuple[str, str]]:
    """Verdict and reason by case."""
    return {one.comparison.row.case: (str(one.comparison.verdict), one.comparison.reason) for one in found.items}


def fresh_blocks(world: GateWorld, case: str) -> int:
    """Visits of a case by four: how many blocks it was in."""
    return sum(entry[2] == case for entry in world.said("visit")) // 4


def test_unchanged_code_passes() -> None:
    """With a block deviation of 0.4 % and no change, all is SAME, nothing is confirmed, and the exit code is 0."""
    found = judgement(Played(GateWorld()).run)
    assert {verdict for verdict, _ in verdicts(found).values()} == {"SAME"}
    assert (found.result.exit_code, found.result.failed) == (0, ())


def test_a_slow_down_is_caught_and_confirmed_on_fresh_blocks() -> None:
    """One of three cases takes 5 % more time: SLOWER, by blocks that the screen has not seen, and exit code 1."""
    played = Played(GateWorld({"a": 0.05}))
    found = judgement(played.run)
    assert verdicts(found)["a"] == ("SLOWER", "slower")
    assert found.result.exit_code == 1
    change = of(found, "a").comparison.change
    assert change == pytest.approx(0.05, abs=0.01)
    assert {row.case for row in played.rows if row.phase.startswith(f"block {FRESH} ")} == {"a"}
    assert of(found, "a").blocks == LOOKS[0]


def test_a_clear_case_takes_fewer_blocks_than_a_close_one() -> None:
    """Among blocks that scatter by 1.2 %, 40 % are flagged after six and called after six fresh ones, 2 % need more;
    both are found.
    """
    world = GateWorld({"a": 0.4, "b": 0.02}, block_sd=0.012, seed=1)
    noise = {item.path: Noise(0.012, source="a calibration") for item in ITEMS}
    found = judgement(Played(world, noise=noise).run)
    assert verdicts(found)["a"][0] == verdicts(found)["b"][0] == "SLOWER"
    assert fresh_blocks(world, "a") == 6 + LOOKS[0] < 12 + LOOKS[0] < fresh_blocks(world, "b")


def test_what_is_much_faster_is_flagged_early_too() -> None:
    """A case that takes 20 % less time is FASTER after four blocks, where its noise is known, and six fresh ones."""
    world = GateWorld({"a": -0.2})
    noise = {item.path: Noise(0.004, source="a calibration") for item in ITEMS}
    found = judgement(Played(world, noise=noise).run)
    assert verdicts(found)["a"][0] == "FASTER"
    assert fresh_blocks(world, "a") == 4 + LOOKS[0]


def test_what_looks_unchanged_costs_a_third_of_a_screen() -> None:
    """Cases without any noise that are not slower leave the screen after four blocks where that is known, else six."""
    world = GateWorld({"a": -0.001, "b": -0.001, "c": 0.02}, block_sd=1e-6)
    found = judgement(Played(world).run)
    assert [fresh_blocks(world, case) for case in "ab"] == [4, 4]
    assert verdicts(found)["c"][0] == "SLOWER"
    world = GateWorld({"a": -0.001, "b": -0.001, "c": -0.001}, block_sd=1e-6)
    Played(world, noise={})
    assert [fresh_blocks(world, case) for case in "abc"] == [6, 6, 6]


def test_a_win_is_no_failure() -> None:
    """A case that takes 5 % less time is FASTER after a confirmation of its own, and the gate passes."""
    found = judgement(Played(GateWorld({"b": -0.05})).run)
    assert verdicts(found)["b"] == ("FASTER", "faster")
    assert found.result.exit_code == 0
    assert "1 row faster." in found.result.notes


def test_a_wrong_kernel_is_broken() -> None:
    """A candidate whose check fails is BROKEN with the check's words, is not timed, and the exit code is 1."""
    world = GateWorld()
    world.faults[CANDIDATE, "check", "a"] = [BROKEN] * 3
    found = judgement(Played(world).run)
    assert verdicts(found)["a"] == ("BROKEN", "broken")
    assert "not_finite: NaN" in of(found, "a").comparison.sentence
    assert found.result.exit_code == 1
    assert fresh_blocks(world, "a") == 0


def test_a_baseline_that_fails_hides_no_wrong_candidate() -> None:
    """Where neither side is right, the candidate is BROKEN all the same; where the baseline alone was, it is new."""
    world = GateWorld()
    world.faults[BASELINE, "check", "a"] = [BROKEN]
    world.faults[BASELINE, "check", "b"] = [BROKEN]
    world.faults[CANDIDATE, "check", "a"] = [BROKEN]
    found = judgement(Played(world, cases("a", "b")).run)
    assert verdicts(found) == {"a": ("BROKEN", "broken"), "b": ("INCOMPARABLE", "new")}


def test_a_missing_case_fails_and_a_new_one_is_a_note() -> None:
    """What only the base has fails; what only the head has is checked and noted."""
    gone = [["f", "z", "mm"]]
    world = GateWorld()
    found = judgement(Played(world, cases("a"), fresh=cases("b"), missing=gone).run)
    assert verdicts(found) == {
        "a": ("SAME", "no_change"),
        "b": ("INCOMPARABLE", "new"),
        "z": ("INCOMPARABLE", "missing"),
    }
    assert found.result.exit_code == 1
    assert [entry[1] for entry in world.said("check") if entry[2] == "b"] == [CANDIDATE]


def test_a_new_case_that_is_wrong_fails() -> None:
    """What only the head has must be right."""
    world = GateWorld()
    world.faults[CANDIDATE, "check", "b"] = [BROKEN]
    found = judgement(Played(world, cases("a"), fresh=cases("b")).run)
    assert verdicts(found)["b"] == ("BROKEN", "broken")
    assert found.result.exit_code == 1


def test_what_a_side_refuses_is_missing_or_was_never_there() -> None:
    """A candidate that refuses what the baseline did fails; what both refuse is a note."""
    world = GateWorld()
    world.faults[CANDIDATE, "prepare", "a"] = [UNSUPPORTED]
    for side in (BASELINE, CANDIDATE):
        world.faults[side, "prepare", "b"] = [UNSUPPORTED]
    found = judgement(Played(world).run)
    assert verdicts(found)["a"] == ("INCOMPARABLE", "missing")
    assert verdicts(found)["b"] == ("INCOMPARABLE", "not_measured")
    assert found.result.exit_code == 1


def test_a_run_that_cannot_be_judged_exits_3() -> None:
    """Beside another program for ever every block is spoiled: nothing is called the same, and the code is 3."""
    world = GateWorld()
    world.marks = lambda side, count: ["shared"]
    found = judgement(Played(world, cases("a")).run)
    assert verdicts(found)["a"] == ("UNCLEAR", "disturbed")
    assert found.result.exit_code == 3
    assert "12 blocks were throttled, shared or launched in two states, and count for nothing." in found.notes


@pytest.mark.parametrize(("fresh", "verdict", "code"), [(3, ("UNCLEAR", "no_time"), 3), (5, ("SLOWER", "slower"), 1)])
def test_a_budget_that_ends_too_early(fresh: int, verdict: tuple[str, str], code: int) -> None:
    """Where time ran out after three fresh blocks nothing is decided; after five 40 % is, by a look of its own."""
    played = Played(GateWorld({"a": 0.4}), cases("a"))
    cut = [
        row for row in played.run.rows if not row.phase.startswith("block 10") or int(row.phase[6:9]) < FRESH + fresh
    ]
    found = judgement(replace(played.run, rows=tuple(cut)))
    assert verdicts(found)["a"] == verdict
    assert found.result.exit_code == code


def test_a_change_of_the_clock_is_none_of_the_code() -> None:
    """Where the candidate ran at a clock lower by as much as it took longer, the verdict is UNCLEAR for that reason."""
    world = GateWorld({"a": 0.05})
    world.clock_hz = {CANDIDATE: 1.98e9 / 1.05}
    found = judgement(Played(world, cases("a")).run)
    assert verdicts(found)["a"] == ("UNCLEAR", "clock")
    assert found.result.exit_code == 3


def test_what_is_identical_is_not_timed_unless_all_is_asked_for() -> None:
    """Equal sources, code, launches and pick are SAME by identity without one visit; with everything asked, timed."""
    world = GateWorld()
    found = judgement(Played(world, cases("a", "b"), same=("a",)).run)
    assert verdicts(found)["a"] == ("SAME", "identical")
    assert fresh_blocks(world, "a") == 0 < fresh_blocks(world, "b")
    world = GateWorld()
    found = judgement(Played(world, cases("a"), same=("a",), everything=True).run)
    assert verdicts(found)["a"] == ("SAME", "no_change")
    assert fresh_blocks(world, "a") >= 6


@pytest.mark.parametrize("fact", [{"device_code": "other"}, {"tile": {"block": 32}}, {"algorithm": "other"}])
def test_one_fact_that_differs_is_timed(fact: dict[str, object]) -> None:
    """Equal sources with another binary, tile or algorithm are no identity."""
    world = GateWorld(facts={(CANDIDATE, "a"): fact})
    judgement(Played(world, cases("a"), same=("a",)).run)
    assert fresh_blocks(world, "a") >= 6


def test_a_changed_pick_that_costs_time_is_called_that() -> None:
    """A slower candidate whose tile differs is PICK_CHANGED with both tiles, and fails."""
    found = judgement(Played(GateWorld({"a": 0.05}, facts={(CANDIDATE, "a"): {"tile": {"block": 32}}})).run)
    assert verdicts(found)["a"] == ("PICK_CHANGED", "slower")
    assert "The pick changed: fake block=64 -> fake block=32." in of(found, "a").cause
    assert found.result.exit_code == 1


def test_a_pick_of_a_noisy_search_is_pinned() -> None:
    """Where the harness's search chose otherwise, both sides are timed with the baseline's tile; the cost is said."""
    readings = {"block=64": 1.00e-5, "block=32": 1.01e-5}
    facts = {
        (BASELINE, "a"): {"tile": {"block": 64}, "screened_s": readings},
        (CANDIDATE, "a"): {"tile": {"block": 32}, "screened_s": readings},
    }
    world = GateWorld(facts=facts)
    found = judgement(Played(world, cases("a")).run)
    asked = [(entry[1], entry[4]["tile"]) for entry in world.said("prepare")]
    assert asked[:3] == [(BASELINE, None), (CANDIDATE, None), (CANDIDATE, {"block": 64})]
    assert {tile["block"] for _, tile in asked[3:]} == {64}
    assert verdicts(found)["a"][0] == "SAME"
    assert "the new pick takes +1.0%" in of(found, "a").cause


def test_noisy_cases_are_reported_and_fail_nothing() -> None:
    """A case whose blocks scatter by 6 % is shown as reported; 20 % more time in it leaves the exit code 0."""
    noise = {item.path: Noise(0.06, source="a calibration") for item in ITEMS}
    found = judgement(Played(GateWorld({"a": 0.2}, block_sd=0.06), noise=noise).run)
    assert of(found, "a").standing == "reported"
    assert found.result.exit_code == 0


def test_without_calibration_noise_is_learnt_and_said() -> None:
    """With no noise known a slow-down of 3 % is found by the gate's own blocks, and a note says whose they are."""
    found = judgement(Played(GateWorld({"a": 0.03}), noise={}).run)
    assert verdicts(found)["a"][0] == "SLOWER"
    assert any("3 items is known from this gate's own blocks" in note for note in found.notes)


def test_what_was_stored_is_not_measured_again() -> None:
    """Resumed with all of its rows, a gate visits nothing and says the same."""
    played = Played(GateWorld({"a": 0.05}))
    world = GateWorld({"a": 0.05})
    again = Played(world, rows=played.rows)
    assert world.said("visit") == []
    assert verdicts(judgement(again.run)) == verdicts(judgement(played.run))


def test_a_worker_that_dies_in_the_survey_costs_a_second_try() -> None:
    """Its item is surveyed again by a fresh pair; one that dies twice is an error of its own."""
    world = GateWorld()
    world.faults[CANDIDATE, "prepare", "a"] = ["dies"]
    world.faults[CANDIDATE, "check", "b"] = ["dies", "dies"]
    found = judgement(Played(world).run)
    assert verdicts(found)["a"][0] == verdicts(found)["c"][0] == "SAME"
    assert verdicts(found)["b"] == ("INCOMPARABLE", "missing")
    assert "sigsegv" in of(found, "b").comparison.sentence


def test_on_a_cpu_times_are_shown_and_not_judged() -> None:
    """Half as slow again is UNCLEAR on a CPU and passes with a sentence that says so; a wrong result fails."""
    world = GateWorld({"a": 0.5}, gpu=False)
    found = judgement(Played(world, cases("a")).run)
    assert verdicts(found)["a"] == ("UNCLEAR", "cpu")
    assert found.result.exit_code == 0
    assert found.result.sentence.endswith("On a CPU times are shown and not judged: results, presence and counts are.")
    world = GateWorld(gpu=False)
    world.faults[CANDIDATE, "check", "a"] = [BROKEN]
    assert judgement(Played(world, cases("a")).run).result.exit_code == 1


def test_on_a_cpu_more_kernels_than_before_fail() -> None:
    """A candidate that launches two kernels where the baseline launched one fails where no time can say so."""
    world = GateWorld(gpu=False, facts={})
    played = Played(world, cases("a"))
    rows = [replace(row, kernels=2) if row.phase == "survey candidate" else row for row in played.run.rows]
    found = judgement(replace(played.run, rows=tuple(rows)))
    assert verdicts(found)["a"] == ("SLOWER", "more_kernels")
    assert found.result.exit_code == 1


def test_interpreters_that_differ_are_named_as_the_cause() -> None:
    """Between two stacks times are compared, and the cause says which versions differ."""
    found = judgement(Played(GateWorld({"a": 0.05}), cases("a"), baseline_stack=OTHER_STACK).run)
    assert verdicts(found)["a"][0] == "SLOWER"
    assert "triton 3.7.1 -> 3.6.0" in of(found, "a").cause


def test_an_accepted_slow_down_passes_within_its_bound() -> None:
    """5 % under an entry of 6 % passes, with the reason; 10 % fails, with what the entry says."""
    file = read_acceptances(ACCEPTED, "accepted.toml")
    found = judgement(Played(GateWorld({"a": 0.05})).run, file)
    assert found.result.exit_code == 0
    assert "Accepted until 2026-06-30: needed for correctness." in of(found, "a").comparison.sentence
    found = judgement(Played(GateWorld({"a": 0.10})).run, file)
    assert found.result.exit_code == 1
    assert "is more than the 6.0% accepted for 'f/mm/a'" in of(found, "a").comparison.sentence


def test_small_steps_do_not_add_up_unseen() -> None:
    """What is accepted is refused where it is 5 % slower than the last release and 3 % in all are allowed."""
    played = Played(GateWorld({"a": 0.05}), against=["f/mm/a"])
    found = judgement(played.run, read_acceptances(ACCEPTED, "accepted.toml"))
    assert found.result.exit_code == 1
    assert "and 3.0% in all are allowed" in of(found, "a").comparison.sentence
    wide = read_acceptances("creep = 0.08\n" + ACCEPTED, "accepted.toml")
    assert judgement(played.run, wide).result.exit_code == 0


def test_a_release_that_fails_changes_no_verdict() -> None:
    """Where the last release cannot run an accepted item, what was found against the base stands."""
    release = GateWorld()
    release.faults[BASELINE, "prepare", "a"] = [UNSUPPORTED]
    again = Played(GateWorld({"a": 0.05}), against=["f/mm/a"], release=release)
    assert any(row.phase.startswith("block 1000 ") and row.status == "unsupported" for row in again.rows)
    assert verdicts(judgement(again.run))["a"] == ("SLOWER", "slower")


def test_a_repro_command_names_sides_and_item() -> None:
    """The command that judges an item again has the base's revision, the item's family, case and implementation, and
    the CPU where it was that.
    """
    run = Played(GateWorld(), cases("a")).run
    assert judgement(run).items[0].repro == "gemmgate gate --base origin/main --family f --case a --impl mm --all"
    on_cpu = replace(run, selection={**run.selection, "gates_time": False})
    assert judgement(on_cpu).items[0].repro.endswith(" --impl mm --all --device cpu")


def test_verdicts_that_a_day_after_expiry_would_change_use_the_gates_own_day() -> None:
    """A stored gate is judged by the acceptances as they stood on its own day, whenever it is shown."""
    expired = ACCEPTED.replace("2026-06-30", "2026-01-30")
    run = Played(GateWorld({"a": 0.05}), cases("a")).run
    assert date.fromisoformat(run.utc[:10]) == date(2026, 1, 31)
    found = judgement(run, read_acceptances(expired, "accepted.toml"))
    assert found.result.exit_code == 1
    assert "Accepted: 'f/mm/a' expired on 2026-01-30: remove it or renew it." in found.notes
    assert of(found, "a").comparison.verdict is Verdict.SLOWER


def test_a_few_items_do_not_make_many_seem_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block's two workers start for 4 s, an item takes 0.8 s. The one of three items whose noise is known has four
    blocks first, of 5 s. 14 s are left: two blocks of all three, and by three times the seconds of one item none.
    """
    world = SlowToStart(block_sd=0.002)
    monkeypatch.setattr(time, "monotonic", lambda: world.now)
    known = {"f/mm/a": Noise(0.002, source="a calibration")}
    Played(world, noise=known, seconds=40.0, costs=Costs(0.0, 0.0, 0.8, 4.0, "by hand"))
    assert [fresh_blocks(world, case) for case in "abc"] == [4, 2, 2]
    assert world.now <= 40.0


def test_costs_of_nothing_end_no_gate() -> None:
    """A stored run that says it took no time at all leaves a gate as it is."""
    found = judgement(Played(GateWorld(), costs=Costs(0.0, 0.0, 0.0, 0.0, "a stored run")).run)
    assert found.result.exit_code == 0


class SlowToStart(GateWorld):
    """Each worker takes 2 s to take the device."""

    def start(self, side: str) -> FakeWorker:
        worker = super().start(side)
        greet = worker.greet

        def slowly(beside: Any = ()) -> None:
            self.now += 2.0
            greet(beside)

        worker.greet = slowly  # type: ignore[method-assign]
        return worker
