"""What the pages say about data and numbers is what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from gemmgate.suite.records import (
    IDENTITY,
    MAX_SAMPLES,
    METHOD_VERSION,
    MIN_SAMPLES,
    SCHEMA,
    STATUSES,
    Limits,
    Machine,
    Row,
    Run,
    Stack,
)

DOCS = Path(__file__).resolve().parents[1] / "docs"
FORMAT = (DOCS / "format.md").read_text(encoding="utf-8")
METHOD = " ".join((DOCS / "method.md").read_text(encoding="utf-8").split())


def section(title: str) -> str:
    """A section of the format page."""
    (text,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", FORMAT, re.MULTILINE | re.DOTALL)
    return str(text)


def first_cells(title: str) -> list[str]:
    """The first cell of each line of a section's tables."""
    return re.findall(r"^\| (`[^|]+?) \|", section(title), re.MULTILINE)


def quoted(cells: list[str]) -> list[str]:
    """Names in code marks, in order."""
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def names(record: type) -> list[str]:
    """A record's fields."""
    return [field.name for field in fields(record)]


def test_every_column_is_documented() -> None:
    """The format page names each column of a run's file once: the fields of a row and a stack, `id` and `dirty`."""
    assert sorted(quoted(first_cells("Columns"))) == sorted(["id", "dirty", *names(Row), *names(Stack)])


def test_identity_is_documented() -> None:
    """The columns marked with an asterisk are those whose hash is a row's id."""
    assert tuple(quoted([cell for cell in first_cells("Columns") if cell.endswith("*")])) == IDENTITY


def test_header_is_documented() -> None:
    """The format page names each field of a run's header, of a machine and of the limits."""
    assert sorted(quoted(first_cells("Header"))) == sorted(set(names(Run)) - {"rows"})
    for field, record in (("machine", Machine), ("limits", Limits)):
        (meaning,) = re.findall(rf"^\| `{field}` \| (.+) \|$", section("Header"), re.MULTILINE)
        assert quoted([meaning]) == names(record)


def test_json_is_documented() -> None:
    """A row's JSON has the documented columns, but for samples, `dirty` and versions, and the fields listed for it."""
    from gemmgate.suite.report.rows import FIELDS

    columns = set(quoted(first_cells("Columns"))) - {"samples_s", "dirty", *names(Stack)}
    assert columns | set(quoted(first_cells("JSON"))) == set(FIELDS)


def test_statuses_are_documented() -> None:
    """The format page lists the statuses in the order of the code."""
    (meaning,) = re.findall(r"^\| `status` \| text \| (.+) \|$", FORMAT, re.MULTILINE)
    assert tuple(quoted([meaning])) == STATUSES


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        (FORMAT, f"`schema` is now {SCHEMA}."),
        (FORMAT, f"at most {MAX_SAMPLES} |"),
        (METHOD, f"the row's `method`, now {METHOD_VERSION}:"),
        (METHOD, f"has at least {MIN_SAMPLES} samples; a row keeps up to {MAX_SAMPLES} of them"),
    ],
)
def test_numbers_of_the_records_are_documented(page: str, sentence: str) -> None:
    """A number that a page states about records is the constant in the code."""
    assert sentence in page


def test_numbers_of_the_method_are_documented() -> None:
    """The ring's multiple of the cache and the size of a checked tile are those of the code."""
    from gemmgate.suite.measure import bench, check, crosscheck, proof, rotation, timed, watched

    assert f"at least {rotation.CACHE_MULTIPLE} times the last-level cache" in METHOD
    assert f"each tile of {check.TILE} × {check.TILE} outputs" in METHOD
    method = METHOD.replace(" %", "%")
    assert f"must be equivalent within {proof.BOUND:.0%}: the whole {proof.CONFIDENCE:.0%} interval" in method
    assert proof.ROUNDS == 8 and proof.LOOKS == 3 and "come in eights, at most three times" in METHOD
    assert proof.RESIDENT_SHARE == 0.5 and "take half of the cache or less" in METHOD
    assert f"sized for {bench._UNKNOWN_CACHE_BYTES >> 20} MiB" in METHOD
    assert f"a sample holds at most {timed._MOST_QUEUED}," in METHOD
    assert f"lie more than {watched._UNSTEADY:.0%} apart" in method
    assert f"A difference above {crosscheck.AGREEMENT:.0%} is explained" in method
    assert bench._ROUNDS_SHARE == 0.9 and "With a budget, a tenth of it is for this." in METHOD
    assert f"a proof still gets {bench._PROOF_LEAST_S} s." in METHOD
    assert watched.OFTEN == 5 and "What holds in a fifth of the readings is a mark" in METHOD


