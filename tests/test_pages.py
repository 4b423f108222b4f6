"""Pages say what the runs that they name say."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gemmgate.suite import cli, pages
from gemmgate.suite.cli import pages as command
from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import Run
from gemmgate.suite.report import markdown_answer
from gemmgate.suite.store import Store
from tests.claimed import at, of, pair
from tests.runs import row, run
from tests.stored import ROOT, interrupted, stored


@pytest.mark.parametrize("page", pages.find(ROOT), ids=lambda path: path.name)
def test_pages_say_what_their_runs_say(page: Path) -> None:
    """Every block of README and docs is what the stored run that it names comes to."""
    found = pages.blocks(page.read_text(encoding="utf-8"))
    assert found
    load = pages.loader(Store(ROOT / "results"))
    for block in found:
        assert block.text == pages.rendered(block, load), "`gemmgate pages` writes it anew"
    for name, picture in pages.pictures(page.read_text(encoding="utf-8"), load).items():
        assert (page.parent / name).read_text(encoding="utf-8") == picture, "`gemmgate pages` draws it anew"


def test_pages_that_have_blocks() -> None:
    """Runs are written into README and the pages of claims, method, trials, router, static and tuning."""
    found = [path.relative_to(ROOT).as_posix() for path in pages.find(ROOT)]
    names = ("claims", "method", "own-kernel", "router", "static", "tuning")
    assert found == ["README.md", *(f"docs/{name}.md" for name in names)]


PAGE = """# Title

