"""Halving finds the first bad one among names and among commits, whatever cannot be judged in between."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmgate.suite.bisect import first_bad, first_bad_commit
from gemmgate.suite.cli import bisect as command
from gemmgate.suite.duets import Answer, Asked, ask_gate
from gemmgate.suite.errors import CannotMeasureError, UsageError
from tests.called import called


@given(count=st.integers(2, 40), data=st.data())
def test_first_bad_name(count: int, data: st.DataObject) -> None:
    """Among names of which all from one on are bad, that one is found with at most log2 of them asked."""
    first = data.draw(st.integers(1, count - 1))
    names = [str(i) for i in range(count)]
    found = first_bad(names, lambda name: "yes" if int(name) >= first else "no")
    assert found.candidates == (str(first),)
    assert 2**found.asked <= 2 * count


def test_what_cannot_be_judged_remains() -> None:
    """Names that cannot be judged stay candidates beside the first bad one, and no others do."""
    names = "a b c d e f g".split()
    answers: dict[str, Answer] = {"b": "no", "c": "no", "d": "unclear", "e": "unclear", "f": "yes"}
    found = first_bad(names, lambda name: answers[name])
    assert found.candidates == ("d", "e", "f")
    assert not found.is_found


def git(root: Path, *words: str) -> str:
    """What git prints in a repository."""
    who = ["-c", "user.name=Test", "-c", "user.email=test@localhost"]
    return subprocess.run(["git", *who, *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def commits(tmp_path: Path) -> tuple[Path, list[str]]:
    """A repository with a line of nine commits."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    made = []
    for number in range(9):
        git(root, "commit", "--quiet", "--allow-empty", "--message", f"Commit {number}")
        made.append(git(root, "rev-parse", "HEAD"))
    return root, made


@pytest.mark.parametrize("first", [1, 4, 8])
def test_first_bad_commit(commits: tuple[Path, list[str]], first: int) -> None:
    """Git's halving with our judge ends at the first bad commit, and leaves checkout and worktrees as they were."""
    root, made = commits
    said: list[str] = []
    found = first_bad_commit(
        root, made[0], "main", lambda name: "yes" if made.index(name) >= first else "no", said.append
    )
    assert found.candidates == (made[first],)
    assert found.asked == len(said) <= 3
    assert git(root, "status", "--porcelain", "--branch") == "## main"
    assert len(git(root, "worktree", "list").splitlines()) == 1
    assert not list((root / ".git").glob("BISECT_*"))


def test_commits_that_cannot_be_judged_remain(commits: tuple[Path, list[str]]) -> None:
    """Where the commits before the first bad one cannot be judged, all of them remain."""
    root, made = commits
    answers: list[Answer] = ["no", "no", "no", "unclear", "unclear", "yes", "yes", "yes", "yes"]
    found = first_bad_commit(root, made[0], made[-1], lambda name: answers[made.index(name)])
    assert set(found.candidates) == set(made[3:6])


def test_ends_must_be_known_and_in_order(commits: tuple[Path, list[str]]) -> None:
    """An unknown commit and a good end that is no ancestor are usage errors."""
    root, made = commits
    with pytest.raises(UsageError, match="knows no commit 'nonesuch'"):
        first_bad_commit(root, "nonesuch", "main", lambda name: "yes")
    with pytest.raises(UsageError, match="no ancestor"):
        first_bad_commit(root, made[5], made[2], lambda name: "yes")


@pytest.mark.parametrize(("code", "answer"), [(0, "no"), (1, "yes"), (3, "unclear")])
def test_gate_answers_by_its_exit_code(tmp_path: Path, code: int, answer: str) -> None:
    """Exit codes 0, 1 and 3 of the gate mean not slower, slower and unclear; its last line is kept."""
    package = tmp_path / "gemmgate"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(f"import sys; print('first'); print(*sys.argv[1:]); sys.exit({code})")
    assert ask_gate(tmp_path, ["--base", "a", "--head", "b"]) == Asked(answer, "gate --base a --head b")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "error", "said"), [(2, UsageError, "^No case matches 'x'.$"), (9, CannotMeasureError, "ended with 9")]
)
def test_gate_that_refuses_is_an_error(tmp_path: Path, code: int, error: type[Exception], said: str) -> None:
    """What the gate calls bad input is bad input, in its own words; any other exit code is no answer."""
    (tmp_path / "gemmgate").mkdir()
    (tmp_path / "gemmgate" / "__init__.py").touch()
    program = f"import sys; print(\"gemmgate: No case matches 'x'.\", file=sys.stderr); sys.exit({code})"
    (tmp_path / "gemmgate" / "__main__.py").write_text(program)
    with pytest.raises(error, match=said):
        ask_gate(tmp_path, ["--base", "a"])


def asked_with(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Answer]) -> list[list[str]]:
    """Puts answers by the head's name in place of the gate; returns the options of every question."""
    questions: list[list[str]] = []

    def ask(root: Path, options: list[str]) -> Asked:
        questions.append(options)
        return Asked(answers[options[3]], "")

    monkeypatch.setattr(command, "ask_gate", ask)
    return questions


def test_bisect_over_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreters are judged against the good one on the case that was named; the first slower one is printed."""
    questions = asked_with(monkeypatch, {"p2": "no", "p3": "yes", "p4": "yes"})
    result = called("bisect", "p1", "p4", "--pythons", "p2,p3", "--case", "m16*", "--impl", "own")
    assert (result.exit_code, result.stdout.split()) == (0, ["p3"])
    expected = ["--base-python", "p1", "--head-python", "p4", "--case", "m16*", "--impl", "own", "--device", "auto"]
    assert questions[0] == expected


@pytest.mark.parametrize("answer", ["no", "unclear"])
def test_bad_end_must_be_bad(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    """Where the bad end is not shown to be slower there is nothing to look for, and the exit code is 3."""
    asked_with(monkeypatch, {"b": answer})
    result = called("bisect", "a", "b", "--pythons", "c", "--case", "x")
    assert result.exit_code == 3
    assert "nothing to look for" in result.said


def test_ends_are_looked_up_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that git does not know and two names of one commit are usage errors, and the gate is not asked."""
    questions = asked_with(monkeypatch, {})
    assert called("bisect", "HEAD", "nonesuch", "--case", "x").exit_code == 2
    result = called("bisect", "HEAD", "HEAD", "--case", "x")
    assert (result.exit_code, questions) == (2, [])
    assert "nothing in between" in result.said


def test_a_case_must_be_named() -> None:
    """Without a case, bisecting is a usage error."""
    assert called("bisect", "a", "b").exit_code == 2
