"""What calibration makes of blocks whose noise is known, and how it is shown."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from gemmgate.suite import calibration_power, resampling
from gemmgate.suite.block_values import BASELINE, CANDIDATE, is_mirrored, phase_of, value_of, values
from gemmgate.suite.calibration import Calibration, calibration, calibration_json
from gemmgate.suite.records import Limits, Row, Run
from gemmgate.suite.report import show_calibration
from tests.runs import H200, STACK

LIMITS = Limits(
    bytes_per_s=4.4e12,
    copy_bytes_per_s=4.2e12,
    read_bytes_per_s=4.4e12,
    l2_bytes_per_s=7e12,
    bytes_per_s_by_size={str(2**20): 0.6e12, str(2**30): 4.2e12},
    flop_per_s={"bf16": 790e12},
    settled_flop_per_s={"bf16": 690e12},
    settled_sm_clock_hz={"bf16": 1485e6},
    launch_floor_s=0.81e-6,
    event_floor_s=1.3e-6,
    timer_resolution_s=32e-9,
    source="long",
)


@pytest.fixture(autouse=True)
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the shares of resampled gates do not matter, there are few of them."""
    if "report" not in request.node.name:
        monkeypatch.setattr(resampling, "GATES", 20)
        monkeypatch.setattr(resampling, "SHIFTS", 200)
        monkeypatch.setattr(calibration_power, "SHIFTS", 200)


def block(
    name: str,
    number: int,
    launch: float,
    visits: tuple[float, float, float, float] = (0.0,) * 4,
    level: float = 0.0,
    median_s: float = 8e-6,
    marks: tuple[str, ...] = (),
    edited: bool = False,
    clock_hz: float = 1.98e9,
) -> list[Row]:
    """The two rows of a block: `launch` is what the processes differ by, `visits` what each of the four is off by.

    `clock_hz` is the candidate's; the baseline runs at 1.98 GHz.
    """
    outer, inner = (CANDIDATE, BASELINE) if is_mirrored(number) else (BASELINE, CANDIDATE)
    off = {outer: (visits[0], visits[3]), inner: (visits[1], visits[2])}
    rows = []
    for side in (BASELINE, CANDIDATE):
        shift = (launch + math.log1p(level)) if side == CANDIDATE else 0.0
        samples = tuple(median_s * math.exp(shift + x) for x in off[side] for _ in range(4))
        rows.append(
            Row(
                "f",
                name,
                "mm",
                median_s=float(np.median(samples)),
                samples_s=samples,
                phase=phase_of(number, side, level, edited=edited),
                visit=f"{name}-{number}-{level}-{edited}",
                sm_clock_hz=clock_hz if side == CANDIDATE else 1.98e9,
                kernels=2,
                joules=0.001,
                marks=marks,
            )
        )
    return rows


def series(
    name: str,
    between_sd: float,
    visit_sd: float,
    blocks: int = 42,
    *,
    levels: tuple[float, ...] = (0.0,),
    mean: float = 0.0,
    seed: int = 0,
) -> list[Row]:
    """Normal noise, the same launches for all levels of a block."""
    rng = np.random.default_rng([seed, *map(ord, name)])
    rows = []
    for number in range(blocks):
        launch = mean + float(rng.normal(0.0, between_sd)) if between_sd else mean
        for level in levels:
            visits = tuple(float(x) for x in rng.normal(0.0, visit_sd, 4))
            rows += block(name, number, launch, visits, level)  # type: ignore[arg-type]
    return rows


def made(rows: list[Row]) -> Calibration:
    """The calibration of a run with these rows."""
    run = Run("20260131T120000Z-0a1b2c3d4e", "2026-01-31T12:00:00Z", "0a1b2c3d4e5f", False, H200, STACK, LIMITS)
    return calibration(replace(run, rows=tuple(rows)))


def test_a_drift_over_the_visits_is_no_difference_and_no_noise() -> None:
    """With visits off by 0 1 2 3 thousandths a block says zero, in either order, and so does its contrast."""
    for number in (0, 1):
        value = value_of(*block("a", number, 0.0, (0.0, 0.001, 0.002, 0.003)))
        assert value.log_ratio == pytest.approx(0.0, abs=2e-6)
        assert value.within == pytest.approx(0.0, abs=1e-9)