<!-- table:h200 impl=cublas,triton_split_k cache=cold tag=quick -->
old
<!-- /table:h200 -->
between
<!-- table:cpu run=b -->
old
<!-- /table:cpu -->
end
"""


def test_a_page_is_rewritten_between_its_markers() -> None:
    """Text around blocks and options stay, a new run is named in its block alone, and writing again changes nothing."""
    loaded: list[str] = []

    def load(block: pages.Block) -> Run:
        loaded.append(block.run)
        return of(pair(8192, 1.25), pair(16384, 3.0, tags=("full",)))

    page = pages.rewritten(PAGE, load, {"h200": "a"})
    assert loaded == ["a", "b"]
    assert page.startswith("# Title\n\n<!-- table:h200 run=a impl=cublas,triton_split_k cache=cold tag=quick -->\n\n")
    assert "\n<!-- /table:h200 -->\nbetween\n<!-- table:cpu run=b -->\n\n" in page
    assert page.endswith("<!-- /table:cpu -->\nend\n")
    first, second = (block.text for block in pages.blocks(page))
    assert "| m32-n32-k8192-bf16 | 12.0 | **9.60 (1.25x)** |" in first
    assert "k16384" not in first
    assert "k16384" in second
    assert pages.rewritten(page, load, {}) == page


def test_a_block_of_some_cases() -> None:
    """`case` holds globs: what matches none is not shown, and where nothing matches that is an error."""
    load = lambda block: of(pair(8192, 1.25), pair(16384, 3.0))  # noqa: E731
    page = "<!-- table:x run=a case=*k8192-*,*k4096-* -->\n<!-- /table:x -->"
    written = pages.rewritten(page, load, {})
    assert "k8192" in written
    assert "k16384" not in written
    with pytest.raises(UsageError, match="No row of run a has the tag and case of block table:x"):
        pages.rewritten(page.replace("k8192", "k1"), load, {})


def test_a_block_without_a_run_says_so() -> None:
    """What was not measured is not shown."""
    page = pages.rewritten("<!-- table:x -->\n1.5x\n<!-- /table:x -->", lambda name: run(), {})
    assert page == "<!-- table:x -->\n\nNot measured yet.\n\n<!-- /table:x -->"


@pytest.mark.parametrize(
    ("marker", "said"),
    [("chart:x", "No kind of block matches 'chart'"), ("table:x rnu=1", "matches 'rnu'. Did you mean run?")],
)
def test_misspelt_markers(marker: str, said: str) -> None:
    """A kind or an option that does not exist is an error that names those that do."""
    name = marker.partition(" ")[0]
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        pages.blocks(f"<!-- {marker} -->\n<!-- /{name} -->")


@pytest.mark.parametrize(
    ("page", "marker"),
    [
        ("<!-- table:x run=a -->\n<!-- /table:y -->\n", "<!-- table:x run=a -->"),
        ("<!-- table:x run = a -->\n<!-- /table:x -->\n", "<!-- table:x run = a -->"),
        ("text\n<!-- /goals:x -->\n", "<!-- /goals:x -->"),
    ],
)
def test_a_marker_that_makes_no_block_is_no_comment(page: str, marker: str) -> None:
    """One that is not closed, not opened or not written right would keep its old table for ever: it is an error."""
    with pytest.raises(UsageError, match=f"Marker {re.escape(marker)} belongs to no block"):
        pages.blocks(page)


def test_an_answer_says_where_it_is_faster_and_where_not(tmp_path: Path) -> None:
    """A line a format: sizes, the mean of 2 and 0.5 over two cases, the case that is slower, what has no ratio."""
    failed = row(
        "triton_split_k", None, status="broken", case="m32-n32-k32768-bf16", dims={"m": 32, "n": 32, "k": 32768}
    )
    made = [
        *pair(8192, 2.0),
        *pair(16384, 0.5),
        failed,
        *pair(
            8192,
            1.25,
            dtype="fp32",
            precision="ieee",
        ),
    ]
    page = pages.rewritten("<!-- answer:x run=a impl=triton_split_k -->\n<!-- /answer:x -->", lambda _: run(made), {})
    lines = page.splitlines()
    assert "**dense_splitk against cublas, cold, on NVIDIA H200**" in lines
    bf16, fp32 = (line for line in lines if line.startswith("| triton_split_k "))
    assert bf16 == (
        "| triton_split_k | bf16, m 32, n 32, k 8192-16384 | 1.000 (2) | 1 | 0 | 1 "
        "| m32-n32-k16384-bf16 (0.500) | 1 broken |"
    )
    assert fp32 == "| triton_split_k | fp32 ieee, m 32, n 32, k 8192 | 1.250 (1) | 1 | 0 | 0 | none | none |"


def test_an_answer_of_a_name_that_is_not_there() -> None:
    """An implementation that the run does not have is an error that names those it has."""
    with pytest.raises(UsageError, match="Known: cublas, triton_split_k"):
        markdown_answer(run(pair(8192, 2.0)), ["dispatch"])


def test_a_page_whose_run_is_missing_says_which_and_writes_nothing(
    checkout: tuple[Path, Store], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 with the run, the block and the page; pages whose runs are there are left as they were."""
    root, store = checkout
    stored(store, run(), *pair(8192, 1.25))
    (root / "README.md").write_text("<!-- table:h200 run=latest -->\n<!-- /table:h200 -->\n")
    (root / "docs").mkdir()
    (root / "docs" / "more.md").write_text("<!-- goals:g run=20990101T000000Z-0000000000 -->\n<!-- /goals:g -->\n")
    before = (root / "README.md").read_text()
    assert call(monkeypatch) == 2
    said = capsys.readouterr().err
    assert "No run matches '20990101T000000Z-0000000000'." in said
    assert "Block goals:g needs it. Nothing was written: docs/more.md has it." in said
    assert (root / "README.md").read_text() == before