def test_numbers_of_blocks_and_of_the_rule_are_documented() -> None:
    """What the method page says of blocks, thresholds, standings and resampling is what the code does."""
    from gemmgate.suite import block_rule, block_visits, blocks, resampling
    from gemmgate.suite.cli import calibrate, timers
    from gemmgate.suite.measure import bench, sampler

    few, calls, many = block_visits.FEW_REPLAYS, block_visits.MANY_CALLS, block_visits.MANY_REPLAYS
    screen, confirm = block_rule.GATED_BLOCKS
    levels = [f"{100 * level:g}" for level in calibrate.LEVELS]
    for sentence in (
        f"{few} replays where one holds {calls} calls or more, else {many}",
        f"A first {screen} blocks screen",
        f"exceeds {block_rule.SCREEN_SD:g} standard deviations, and {100 * block_rule.LEAST_SCREEN:g} %",
        f"exceeds {block_rule.CONFIRM_SD:g} standard deviations and {100 * block_rule.LEAST_CONFIRM:g} %",
        f"at {100 * block_rule.ALPHA:g} % in total. Up to a standard deviation of {100 * block_rule.GATED_SD:g} %",
        f"with {confirm} such blocks and a slow-down of 2 % is found, up to {100 * block_rule.QUIET_SD:g} % one of 1 %",
        f"up to {100 * block_rule.EXTENDED_SD:g} % it is *extended*, with {block_rule.EXTENDED_BLOCKS[1]} blocks",
        f"{resampling.GATES} gates over {resampling.GATE_CASES} cases",
        f"by {', '.join(levels[:-1])} and {levels[-1]} %",
        f"at most {sampler.MOST_ROUNDS} of them",
        f"Each block has {calibrate.LEVELS_A_BLOCK} of the five levels",
        f"run alone, for {bench.ENERGY_S} s after",
        f"{timers.REPEATS} readings each in turn",
    ):
        assert sentence in METHOD, sentence
    assert block_rule.CONFIRM_TRIM == 0.25
    assert blocks.LEAST_FREE == 0.5 and "leave half of the device's memory free" in METHOD


def test_numbers_of_the_search_are_documented() -> None:
    """What the tuning page says of candidates, rounds, margins and the wide search is what the code does."""
    from gemmgate.suite.measure import race
    from gemmgate.suite.tuning import candidates, oracle, pace, planned, pool, racing, tuner

    page = " ".join((DOCS / "tuning.md").read_text(encoding="utf-8").split())
    rules = racing.Rules()
    for sentence in (
        f"of {rules.first} candidates half are its best",
        f"a buffer of {race.EVICTED} times its size",
        f"After {rules.rounds[0]} rounds those",
        f"the whole {100 * rules.confidence:g} % interval",
        f"more than {100 * rules.margin:g} % behind, or each sample more than {100 * (rules.clear - 1):.0f} %",
        f"up to {rules.joining} tiles join that differ in one or two fields from the {rules.centers} best",
        f"until {rules.finalists} are left, {sum(rules.rounds)} more at most",
        f"in {rules.final_rounds} rounds",
        f"the last {pace.LATELY} searches took: from {pace.WIDTHS[0]:g} of the usual number",
        f"to {pace.WIDTHS[1]:g} times it",
        f"up to {race.WINDOW_CALLS[1]} slots of the ring",
        f"{tuner.GUESSED_EACH} a compiler, up to {tuner.GUESSED} tiles near those",
        f"the next {(racing.AROUND - 1) * rules.joining} near its {rules.centers} best",
        f"{oracle.TOGETHER} run together in {oracle.ROUNDS} rounds",
        f"The {oracle.BEST} that come out best, and are right",
        f"beside the pick in {oracle.SCORED_ROUNDS} rounds",
        f"{planned.SEARCH_S:g} s a search",
    ):
        assert sentence in page, sentence
    assert rules.joins == 2 and f"Twice up to {rules.joining}" in page and candidates.MOST_DIFFERENCES == 2
    assert pool.KEPT_SHARE == 0.25 and "A quarter of them is kept" in page
