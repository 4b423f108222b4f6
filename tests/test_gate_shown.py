"""What is shown of a gate: text, Markdown, JUnit's XML, annotations and JSON, also of hostile names."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from gemmgate.suite import report
from gemmgate.suite.block_values import CANDIDATE
from gemmgate.suite.judgement import Judgement, judgement
from tests.fake_pair import BROKEN
from tests.gate_world import GateWorld, Played, cases
from tests.test_report import golden


@pytest.fixture(scope="module")
def mixed() -> Judgement:
    """One of each: wrong, slower with another tile, missing, new."""
    world = GateWorld({"c": 0.05}, block_sd=1e-6, facts={(CANDIDATE, "c"): {"tile": {"block": 32}}})
    world.faults[CANDIDATE, "check", "a"] = [BROKEN]
    played = Played(world, cases("a", "c"), fresh=cases("b"), missing=[["f", "z", "mm"]])
    return judgement(played.run)


@pytest.mark.parametrize("name", ["gate.txt", "gate.md", "gate.xml", "gate.annotations.txt"])
def test_what_is_shown(name: str, mixed: Judgement) -> None:
    """Text, Markdown, JUnit's XML and GitHub's annotations of a gate with one of each are as kept in tests/golden."""
    shown = {
        "gate.txt": lambda: report.table_gate(mixed, width=140),
        "gate.md": lambda: report.gate_markdown(mixed),
        "gate.xml": lambda: report.gate_junit(mixed),
        "gate.annotations.txt": lambda: report.gate_annotations(mixed),
    }[name]()
    golden(name, shown)


@pytest.mark.parametrize(
    ("name", "world"),
    [
        ("gate-slower.txt", lambda: GateWorld({"a": 0.05}, block_sd=1e-6)),
        ("gate-same.txt", lambda: GateWorld(block_sd=1e-6)),
        ("gate-unjudged.txt", lambda: _shared()),
    ],
)
def test_what_is_shown_of_each_outcome(name: str, world: object) -> None:
    """The text of a slower, an unchanged and an unjudged gate is as kept in tests/golden."""
    assert callable(world)
    found = judgement(Played(world(), cases("a")).run)
    golden(name, report.table_gate(found, width=140))


def _shared() -> GateWorld:
    world = GateWorld(block_sd=1e-6)
    world.marks = lambda side, count: ["shared"]
    return world


def test_junit_counts_what_fails(mixed: Judgement) -> None:
    """Any XML reader finds four cases, three failures and one that is skipped."""
    (suite,) = ElementTree.fromstring(report.gate_junit(mixed))
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "3", "0", "1"]


def test_json_says_what_failed(mixed: Judgement) -> None:
    """The JSON has the exit code, the paths that fail, and an entry an item."""
    data = report.gate_json(mixed)
    assert data["exit_code"] == 1
    assert data["failed"] == ["f/mm/a", "f/mm/c", "f/mm/z"]
    assert [item["verdict"] for item in data["items"]] == ["BROKEN", "INCOMPARABLE", "PICK_CHANGED", "INCOMPARABLE"]


def test_hostile_names_break_no_format() -> None:
    """A reason with newlines, percent signs, markup and control characters stays one line and valid XML."""
    world = GateWorld()
    evil = {**BROKEN, "detail": "50% <b>|x|</b>\n::error::\x00 &"}
    world.faults[CANDIDATE, "check", "a"] = [evil]
    found = judgement(Played(world, cases("a")).run)
    ElementTree.fromstring(report.gate_junit(found))
    lines = report.gate_annotations(found).splitlines()
    assert len(lines) == 2 and "%0A" in lines[0] and "50%25" in lines[0]
    assert re.search(r"(?<!\\)<b>", report.gate_markdown(found)) is None


def test_the_worst_ten_stand_above_the_fold() -> None:
    """Of three items that pass and a failure, the Markdown shows the failure and folds the rest."""
    world = GateWorld({"a": 0.05})
    text = report.gate_markdown(judgement(Played(world).run))
    above, fold, below = text.partition("<details>")
    assert fold and "f/mm/a" in above and "f/mm/b" not in above and "f/mm/b" in below
    assert text.startswith("### ❌ Failed: 1 SLOWER")