def test_a_trial_is_shown_as_it_was_printed(tmp_path: Path) -> None:
    """A block of a trial has the command, the lines and the exit code of the run below results/trials, and where."""
    tried = {"function": "wrong.py:matmul", "name": "matmul", "against": "cublas", "checked": ["a", "b"], "of": 2}
    selection = {"caches": ["cold"], "tried": {**tried, "timed": False}}
    command = "gemmgate try wrong.py:matmul --family dense_splitk"
    wrong = row("matmul", status="broken", reason="error_above_bound", detail="error 0.5", case="a")
    store = Store(tmp_path)
    stored(Store(tmp_path / "trials"), run(selection=selection, command=command), wrong)
    page = pages.rewritten("<!-- trial:x run=latest -->\n<!-- /trial:x -->", pages.loader(store), {})
    assert page.startswith(
        "<!-- trial:x run=latest -->\n\n    $ gemmgate try wrong.py:matmul --family dense_splitk\n"
        "    Wrong: matmul failed on 1 of 2 cases, so nothing was timed.\n"
        "      a: matmul is wrong: error 0.5.\n    exit code 1\n\nNVIDIA H200 ("
    )


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Store]:
    """A README with a block, and a store."""
    (tmp_path / "README.md").write_text("<!-- table:h200 -->\n<!-- /table:h200 -->\n")
    monkeypatch.setattr(command, "own_overlay", lambda: tmp_path)
    monkeypatch.setenv("GEMMGATE_RESULTS", str(tmp_path / "results"))
    return tmp_path, Store(tmp_path / "results")


def call(monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    """The exit code of `gemmgate pages`."""
    monkeypatch.setattr(sys, "argv", ["gemmgate", "pages", *options])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def test_a_run_is_added_to_a_block(checkout: tuple[Path, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    """`--add` keeps the runs that a block has, of another method too, and adding one twice changes nothing."""
    root, store = checkout
    (root / "README.md").write_text("<!-- claims:published -->\n<!-- /claims:published -->\n")
    old, new = at(3, pair(8192, 1.4)), at(5, pair(8192, 1.6, dtype="fp32", precision="ieee"), method=2)
    for one in (old, new):
        stored(store, replace(one, rows=()), *one.rows)
        assert call(monkeypatch, "--add", "published=latest") == 0
    text = (root / "README.md").read_text()
    assert text.startswith(f"<!-- claims:published run={old.id},{new.id} -->\n")
    assert "method 1, 2026-02-03): NOT RUN, too few cases" in text
    assert "method 2, 2026-02-05): NOT RUN, too few cases" in text
    assert call(monkeypatch, "--add", f"published={old.id}") == 0
    assert (root / "README.md").read_text() == text


def test_pages_command(checkout: tuple[Path, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    """`latest` is written down as the run's id, and the table is that run's."""
    root, store = checkout
    stored(store, run(), *pair(8192, 1.25))
    assert call(monkeypatch, "--run", "h200=latest") == 0
    text = (root / "README.md").read_text()
    assert text.startswith("<!-- table:h200 run=20260131T120000Z-0a1b2c3d4e -->\n")
    assert "(1.25x)" in text
    assert call(monkeypatch) == 0
    assert (root / "README.md").read_text() == text


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("h200", "should be NAME=RUN"),
        ("h100=latest", "Did you mean h200?"),
        ("h200=latest", "is interrupted: finish it"),
        ("h200=latest", "or as it is with `gemmgate runs --finish 20260131T120000Z-0a1b2c3d4e`."),
        ("h200=20260101T000000Z-0a1b2c3d4e-dirty", "uncommitted changes"),
        ("h200=nothing", "No run matches 'nothing'"),
    ],
)
def test_pages_refuses(
    checkout: tuple[Path, Store],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
    said: str,
) -> None:
    """A run that is unknown, unfinished or of a changed tree is refused with exit code 2, and no page is touched."""
    root, store = checkout
    dirty = run(id="20260101T000000Z-0a1b2c3d4e-dirty", utc="2026-01-01T00:00:00Z", dirty=True)
    stored(store, dirty, *pair(8192, 1.25))
    interrupted(store, run(), *pair(8192, 1.25))
    assert call(monkeypatch, "--run", option) == 2
    assert said in capsys.readouterr().err
    assert (root / "README.md").read_text() == "<!-- table:h200 -->\n<!-- /table:h200 -->\n"
