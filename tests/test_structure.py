"""Rules of this repository that no tool states."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(
    [path for half in ("suite", "kernels", "benchmarks") for path in (ROOT / half).rglob("*.py")]
    + list((ROOT / "gemmgate").glob("*.py"))  # its subfolders are links to the other two
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "kernels").rglob("*.md")])


def name(path: Path) -> str:
    """A file's path from the root: what a failing test shows."""
    return path.relative_to(ROOT).as_posix()


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", [*MODULES, *TESTS], ids=name)
def test_module_is_short_and_documented(path: Path) -> None:
    """A module has at most 500 lines and says what it is for."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500
    assert ast.get_docstring(parse(path))


@pytest.mark.parametrize("path", TESTS, ids=name)
def test_every_test_says_what_it_claims(path: Path) -> None:
    """Every test's docstring is a sentence, with a full stop."""
    functions = [node for node in ast.walk(parse(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in functions:
        if function.name.startswith("test_"):
            sentence = " ".join((ast.get_docstring(function) or "").split())
            assert re.fullmatch(r"\S.* .*\.", sentence), f"{function.name}: {sentence!r}"


def test_families_are_listed_without_dependencies() -> None:
    """All families and their cases import where only Python is installed, and of the harness only the contracts."""
    families = sorted(path.parent.name for path in (ROOT / "kernels").glob("[a-z]*/__init__.py"))
    names = [f"gemmgate.kernels.{family}{module}" for family in families for module in ("", ".cases")]
    code = f"import sys, {', '.join(names)}; print(*(n for n in sys.modules if n.startswith('gemmgate.suite.')))"
    bare = [sys.executable, "-S", "-E", "-c", code]  # -S: without site-packages
    result = subprocess.run(bare, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["gemmgate.suite.cases"]


def test_every_dependency_has_a_reason() -> None:
    """In pyproject.toml, each requirement stands on a line of its own with the reason for it behind."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (groups,) = re.findall(r"^\[dependency-groups\]\n(.*?)^\[", text, re.MULTILINE | re.DOTALL)
    tables = re.findall(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    tables += re.findall(r"^\w+ = \[\n(.*?)^\]", groups, re.MULTILINE | re.DOTALL)
    assert len(tables) == 1 + groups.count(" = [")
    lines = [line for table in tables for line in table.splitlines()]
    assert [line for line in lines if not re.fullmatch(r'    "[^"]+",\s+# \w.+', line)] == []


def test_every_lint_exception_has_a_reason() -> None:
    """Each rule that ruff is told to ignore has the reason on its line."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (ignored,) = re.findall(r"^ignore = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    (by_file,) = re.findall(r"per-file-ignores\]\n(.*?)^\[", text, re.MULTILINE | re.DOTALL)
    lines = [line for line in (ignored + by_file).splitlines() if line]
    assert [line for line in lines if not re.search(r"[\],]\s+# \S.+", line)] == []


def test_pages_name_commands_that_exist() -> None:
    """Every `gemmgate <command>` and every nox session that a page shows exists."""
    commands = {path.stem.strip("_").replace("_", "-") for path in (ROOT / "suite" / "cli").glob("[a-z]*.py")}
    sessions = set(re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        shown = "\n".join(re.findall(r"`[^`]+`|^    .+$", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert set(re.findall(r"\bgemmgate ([a-z][a-z-]+)", shown)) <= commands, name(page)
        asked = {word for words in re.findall(r"\bnox -s ([a-z ]+)", shown) for word in words.split()}
        assert asked <= sessions, name(page)


def test_glossary_defines_every_noun() -> None:
    """The glossary has an entry for each of the words that code and pages use in one sense only."""
    words = """family case implementation reference yardstick peer tile sample measurement block run method
    baseline candidate verdict gate worker""".split()
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").lower()
    assert [word for word in words if not re.search(rf"^\*?\*?{word}\b", text, re.MULTILINE)] == []
