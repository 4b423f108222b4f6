"""Early stopping: what the looks decide by hand, and by simulation how often they ring in vain and what they find."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from gemmgate.suite import block_rule, duet, looks, rehearsal, stages, watch
from gemmgate.suite.block_values import BlockValue
from gemmgate.suite.looks import (
    LOOKS,
    OWN,
    Noise,
    alpha_of,
    decide,
    let_go,
    looks_at,
    noise_of,
    ratio_of,
    upper,
    with_own,
)
from gemmgate.suite.rehearsal import Rehearsed, rehearse
from gemmgate.suite.statistics import Floats
from tests.runs import row

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "verdicts.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())
SDS = np.linspace(0.002, 0.02, 200)
"""Block standard deviations of 200 cases."""
ALTERNATING = np.array([1.0, -1.0] * 20)
NORMAL = np.random.default_rng(2).permutation(scipy.stats.norm.ppf((np.arange(40) + 0.5) / 40))
"""Forty normal blocks without luck, in any order."""


def series(values: Floats, cycles: Floats | None = None) -> dict[int, tuple[float, float | None]]:
    """Blocks of a case by their number."""
    return {i: (float(x), None if cycles is None else float(cycles[i])) for i, x in enumerate(values)}


def decided(values: Floats, *, sd: float = 0.006, until: int = LOOKS[-1], cycles: Floats | None = None) -> str:
    """What becomes of one flagged case."""
    return decide({"a": series(values, cycles)}, {"a": Noise(sd)}, until)["a"]


def drifting(source: np.random.Generator, blocks: int) -> Floats:
    """Log-ratios of visits A B B A and B A A B, noise 1, while all that is measured drifts by 5 a visit."""
    visits = source.normal(size=(blocks, 4)) + source.normal(0.0, 5.0, size=(blocks, 1)) * np.arange(4)
    signs = np.where(np.arange(blocks) % 2 == 0, 1.0, -1.0)
    found: Floats = signs * (visits[:, 1] + visits[:, 2] - visits[:, 0] - visits[:, 3]) / 2
    return found


KINDS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "launches differ": lambda source, n: source.normal(size=n),
    "heavy tails": lambda source, n: source.standard_t(3, size=n) / math.sqrt(3),
    "one launch in ten slow": lambda source, n: (
        source.normal(size=n) + 15 * source.choice((-1, 0, 1), size=n, p=(0.05, 0.9, 0.05))
    ),
    "two modes": lambda source, n: (source.normal(size=n) + 2.5 * ((source.uniform(size=n) < 0.5) - 0.5)) / 1.6,
    "drift": drifting,
}


@cache
def played(kind: str, *, known: bool, cut: bool = False) -> Rehearsed:
    """Two hundred gates over 200 unchanged cases with that kind of noise; with `cut`, time ends after any block."""
    source, clock = np.random.default_rng(11), np.random.default_rng(13)
    noise = [Noise(float(sd)) if known else None for sd in SDS]
    ends = (lambda: int(clock.integers(looks.FEWEST_LOOKED, LOOKS[-1] + 1))) if cut else (lambda: LOOKS[-1])
    return rehearse(lambda case, n: KINDS[kind](source, n) * SDS[case], noise, [0.0] * 200, 200, ends=ends)


@cache
def power(sd: float, change: float, *, known: bool = True) -> float:
    """Share of slowed cases that are found, 20 of them beside 180 unchanged ones in each of 25 gates."""
    source = np.random.default_rng(12)
    noise = [Noise(sd) if known else None] * 200
    changes = [change] * 20 + [0.0] * 180
    return rehearse(lambda case, n: source.normal(0.0, sd, size=n), noise, changes, 25).power


def page_table(title: str) -> list[list[str]]:
    """The rows of the table under a heading of the page."""
    (text,) = re.findall(rf"^### {re.escape(title)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return rows[2:]


def test_what_the_looks_spend_adds_up_to_the_budget() -> None:
    """The parts are positive, grow from look to look, and come to 1 % together; a look at the end adds no more."""
    parts = [alpha_of(before, size) for before, size in pairwise((0, *LOOKS))]
    assert sum(parts) == pytest.approx(block_rule.ALPHA)
    assert parts == sorted(parts) and parts[0] == pytest.approx(0.01 * (6 / 40) ** 3)
    for tried in range(LOOKS[-1] + 1):
        cut = looks_at(tried, ended=True)
        spent = sum(alpha_of(before, size) for before, size in pairwise((0, *cut)))
        assert spent == pytest.approx(0.01 * (tried / 40) ** 3 if cut else 0.0)
    assert (looks_at(3, ended=True), looks_at(9, ended=True), looks_at(9, ended=False)) == ([], [6, 9], [6])


def test_clear_is_clear_at_the_first_look() -> None:
    """5 % in every block, give or take 0.1 %, is slower after six blocks, and before that nothing is said."""
    values = 0.05 + 0.001 * ALTERNATING
    assert decided(values, until=5) == "open"
    assert decided(values, until=6) == "slower"


def test_nothing_is_the_same_at_the_first_look() -> None:
    """Blocks of 0.1 % around zero rule out 1 % after twelve, and six do not."""
    assert decided(0.001 * ALTERNATING, until=11) == "open"
    assert decided(0.001 * ALTERNATING, until=12) == "same"


def test_small_and_certain_is_the_same() -> None:
    """0.3 % in every block is there without doubt and below the size that counts."""
    assert decided(0.003 + 0.0002 * ALTERNATING) == "same"


def test_too_few_unspoiled_blocks_decide_nothing() -> None:
    """With five blocks of the first twelve left, not even 5 % is called."""
    blocks = dict(list(series(0.05 + 0.001 * ALTERNATING).items())[:5])
    assert decide({"a": blocks}, {"a": Noise(0.006)}, 12) == {"a": "open"}
    assert decide({"a": blocks}, {"a": Noise(0.006)}, LOOKS[-1]) == {"a": "unclear"}


def test_time_without_cycles_is_the_clock() -> None:
    """5 % more time in the same number of cycles is no slow-down of the code; in as many more cycles it is one."""
    values = 0.05 + 0.001 * ALTERNATING
    assert decided(values, cycles=0.0001 * ALTERNATING) == "clock"
    assert decided(values, cycles=values) == "slower"


def test_many_flagged_at_once_must_be_clearer() -> None:
    """A mean of 0.85 deviations is slower where it was flagged alone; among 200 such it is open, and then unclear."""
    values, noise = 0.0085 + 0.01 * NORMAL, Noise(0.01)
    names = [str(i) for i in range(200)]
    assert decide({"a": series(values)}, {"a": noise}, LOOKS[-1]) == {"a": "slower"}
    many = dict.fromkeys(names, series(values)), dict.fromkeys(names, noise)
    assert {*decide(*many, LOOKS[-2]).values()} == {"open"}
    assert {*decide(*many, LOOKS[-1]).values()} == {"unclear"}


def test_a_decision_stays() -> None:
    """What was slower at the first look is not taken back by later blocks that are not there for it."""
    values = np.concatenate([0.05 + 0.001 * ALTERNATING[:12], 0.0 * ALTERNATING[:28]])
    assert decided(values) == "slower"


def test_early_leave_is_for_what_looks_unchanged() -> None:
    """A median of zero leaves the screen early; one near its threshold, or far below zero, does not."""
    rule = Noise(0.006).rule
    assert let_go([0.0] * 6, rule, 0.1)
    assert let_go([rule.screen_at / 2] * 6, rule, 0.6)
    assert not let_go([rule.screen_at / 2] * 6, rule, 0.1)
    assert not let_go([-2 * rule.screen_at] * 6, rule, 0.1)
    steps = [step for step, _ in looks.SCREEN_STEPS]
    assert [step for step, _ in looks.screen_steps(Noise(0.006, source="a calibration"))] == steps
    for noisy in (None, Noise(0.0061, source="a calibration"), Noise(0.001, source=OWN)):
        assert [step for step, _ in looks.screen_steps(noisy)] == steps[1:]


def test_early_flag_is_for_what_is_clear() -> None:
    """A median of more than five thresholds is flagged at a step, in either direction; one of 4.9 is not."""
    rule = Noise(0.006).rule
    assert looks.is_clear([5.1 * rule.screen_at] * 4, rule)
    assert looks.is_clear([-5.1 * rule.screen_at] * 6, rule)
    assert not looks.is_clear([4.9 * rule.screen_at] * 6, rule)
    assert not looks.is_clear([0.2, 0.0, 0.0, 0.0], rule)  # one slow launch


def test_a_step_that_is_not_complete_flags_nothing() -> None:
    """Of six blocks 20 % more time is a flag; with one of them spoiled, or three alone, the screen goes on."""

    def blocks(count: int, spoiled: int = -1) -> list[BlockValue]:
        sides = [row("mm", 1e-5, marks=("shared",) if i == spoiled else ()) for i in range(count)]
        return [BlockValue("a", i, 0.0, math.log(1.2), None, None, side, side) for i, side in enumerate(sides)]

    assert stages.screened(blocks(6), None) == "slower"
    assert stages.screened(blocks(6, spoiled=2), None) == "open"
    assert stages.screened(blocks(3), None) == "open"


def test_noise_is_that_of_normal_blocks() -> None:
    """The robust standard deviation of twelve normal blocks is right on average within 10 %."""
    source = np.random.default_rng(3)
    found = looks.robust_sd(source.normal(0.0, 0.01, size=(4000, 12)))
    assert float(found.mean()) == pytest.approx(0.01, rel=0.1)


def test_one_slow_launch_hardly_moves_the_noise() -> None:
    """Twelve percent in one block of twelve changes the estimate by less than a half."""
    calm = 0.006 * ALTERNATING[:12]
    wild = calm.copy()
    wild[3] = 0.12
    assert noise_of(list(wild), "x").sd < 1.5 * noise_of(list(calm), "x").sd


def test_what_is_known_gives_way_to_what_is_seen() -> None:
    """Blocks that scatter far more than calibration said count; those that scatter less change nothing."""
    known = Noise(0.004, source="a calibration")
    assert with_own(known, list(0.002 * ALTERNATING[:12])) == known
    seen = with_own(known, list(0.03 * ALTERNATING[:12]))
    assert seen.sd > 0.02 and seen.source == OWN


def test_two_modes_are_reported() -> None:
    """A case whose launches fall into two groups is reported, however narrow the blocks are."""
    values = [0.02 * (i % 2) + 0.0001 * (i % 5) for i in range(24)]
    assert noise_of(values, "x").rule.standing == "reported"


def test_the_interval_holds_the_truth() -> None:
    """Of 2000 intervals at 95 % from twelve blocks, 93 to 97 in a hundred hold the true ratio."""
    source = np.random.default_rng(4)
    held = [math.exp(-0.01) in ratio_of(list(source.normal(0.01, 0.006, 12))) for _ in range(2000)]
    assert 0.93 <= np.mean(held) <= 0.97


def test_the_upper_bound_is_beyond_the_truth() -> None:
    """Of 2000 one-sided bounds at 99 % from twenty blocks, at least 98 in a hundred are above the true mean."""
    source = np.random.default_rng(5)
    above = [upper(list(source.normal(0.01, 0.006, 20))) > 0.01 for _ in range(2000)]
    assert np.mean(above) >= 0.98


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [True, False])
def test_false_alarms_stay_within_the_budget(kind: str, known: bool) -> None:
    """Of 200 gates over 200 unchanged cases no more ring than a rate of 1 in 100 allows, and 2 at most cannot judge."""
    found = played(kind, known=known)
    assert found.false_alarms.low <= 0.01
    assert found.unjudged <= 2
    assert found.screen_blocks / found.gates / 200 < 10.5


@pytest.mark.parametrize("kind", ["heavy tails", "two modes"])
def test_time_that_ends_early_rings_no_oftener(kind: str) -> None:
    """Gates whose time ends after any number of fresh blocks ring within the budget, and leave more unjudged."""
    cut, whole = played(kind, known=False, cut=True), played(kind, known=False)
    assert cut.false_alarms.low <= 0.01 and cut.alarms <= whole.alarms + 2
    assert cut.unjudged > whole.unjudged and cut.confirm_blocks < whole.confirm_blocks


def test_a_look_at_the_end_is_played_with_the_blocks_there_are() -> None:
    """5 % among quiet cases is found in nine blocks, counted as such; three blocks are no look, and stay unjudged."""
    source = np.random.default_rng(8)

    def found(blocks: int) -> Rehearsed:
        steady = [Noise(0.004)] * 2
        changes = [0.05, 0.0]
        return rehearse(lambda case, n: source.normal(0.0, 0.0001, n), steady, changes, 3, ends=lambda: blocks)

    assert (found(5).found, found(5).confirm_blocks) == (3, 15)
    assert (found(9).found, found(9).confirm_blocks) == (3, 18)
    assert (found(3).found, found(3).unjudged) == (0, 3)


@pytest.mark.parametrize(("sd", "change", "least"), [(0.006, 0.01, 0.97), (0.015, 0.02, 0.93), (0.02, 0.03, 0.95)])
def test_what_each_standing_promises_is_found(sd: float, change: float, least: float) -> None:
    """1 % in quiet cases, 2 % in gated and 3 % in extended ones."""
    assert power(sd, change) >= least


def test_an_alarm_is_counted_where_there_is_one() -> None:
    """Launches that are off by 3 % for every case ring in every gate, and not where each is called changed."""
    source = np.random.default_rng(6)
    noise = [Noise(0.005)] * 20

    def off(case: int, n: int) -> Floats:
        return source.normal(0.03, 0.005, size=n)

    assert rehearse(off, noise, [0.0] * 20, 20).alarms == 20
    assert rehearse(off, noise, [1e-9] * 20, 20).alarms == 0


def test_recorded_blocks_are_played() -> None:
    """From quiet recorded series no gate rings; without any there is nothing to play."""
    source = np.random.default_rng(7)
    recorded = [source.normal(0.0, 0.005, 60) for _ in range(10)]
    found = rehearsal.from_recorded(recorded, 50, 50, source)
    assert found is not None and (found.gates, found.alarms) == (50, 0)
    assert rehearsal.from_recorded([], 50, 50, source) is None


def test_numbers_of_the_page_are_the_codes() -> None:
    """What docs/verdicts.md says of blocks, looks, thresholds and budgets is what the code does."""
    first, *later = LOOKS
    steps = looks.SCREEN_STEPS
    for sentence in (
        f"after {steps[0][0]}, {steps[1][0]} and {steps[2][0]} blocks",
        f"{block_rule.GATED_BLOCKS[0]} blocks in all",
        f"below {steps[0][1]:g}, {steps[1][1]:g} and {steps[2][1]:g} of the screen's threshold",
        f"beyond {looks.CLEAR} thresholds it is flagged there",
        f"{looks.FEWEST_LOOKED} fresh blocks at least",
        f"after {first}, {', '.join(map(str, later[:-1]))} and {later[-1]} fresh blocks",
        f"to the power of {looks.SPENT}",
        f"{100 * looks.LEAST_SIZE:g} %, or {looks.SIZE_SD:g} block standard deviations",
        f"{100 * looks.SAME_SURE:g} % sure",
        f"in {duet.SHOWN_BLOCKS} blocks",
        f"in {duet.RELEASE_BLOCKS} blocks against the last release",
        f"the newest {watch.NEWEST_BLOCKS} blocks",
        f"{watch.FEWEST} blocks at least",
        f"{watch.REHEARSED} gates are played",
    ):
        assert sentence in WORDS, sentence
    assert block_rule.GATED_BLOCKS[0] < stages.FRESH


@pytest.mark.parametrize("row", page_table("False alarms"), ids=lambda row: row[0])
def test_false_alarms_of_the_page_are_those_of_a_simulation(row: list[str]) -> None:
    """In fewer gates than those behind the page, as many alarms in a hundred, within what so few can tell."""
    kind, with_noise, without = row[0], float(row[1].rstrip(" %")), float(row[2].rstrip(" %"))
    for share, known in ((with_noise, True), (without, False)):
        found = played(kind, known=known).false_alarms
        assert found.low <= share / 100 + 0.002 and share / 100 <= found.high


@pytest.mark.parametrize("row", page_table("Where time ends early"), ids=lambda row: row[0])
def test_false_alarms_of_gates_that_are_cut_are_those_of_a_simulation(row: list[str]) -> None:
    """In fewer gates, whole and cut, as many alarms as the page says, within what so few can tell."""
    shares = [float(cell.rstrip(" %")) / 100 for cell in row[1:]]
    kinds = [(known, cut) for known in (True, False) for cut in (False, True)]
    for share, (known, cut) in zip(shares, kinds, strict=True):
        found = played(row[0], known=known, cut=cut).false_alarms
        assert found.low <= share + 0.002 and share <= found.high


@pytest.mark.parametrize("row", page_table("Power"), ids=lambda row: f"{row[0]} {row[1]}")
def test_power_of_the_page_is_that_of_a_simulation(row: list[str]) -> None:
    """Each share of slow-downs found that the page gives is simulated within 4 points."""
    sd, change = (float(cell.rstrip(" %")) / 100 for cell in row[:2])
    for cell, known in zip(row[2:4], (True, False), strict=True):
        assert 100 * power(sd, change, known=known) == pytest.approx(float(cell.rstrip(" %")), abs=4.0)
