"""What a repository accepts: the file, what it covers, and what is said about it."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from gemmgate.suite.acceptances import Acceptance, Acceptances, Applied, apply, read_acceptances
from gemmgate.suite.checkouts import ACCEPTED
from gemmgate.suite.compare import Comparison, Verdict
from tests.test_gate import comparison

TODAY = date(2026, 1, 31)
ENTRY = Acceptance("dense_splitk/*/m32-*", 0.05, "worth it", date(2026, 12, 31))
SLOWER = comparison(Verdict.SLOWER, "slower", change=0.04)
PATH = SLOWER.row.path


def applied(
    *entries: Acceptance, found: Comparison = SLOWER, creep: float = 0.03, since: float | None = None
) -> Applied:
    """What entries make of one comparison."""
    return apply(Acceptances(entries), [found], TODAY, {} if since is None else {PATH: since})


def test_the_projects_file_can_be_read() -> None:
    """The file of this repository accepts nothing yet and has a budget."""
    text = (Path(__file__).resolve().parents[1] / ACCEPTED).read_text(encoding="utf-8")
    assert read_acceptances(text, ACCEPTED) == Acceptances((), 0.03)


def test_an_entry_is_read() -> None:
    """Glob, bound, reason and date come out as they were written; `gone` stands in for a bound."""
    text = 'creep = 0.1\n[[accept]]\ncase = "a/*"\nbound = 0.02\nreason = "r"\nexpires = 2027-01-31\n'
    text += '[[accept]]\ncase = "b"\ngone = true\nreason = "removed"\nexpires = 2027-01-31\n'
    file = read_acceptances(text, "x")
    assert file.creep == 0.1
    assert file.entries == (
        Acceptance("a/*", 0.02, "r", date(2027, 1, 31)),
        Acceptance("b", 0.0, "removed", date(2027, 1, 31), gone=True),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[accept", "is no TOML"),
        ("accept = " + "[" * 100_000, "is no TOML"),
        ("budget = 1", "has 'budget'"),
        ("creep = 3", "share of the time"),
        ('[accept]\ncase = "a"', "two brackets"),
        ('[[accept]]\ncase = "a"', "entry 1: it lacks"),
        ('[[accept]]\ncase = "a"\nbound = 0.1\nreason = ""\nexpires = 2027-01-31', "reason is empty"),
        ('[[accept]]\ncase = "a"\nbound = 2\nreason = "r"\nexpires = 2027-01-31', "share of the time"),
        ('[[accept]]\ncase = "a"\nbound = 0.1\nreason = "r"\nexpires = "2027-01-31"', "a date without quotes"),
        ('[[accept]]\ncase = "a"\nbound = 0.1\nreason = "r"\nexpires = 2027-01-31\nfor = 1', "unknown 'for'"),
        ('[[accept]]\ncase = 1\nbound = 0.1\nreason = "r"\nexpires = 2027-01-31', "case is a text"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(text: str, said: str) -> None:
    """A file that cannot be meant is refused with the place and what it should hold."""
    with pytest.raises(Exception, match=said) as error:
        read_acceptances(text, "accepted.toml")
    assert str(error.value).startswith("accepted.toml")


def test_within_its_bound_a_slow_down_is_accepted() -> None:
    """4 % under an entry of 5 %, with its reason and end."""
    assert applied(ENTRY).accepted == {PATH: "accepted until 2026-12-31: worth it"}


@pytest.mark.parametrize(
    ("entry", "found", "since", "said"),
    [
        (ENTRY, comparison(Verdict.SLOWER, "slower", change=0.06), None, "more than the 5.0%"),
        (Acceptance("*", 0.05, "r", date(2026, 1, 30)), SLOWER, None, "ended on 2026-01-30"),
        (ENTRY, SLOWER, 0.031, "3.1% slower"),
        (ENTRY, comparison(Verdict.INCOMPARABLE, "missing"), None, "takes gone = true"),
    ],
)
def test_what_an_entry_does_not_cover(entry: Acceptance, found: Comparison, since: float | None, said: str) -> None:
    """Beyond its bound, after its end, beyond the budget since the release, and absence: refused, with the reason."""
    result = applied(entry, found=found, since=since)
    assert result.accepted == {}
    assert said in result.refused[found.row.path]


def test_a_wrong_result_is_never_accepted() -> None:
    """No entry covers BROKEN, however wide."""
    wide = Acceptance("*", 1.0, "r", date(2027, 1, 1), gone=True)
    broken = comparison(Verdict.BROKEN, "broken")
    assert (applied(wide, found=broken).accepted, applied(wide, found=broken).refused) == ({}, {})


def test_absence_is_accepted_where_it_is_said() -> None:
    """A case that is gone on purpose passes under an entry that says so."""
    gone = Acceptance("*", 0.0, "removed", date(2027, 1, 1), gone=True)
    assert applied(gone, found=comparison(Verdict.INCOMPARABLE, "missing")).accepted


@pytest.mark.parametrize(
    ("entry", "found", "report"),
    [
        (ENTRY, SLOWER, None),
        (ENTRY, comparison(Verdict.SAME), "was not needed"),
        (Acceptance("other/*", 0.1, "r", date(2027, 1, 1)), SLOWER, "matches nothing that was selected"),
        (Acceptance("*", 0.1, "r", date(2025, 1, 1)), SLOWER, "expired on 2025-01-01"),
    ],
)
def test_entries_that_serve_nothing_are_reported(entry: Acceptance, found: Comparison, report: str | None) -> None:
    """Expired, unneeded and unmatched entries each have a line; a used one has none."""
    reports = applied(entry, found=found).reports
    assert len(reports) == (report is not None)
    assert report is None or report in reports[0]


def test_the_second_of_two_entries_may_help() -> None:
    """Where one entry has expired, another that covers the case counts."""
    expired = Acceptance("*", 0.5, "old", date(2025, 1, 1))
    assert applied(expired, ENTRY).accepted == {PATH: "accepted until 2026-12-31: worth it"}