def test_a_side_of_two_groups_counts_by_their_sizes_and_a_straggler_for_little() -> None:
    """Eight replays: three that are 2 % slower count for 3/8 of 2 %, one of ten times as long for an eighth of 5 %."""
    baseline, candidate = block("a", 0, 0.0)
    slow = replace(candidate, samples_s=(8.16e-6,) * 3 + (8e-6,) * 5)
    assert value_of(baseline, slow).log_ratio == pytest.approx(math.log(1 + 0.02 * 3 / 8))
    straggling = replace(candidate, samples_s=(8e-6,) * 7 + (80e-6,))
    assert value_of(baseline, straggling).log_ratio == pytest.approx(math.log(1 + 0.05 / 8))


def test_the_shares_of_variance_are_those_of_the_noise() -> None:
    """Launches of 0.8 % and visits of 0.6 % make a block deviation of 1 %, 36 % of it within processes."""
    (case,) = made(series("a", 0.008, 0.006, 400)).cases
    assert case.block_sd == pytest.approx(0.01, rel=0.1)
    assert case.within_share == pytest.approx(0.36, abs=0.06)
    assert case.between_share == pytest.approx(0.64, abs=0.06)
    assert case.cycles_sd == pytest.approx(case.block_sd)


def test_unchanged_code_differs_from_itself_no_more_often_than_it_may() -> None:
    """Of 8 calibrations of 20 cases without bias two alarm at most; a bias of 1 % is seen in 20 blocks."""
    calibrations = ([row for n in range(20) for row in series(f"c{n}", 0.006, 0.0, 20, seed=s)] for s in range(8))
    assert sum(any(case.differs for case in made(rows).cases) for rows in calibrations) <= 2
    (case,) = made(series("a", 0.006, 0.0, 20, mean=0.01)).cases
    assert case.differs and case.mean_log_ratio == pytest.approx(0.01, abs=0.004)


def test_the_pooled_bias_is_free_of_sampling_error() -> None:
    """Means of 60 unbiased cases scatter by 0.13 %, and come to less than 0.05 %; true ones of 0.3 % stay 0.3 %."""
    unbiased = [row for n in range(60) for row in series(f"c{n}", 0.006, 0.0, 20)]
    assert made(unbiased).pooled_bias < 0.0005
    biased = [row for n in range(60) for row in series(f"c{n}", 0.006, 0.0, 20, mean=0.003 * (-1) ** n)]
    assert made(biased).pooled_bias == pytest.approx(0.003, rel=0.15)


def test_what_is_too_noisy_to_judge_biases_no_gate() -> None:
    """Beside 20 quiet cases one that scatters by 3 % about 2 % is in the bias of all, and not in that of the judged."""
    quiet = [row for n in range(20) for row in series(f"c{n}", 0.003, 0.0, 20)]
    found = made([*quiet, *series("wild", 0.03, 0.0, 20, mean=0.02)])
    assert found.pooled_bias > 0.002
    assert found.judged_bias < 0.0005


def test_spoiled_blocks_are_counted_and_not_averaged() -> None:
    """A throttled block 50 % off changes nothing but the number of spoiled ones."""
    rows = series("a", 0.006, 0.0, 20)
    (clean,) = made(rows).cases
    (case,) = made([*rows, *block("a", 99, 0.5, marks=("throttled",))]).cases
    assert (case.spoiled, case.blocks, case.block_sd) == (1, 20, clean.block_sd)


def test_of_a_block_that_was_measured_again_the_newest_counts() -> None:
    """Two values of one block are one observation."""
    again = [replace(row, visit="again") for row in block("a", 0, 0.02)]
    (value,) = values([*block("a", 0, 0.5), *again])
    assert value.log_ratio == pytest.approx(0.02)


def test_injected_slow_downs_are_counted_as_found() -> None:
    """In quiet cases 1 % is nearly always found and comes to 1 %, 0.3 % never; noisy cases are no part of the share."""
    levels = (0.0, 0.003, 0.01)
    rows = [row for n in range(3) for row in series(f"q{n}", 0.005, 0.001, 22, levels=levels)]
    rows += series("noisy", 0.04, 0.0, 22, levels=levels)
    small, large = made(rows).found
    assert (small.level, large.level) == (pytest.approx(0.003), pytest.approx(0.01))
    assert large.quiet is not None and large.quiet.estimate > 0.95
    assert small.gated.estimate < 0.05
    assert large.realised == pytest.approx(0.01, abs=0.001)
    assert (large.cases, large.quiet_cases) == (3, 3)


