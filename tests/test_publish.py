"""Stored runs become pages that a browser shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gemmgate.suite import history
from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import METHOD_VERSION
from gemmgate.suite.report.history import history_page
from gemmgate.suite.series import Series, collect
from gemmgate.suite.store import Store
from tests.browser import needs_chromium, shown
from tests.histories import BESIDE_HERE, NAME, NEW, OLD, TIMES, at, timed
from tests.published import Publish, publish, repository
from tests.runs import H200, row, run
from tests.stored import ROOT

__all__ = ["publish", "repository"]


def test_publish(publish: Publish, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs become asv's page, with both commits in its graphs, and a page of our own; once more changes nothing."""
    for _ in range(2):
        assert publish() == 0, capsys.readouterr().err
        html = tmp_path / "results" / "html"
        index = json.loads((html / "index.json").read_text())
        assert set(index["benchmarks"]) == {NAME, *(f"track_gemm.DenseSplitk.track_{name}" for name in BESIDE_HERE)}
        assert len(index["revision_to_hash"]) == 2
        (graph,) = (html / "graphs").rglob(f"python-gemmgate/**/{NAME}.json")
        assert json.loads(graph.read_text())[-1][1] == [8e-6, 8e-6]
        assert {"history.html", "plotly.min.js"} <= {path.name for path in html.iterdir()}
        assert "6 series of 2 runs" in capsys.readouterr().err


def test_asv_compares_what_was_published(publish: Publish, repository: tuple[Path, list[str]], tmp_path: Path) -> None:
    """`asv compare` of the two commits names the case that got slower, with both times."""
    root, commits = repository
    assert publish() == 0
    config = json.loads((root / "asv.conf.json").read_text())
    (root / "asv.conf.json").write_text(json.dumps({**config, "results_dir": str(tmp_path / "results" / "asv")}))
    command = [sys.executable, "-m", "asv", "compare", "--machine", H200.key, *commits]
    done = subprocess.run(command, cwd=root, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if "'own'" in line and "track_seconds" in line)
    assert [cell.strip() for cell in line.split("|")[1:5]] == ["+", "7.00±0.01μs", "8.00±0.02μs", "1.14"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--machine", "tpu*"], "No machine matches 'tpu*'"),
        (["--html", "."], "would be emptied"),
        (["--html", "conftest.py"], "Cannot write in conftest.py: File exists."),
    ],
)
def test_publish_refuses(
    publish: Publish, options: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown machine, a folder with other things in it and a file end with exit code 2 and a sentence."""
    monkeypatch.chdir(ROOT / "tests")
    assert publish(*options) == 2
    assert said in capsys.readouterr().err


def test_publishing_takes_a_checkout(tmp_path: Path) -> None:
    """Without asv's settings, as in an installed package, publishing says that it needs a checkout."""
    with pytest.raises(UsageError, match="no checkout"):
        history.publish(tmp_path, tmp_path / "asv", tmp_path / "html")


def test_no_text_ends_the_script() -> None:
    """Whatever a run says stays inside the page's data."""
    series, _ = collect([at(OLD, row("cublas", status="error", reason="</script><b>"))], TIMES)
    assert history_page(series, {}).count("</script>") == 2


def test_the_page_opens_with_the_method_in_use() -> None:
    """Series of the newest method stand first, whatever was measured first."""
    older = replace(row("cublas", 5e-6, case="a"), method=METHOD_VERSION - 1)
    series, _ = collect([at(OLD, older), at(NEW, row("cublas", 5e-6, case="b"))], TIMES)
    page = history_page(series, {})
    assert (
        0 < page.index('"dense_splitk seconds"') < page.index(f'"dense_splitk seconds by method {METHOD_VERSION - 1}"')
    )


@needs_chromium
def test_page_in_a_browser(tmp_path: Path) -> None:
    """Chromium, from a file and without a network, draws a line for each implementation and an arrow for the step."""
    from gemmgate.suite.cli.publish import PAGE, _write_page

    runs = [at(commit, row("cublas", 8e-6), row("own", 9e-6)) for commit in TIMES]
    series: Series = timed(*runs)[0]
    steps = {place: (history.Step(1, 1.125),) for place in series if place.implementation == "own"}
    _write_page(tmp_path, history_page(series, steps, ["a note"]))
    document = shown(tmp_path / PAGE, tmp_path / "profile")
    drawn = document[document.index('class="main-svg"') :]
    assert drawn.count('class="trace scatter') == 2
    assert all(word in drawn for word in (">cublas</text>", ">own</text>", ">own +12.5 %</text>", OLD[:10]))
    assert "Left out: a note." in document


def regressions(tmp_path: Path) -> list[tuple[str, float, float]]:
    """What asv's page of regressions lists: name, best and latest value."""
    listed = json.loads((tmp_path / "results" / "html" / "regressions.json").read_text())["regressions"]
    return [(name, best, latest) for name, _, _, _, latest, best, _ in listed]


def test_asv_lists_the_steps_of_the_history_alone(
    publish: Publish, repository: tuple[Path, list[str]], tmp_path: Path
) -> None:
    """Of a time that is 14 % longer once and of four registers more, asv lists the registers, as the history does."""
    store = Store(tmp_path / "results")
    for number, commit in enumerate(repository[1]):
        utc = f"2026-01-0{number + 1}T13:00:00Z"
        fields = {"kind": "static", "phase": "multiply", "unit": "registers", "cache": "", "tile": {"BLOCK_M": 64}}
        compiled = row("own", value=100.0 + 4 * number, **fields)
        with store.begin(run(id=f"2026010{number + 1}T130000Z-{commit[:10]}", commit=commit, utc=utc)) as journal:
            journal.append(replace(compiled, commit="", run_id="", utc=utc))
            journal.finish()
    assert publish() == 0
    name = "track_gemm.DenseSplitk.track_static_multiply('m32-n32-k32768-bf16', 'own', 'any target=sm_90')"
    assert regressions(tmp_path) == [(name, 100.0, 104.0)]
    html = tmp_path / "results" / "html"
    (listed,) = json.loads((html / "regressions.json").read_text())["regressions"]
    assert listed[6] == [[None, 1, 100.0, 104.0]]
    graph = json.loads((html / listed[1]).read_text())
    assert graph[-1] == [1, [104.0]]
    atom = "{http://www.w3.org/2005/Atom}"
    (entry,) = ElementTree.parse(html / "regressions.xml").getroot().findall(f"{atom}entry")
    assert entry.findtext(f"{atom}title") == f"+4.0% {name}"
    link = entry.find(f"{atom}link")
    assert link is not None and link.attrib["href"].startswith(
        "index.html#track_gemm.DenseSplitk.track_static_multiply?"
    )