def test_levels_that_take_turns_are_judged_by_the_blocks_they_have() -> None:
    """With each level in every other block only, 1 % comes to 1 % and is found, and 0.3 % is not."""
    rows = []
    for n in range(3):
        whole = series(f"q{n}", 0.006, 0.001, 32, levels=(0.0, 0.003, 0.01))
        rows += [row for row in whole if not (("+0.3%" in row.phase) if is_odd(row) else ("+1%" in row.phase))]
    small, large = made(rows).found
    assert large.realised == pytest.approx(0.01, abs=0.001)
    assert large.quiet is not None and large.quiet.estimate > 0.95
    assert small.gated.estimate < 0.05


def is_odd(row: Row) -> bool:
    """Whether a row is of an odd block."""
    return int(row.phase.split()[1]) % 2 == 1


def test_a_change_in_time_that_is_the_clocks_is_not_found() -> None:
    """Slowed blocks whose clock fell by as much are 2 % slower in time, none in cycles, and found by no gate."""
    rows = series("q", 0.0, 0.002, 22)
    for number in range(22):
        rows += block("q", number, 0.0001 * (number % 3), level=0.02, clock_hz=1.98e9 / 1.02)
    (found,) = made(rows).found
    assert found.realised == pytest.approx(0.02, abs=0.002)
    assert found.gated.estimate < 0.01


def test_at_the_power_limit_cycles_alone_are_judged() -> None:
    """Blocks that scatter by 4 % in time because their clock does, and by 0.3 % in cycles, are gated and say so."""
    rng = np.random.default_rng(3)
    rows = []
    for number in range(20):
        slower = float(rng.normal(0.0, 0.04))
        launch = slower + float(rng.normal(0.0, 0.003))
        rows += block("a", number, launch, marks=("power_limited",), clock_hz=1.98e9 * math.exp(-slower))
    result = made(rows)
    (case,) = result.cases
    assert case.block_sd > 0.02 and case.judged_sd < 0.006
    assert case.rule.standing == "gated"
    assert "judged in cycles" in show_calibration(result, "table")


@pytest.mark.parametrize(("limited", "slowed_limited", "in_cycles"), [(10, True, False), (11, False, True)])
def test_how_a_case_is_judged_follows_from_most_of_its_plain_blocks(
    limited: int, slowed_limited: bool, in_cycles: bool
) -> None:
    """Of twenty blocks ten at the power limit leave time judged, and eleven do not, whatever slowed-down code met. The
    report says of a case that it is power-limited where it is judged so.
    """
    rows = []
    for number in range(20):
        marks = ("power_limited",) if number < limited else ()
        rows += block("a", number, 0.003 * (-1) ** (number // 2), marks=marks)
        rows += block("a", number, 0.02, level=0.02, marks=("power_limited",) if slowed_limited else ())
    result = made(rows)
    assert result.cases[0].power_limited is in_cycles
    assert ("judged in cycles" in show_calibration(result, "table")) is in_cycles


def test_slowed_blocks_without_a_clock_are_judged_in_time() -> None:
    """Where the clock of one slowed-down block was not read, 2 % are found by time as by both where it was."""
    rows = series("q", 0.002, 0.0, 20, levels=(0.0, 0.02))
    assert made(rows).found[0].gated.estimate > 0.99
    blind = [replace(row, sm_clock_hz=None) if row.phase == "block 0 candidate +2%" else row for row in rows]
    assert sum(row.sm_clock_hz is None for row in blind) == 1
    assert made(blind).found[0].gated.estimate > 0.99


def test_deviations_are_counted_in_time_and_by_what_is_judged() -> None:
    """A case at the power limit with 0.2 % in time and 2 % in cycles is calm by the one and not by the other."""
    rows = series("calm", 0.002, 0.0, 20)
    for number in range(20):
        off = 0.02 * (-1) ** (number // 2)
        rows += block("b", number, 0.1 * off, marks=("power_limited",), clock_hz=1.98e9 * math.exp(0.9 * off))
    text = " ".join(show_calibration(made(rows), "table").split())
    assert "2 of 2 are at most 0.6%, 2 at most 1%; by what a verdict takes, 1 and 1" in text


def test_an_edit_is_reported_with_its_size_and_when_it_was_found() -> None:
    """An edit of 3 % is found in nearly all gates and by block 18, one of 0.1 % in none; neither counts as noise."""
    rows = [row for name in ("large", "small") for row in series(name, 0.003, 0.001, 30)]
    for name, change in (("large", 0.03), ("small", 0.001)):
        for number in range(30):
            rows += block(name, number, math.log1p(change) + 0.0005 * (-1) ** (number // 2), edited=True)
    result = made(rows)
    large, small = result.edits
    assert (large.path, large.change, large.blocks) == ("f/mm/large", pytest.approx(0.03, abs=1e-3), 30)
    assert large.found.estimate > 0.99 and large.after == 18
    assert small.found.estimate < 0.01 and small.after is None
    assert result.found == ()
    assert all(case.blocks == 30 and case.block_sd < 0.006 for case in result.cases)
    text = show_calibration(result, "table")
    assert "18 blocks" in text and "not found" in text


def test_two_modes_are_reported_and_gate_nothing() -> None:
    """Launches of two kinds, 1.5 % apart, are shown as such whatever their deviation is."""
    rows = [row for n in range(20) for row in block("a", n, 0.015 * (n % 2) + 0.0001 * (n % 5))]
    (case,) = made(rows).cases
    assert (case.two_modes, case.rule.standing) == (True, "reported")
    assert "two modes" in show_calibration(made(rows), "table")


def test_few_blocks_promise_nothing() -> None:
    """With five blocks a deviation is shown, but neither a smallest slow-down nor a rate of false alarms."""
    result = made(series("a", 0.006, 0.0, 5))
    assert result.cases[0].block_sd > 0
    assert result.cases[0].mde is None
    assert result.family_wise is None
    assert "it takes 6 blocks" in show_calibration(result, "table")


def test_no_blocks_at_all_are_said_to_be_none() -> None:
    """A calibration whose every case failed has roofs and no noise."""
    text = show_calibration(made([]), "table")
    assert "nothing to say about noise" in text and "4.20" in text


def test_json_has_the_promised_form() -> None:
    """The keys are the documented ones, numbers are plain, and what is unknown is null."""
    result = made([row for n in "ab" for row in series(n, 0.005, 0.001, 12, levels=(0.0, 0.01))])
    data = json.loads(json.dumps(calibration_json(result), allow_nan=False))
    assert list(data) == ["machine", "blocks", "roofs", "launch_floor_s", "cases", "power", "family_wise_false_alarm"]
    assert data["machine"] == H200.key and data["blocks"] == 12 and data["launch_floor_s"] == 0.81e-6
    assert list(data["cases"][0]) == ["case", "median_s", "block_sd", "mean_log_ratio", "mde", "power_limited"]
    assert data["cases"][0]["case"] == "f/mm/a"
    assert list(data["power"]) == ["0.01"]
    assert 0 <= data["family_wise_false_alarm"] <= 0.01
    assert data["roofs"]["flop_per_s"] == {"bf16": 790e12}
    assert calibration_json(made([]))["family_wise_false_alarm"] is None


def test_a_calibration_says_the_same_twice() -> None:
    """Resampling begins from a fixed seed, so a stored calibration has one report."""
    rows = series("a", 0.005, 0.001, 12)
    assert calibration_json(made(rows)) == calibration_json(made(rows))


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_a_report_says_what_matters(form: str) -> None:
    """Floors, roofs at both clocks, each case with its standing, false alarms with their bound, power by level."""
    rows = [row for n in range(3) for row in series(f"q{n}", 0.004, 0.001, 20, levels=(0.0, 0.02))]
    rows += [replace(row, marks=("power_limited",)) for row in series("hot", 0.03, 0.0, 20)]
    text = " ".join(show_calibration(made(rows), form).split())
    for said in (
        "A launch takes at least 0.810 us",
        "the timer's steps are 32.0 ns",
        "690",
        "1485",
        "f/mm/q0",
        "power-limited at 1980 MHz",
        "2 kernels",
        "1.00 mJ",
        "gated",
        "reported",
        "False alarms: 0 of 3000 gates over 200 cases (95% confidence: at most 0.12%)",
        "resampled from 20 blocks",
        "100.0%",
    ):
        assert said in text, said


def test_a_noisy_first_case_stands_beside_the_second_of_its_sizes() -> None:
    """What scatters as much when it comes second is noisy by itself, and the report has both."""
    rows = series("a", 0.006, 0.0, 20)
    rows += [replace(row, implementation="other", visit=f"other-{row.visit}") for row in rows]
    text = " ".join(show_calibration(made(rows), "table").split())
    (first, second) = re.findall(
        r"The first case has an sd of (\S+), the others \S+ and the second, of the same sizes, (\S+%)", text
    )[0]
    assert first == second
    assert "of the same sizes" not in show_calibration(made(series("a", 0.006, 0.0) + series("b", 0.006, 0.0)), "table")
