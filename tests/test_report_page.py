"""The report page: what its figures hold, worked out by hand, and what a browser makes of it."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemmgate.suite.records import Row, Run
from gemmgate.suite.report.page import charts, heat, report_page
from gemmgate.suite.report.page.figure import Figure
from gemmgate.suite.report.page.sections import Section, sections
from gemmgate.suite.store import Store
from tests.browser import answer, needs_chromium, violations
from tests.called import called
from tests.runs import STACK, row, run
from tests.stored import make_row, make_run, stored

HOSTILE = "<img src=x onerror=0>\"'&</script>"


def at(m: int, n: int, k: int, implementation: str, median_s: float, **fields: Any) -> Row:
    """A row of an m x n x k case."""
    case = f"m{m}-n{n}-k{k}-bf16"
    return row(implementation, median_s, case=case, dims={"m": m, "n": n, "k": k}, visit=case, **fields)


def section_of(*rows: Row, **fields: Any) -> Section:
    """The one section of a run."""
    (section,) = sections([run(rows, **fields)])
    return section


def figure(make: Callable[[Section, str], Figure | None], *rows: Row) -> Figure:
    """A figure that must be there."""
    found = make(section_of(*rows), "dense_splitk")
    assert found is not None
    return found


# sections


def test_runs_of_one_machine_are_one_and_others_apart() -> None:
    """Of two runs of a machine and stack the newest row counts; another stack has a part of the page of its own."""
    old, new = row("cublas", 9e-6, run_id=""), row("cublas", 8e-6, run_id="", utc="2026-02-01T12:00:00Z")
    other = run([row("cublas", 7e-6)], id="other", stack=replace(STACK, torch="2.13.0"))
    first, second = sections([run([new], id="new", utc=new.utc), run([old], id="old"), other])
    assert first.ids == ("old", "new")
    assert [(r.row.median_s, r.row.run_id) for r in first.rated] == [(8e-6, "new")]
    assert [r.row.median_s for r in second.rated] == [7e-6]


def test_arithmetic_is_named_as_far_as_it_varies() -> None:
    """A dtype with one precision is called by its name alone, and an epilogue is always said."""
    rows = [row(p, dtype="fp32", precision=p) for p in ("ieee", "tf32")] + [row("b"), row("c", epilogue="relu")]
    assert set(section_of(*rows).kinds().values()) == {"fp32 ieee", "fp32 tf32", "bf16", "bf16 relu"}


def test_the_headline_counts_as_the_table_does() -> None:
    """Of three cases that take half, 99.4 % and 112 % of the yardstick's time, the headline calls one faster."""
    rows = [at(16, 16, k, "cublas", 8e-6) for k in (512, 1024, 2048)]
    rows += [at(16, 16, k, "own", s) for k, s in ((512, 4e-6), (1024, 7.95e-6), (2048, 9e-6))]
    assert "over 3 cases, faster in 1 of them (cold)." in report_page([run(rows)], "")


# figures


@pytest.mark.parametrize(
    ("dims", "down", "across"),
    [
        ([{"m": s, "n": s, "k": k} for s in (16, 32) for k in (512, 1024, 2048)], ("m", "n"), ("k",)),
        ([{"t": t, "k": k, "n": n} for t in (1, 2, 4) for k, n in ((7168, 256), (5120, 160))], ("t",), ("k", "n")),
        ([{"m": 1, "n": 8, "k": 8}, {"m": 2, "n": 8, "k": 8}], ("m",), ()),
        ([{"m": s, "n": s} for s in (16, 32, 64)], ("m", "n"), ()),
        (
            [{"m": s, "n": s, "k": 512 + s * (i % 6)} for s in (16, 24, 40, 56, 64) for i in range(6)],
            ("m", "n"),
            ("k",),
        ),
    ],
)
def test_axes_fill_the_map(dims: list[dict[str, int]], down: tuple[str, ...], across: tuple[str, ...]) -> None:
    """Sizes that change together share an axis, tokens go down, constant sizes are on none, a diagonal is a list
    where that is short.
    """
    found = heat.axes(row("own", case=str(i), dims=one) for i, one in enumerate(dims))
    assert (found.down, found.across) == (down, across)


def test_heat_map_of_ratios() -> None:
    """A cell holds the binary logarithm of yardstick time over own time, its text the ratio, and its row's id."""
    rows = [at(16, 8, 512, "cublas", 8e-6), at(16, 8, 512, "own", 4e-6)]
    rows += [at(32, 8, 512, "cublas", 8e-6), at(32, 8, 512, "own", 16e-6)]
    (view,) = figure(heat.speedups, *rows).views
    (trace,) = view.traces
    assert view.key == ("own", "bf16", "cold")
    assert (trace["x"], trace["y"]) == (["all"], ["32", "16"])
    assert [cell for line in trace["z"] for cell in line] == pytest.approx([-1.0, 1.0], abs=0.01)
    assert trace["text"] == [["0.50"], ["2.00"]]
    assert trace["customdata"] == [[rows[3].id], [rows[1].id]]
    assert trace["zmax"] == -trace["zmin"] == pytest.approx(1.0, abs=0.01)


def test_first_map_is_of_the_best() -> None:
    """The first view is of the implementation with the most cases, and of those the one with the highest mean."""
    rows = [at(m, 16, 512, name, t) for m in (1, 2) for name, t in (("cublas", 8e-6), ("slow", 9e-6), ("fast", 7e-6))]
    rows.append(at(1, 16, 512, "once", 1e-6))
    assert [view.key[0] for view in figure(heat.speedups, *rows).views] == ["fast", "slow", "once"]


def test_no_figure_without_its_rows() -> None:
    """Without ratios, dispatched rows, roofs, phases or searches there is no such figure."""
    alone = run([row("cublas", compile_s=None)], limits=replace(run().limits, bytes_per_s=0.0))
    (section,) = sections([alone])
    made = [heat.speedups, heat.dispatched, charts.roofline, charts.errors, charts.compiling, charts.searches]
    assert [make(section, "dense_splitk") for make in made] == [None] * 6


def test_dispatch_map() -> None:
    """A cell of the dispatch map is the number of its choice among all choices, in the order of their names."""
    rows = [at(m, 16, 512, "dispatch", 8e-6, algorithm=name) for m, name in ((1, "own"), (2, "cublas"), (4, "own"))]
    (view,) = figure(heat.dispatched, *rows).views
    (trace,) = view.traces
    assert trace["choices"] == ["cublas", "own"]
    assert trace["text"] == [["own"], ["cublas"], ["own"]]
    assert trace["z"] == [[1], [0], [1]]


def test_a_wide_dispatch_map_has_letters_and_a_legend() -> None:
    """With five columns a cell holds the letter of its choice, and the legend says what the letters mean."""
    rows = [
        at(m, 16, k, "dispatch", 8e-6, algorithm="own" if k < 300 else "cublas")
        for m in (1, 2)
        for k in (100, 200, 300, 400, 500)
    ]
    (view,) = figure(heat.dispatched, *rows).views
    trace, *legend = view.traces
    assert trace["text"] == [["B", "B", "A", "A", "A"]] * 2
    assert [one["name"] for one in legend] == ["A: cublas", "B: own"]


def test_roofline() -> None:
    """2e9 FLOP over 1e6 bytes in 10 us is 200 TFLOP/s at 2000 FLOP a byte, under a roof that bends at 700/4 = 175."""
    (view,) = figure(charts.roofline, row("own", 10e-6, flop=2 * 10**9, bytes_moved=10**6)).views
    roof, points = view.traces
    assert (points["x"], points["y"]) == ([2000.0], [pytest.approx(200.0)])
    assert roof["x"] == [pytest.approx(87.5), pytest.approx(175.0), pytest.approx(4000.0)]
    assert roof["y"] == [pytest.approx(350.0), pytest.approx(700.0), pytest.approx(700.0)]


def test_errors_stand_beside_the_yardstick() -> None:
    """A point is the yardstick's error across and its own up; the line of equal errors spans the yardstick's."""
    (view,) = figure(charts.errors, row("cublas", error=2e-3), row("own", error=3e-3)).views
    line, points = view.traces
    assert (points["x"], points["y"]) == ([pytest.approx(2e-3)], [3e-3])
    assert line["x"] == line["y"]


def test_phases_are_stacked() -> None:
    """Each phase is a trace with its seconds; without phases what preparing took is shown."""
    phase = [
        row("inductor", kind="phase", phase=name, value=value, unit="s", cache="cold", timer="")
        for name, value in (("lowering", 1.5), ("triton", 4.0))
    ]
    (view,) = figure(charts.compiling, *phase, row("cublas", compile_s=9.0)).views
    assert {trace["name"]: trace["x"] for trace in view.traces} == {"lowering": [1.5], "triton": [4.0]}
    (view,) = figure(charts.compiling, row("cublas", compile_s=9.0)).views
    assert [trace["x"] for trace in view.traces] == [[9.0]]


def test_candidates_of_a_search_are_in_order() -> None:
    """Candidates stand from fast to slow in microseconds, and the largest search comes first."""
    small = row("few", screened_s={"splits=2": 9e-6})
    (first, second) = figure(charts.searches, small, row("own", screened_s={"b": 9e-6, "a": 5e-6, "c": 7e-6})).views
    (trace,) = first.traces
    assert (trace["text"], trace["y"]) == (["a", "c", "b"], pytest.approx([5.0, 7.0, 9.0]))
    assert second.key[0] == "few"


# the page


def small_run() -> Run:
    """Three cases, an implementation with a hostile name, a failure and a row that is no time."""
    rows = [
        at(m, m, 512, name, median_s, compile_s=0.5)
        for m in (16, 32, 64)
        for name, median_s in (("cublas", 8e-6), ("own", (m - 8) * 1e-6), (HOSTILE, 9e-6))
    ]
    rows += [at(m, m, 512, f"variant_{i}", 9e-6) for m in (16, 32, 64) for i in range(3)]
    rows.append(row("bad", status="broken", reason="wrong", detail=HOSTILE))
    rows.append(row("own", kind="count", value=7.0, unit="registers", status="ok", target="sm_90"))
    return run(rows)


def plotly_js() -> str:
    """The text of plotly's script."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def test_page_holds_no_markup_of_names_and_no_address() -> None:
    """A name with markup in it appears only escaped, and the page names no address outside itself."""
    page = report_page([small_run()], "const x = '</script>http://';")
    assert HOSTILE not in page
    assert "<img" not in page
    assert page.count("</script>") == 3
    assert "http:" not in page and "https:" not in page
    assert "default-src 'none'" in page


def test_page_is_the_same_twice() -> None:
    """The same runs give the same bytes."""
    assert report_page([small_run()], "x") == report_page([small_run()], "x")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the small run."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_page([small_run()], plotly_js()), encoding="utf-8")
    return path


@needs_chromium
def test_browser_draws_the_figures(page: Path, tmp_path: Path) -> None:
    """Every figure is drawn, a hostile name makes no element, and a line of the table can be found and sorted by."""
    script = """
        const table = [...document.querySelectorAll("table")].find(one => one.caption.textContent.includes("every")),
            column = [...table.tHead.rows[0].cells].findIndex(cell => cell.textContent === "speed-up"),
            first = () => table.tBodies[0].rows[0].cells[column].textContent;
        const sorted = [];
        for (let i = 0; i < 2; i++) { table.tHead.rows[0].cells[column].firstChild.click(); sorted.push(first()); }
        const input = document.querySelector("input[type=search]");
        input.value = "K512 m64 Own"; input.oninput();
        return {drawn: document.querySelectorAll(".plot .main-svg").length > 0
                    && [...document.querySelectorAll(".plot")].every(one => one.querySelector(".main-svg")),
                figures: document.querySelectorAll("figure").length, images: document.querySelectorAll("img").length,
                sorted, left: [...table.tBodies[0].rows].filter(one => !one.hidden).length,
                said: document.querySelector("[role=status]").textContent};"""
    found = answer(page, tmp_path, script)
    assert found == {
        "drawn": True,
        "figures": 5,
        "images": 0,
        "sorted": ["1", "0.143"],
        "left": 1,
        "said": "1 of 18 lines",
    }


@needs_chromium
def test_number_leads_to_its_measurement(page: Path, tmp_path: Path) -> None:
    """The address of a row opens its fields with the command that measures it again, and closing removes it."""
    wanted = at(16, 16, 512, HOSTILE, 9e-6)
    script = """
        const dialog = document.getElementById("measurement"), terms = [...dialog.querySelectorAll("dt")];
        const said = {open: dialog.open, title: dialog.querySelector("h2").textContent,
            repro: dialog.querySelector("pre").textContent,
            median: terms.find(one => one.textContent === "median_s").nextSibling.textContent};
        const closed = new Promise(done => dialog.addEventListener("close", done));
        dialog.close();
        await closed;
        return {...said, hash: location.hash};"""
    found = answer(page, tmp_path, script, fragment=f"#m-{wanted.id}")
    assert found["open"] is True
    assert found["title"] == f"dense_splitk / {HOSTILE} / m16-n16-k512-bf16"
    assert found["repro"].startswith("gemmgate run --family dense_splitk --case m16-n16-k512-bf16 --impl ")
    assert float(found["median"]) == 9e-6
    assert found["hash"] == ""


@needs_chromium
def test_page_is_accessible(page: Path, tmp_path: Path) -> None:
    """axe-core finds nothing wrong, and enough contrast in light and in dark, to which the button leads."""
    change = """
        const background = () => getComputedStyle(document.body).backgroundColor, before = background();
        document.getElementById("theme").click();
        if (background() === before) return {theme: "did not change"};"""
    assert violations(page, tmp_path, change) == {}


@needs_chromium
def test_page_fits_a_phone(page: Path, tmp_path: Path) -> None:
    """At a width of 390 pixels nothing but the insides of figures and tables reaches beyond the page."""
    outer = tmp_path / "outer.html"
    outer.write_text(
        f'<html data-ready="yes"><iframe src="{page.as_uri()}" style="width: 390px; height: 900px; border: 0"></iframe>'
        "<body></body></html>"
    )
    script = """
        const root = () => document.querySelector("iframe").contentDocument?.documentElement;
        while (!root()?.dataset.ready) await new Promise(done => setTimeout(done, 20));
        const inner = root();
        return [inner.clientWidth, inner.scrollWidth];"""
    width, needed = answer(outer, tmp_path, script)
    assert 380 <= width <= 390
    assert needed <= width


# the command


def test_report_command(tmp_path: Path) -> None:
    """`gemmgate report` writes the newest run, or those that are named, and says how large the file is."""
    store = Store(tmp_path / "results")
    stored(store, make_run(), make_row())
    stored(store, make_run("20261130T100000Z-bbbbbbbbbb"), make_row(case="other-bf16"))
    path = tmp_path / "page.html"
    result = called("report", "--output", path, "--results", store.root)
    assert result.exit_code == 0, result.stderr
    assert "1 run in" in result.said
    assert "other-" in (text := path.read_text(encoding="utf-8")) and "m32-" not in text.partition("<dialog")[0]
    both = ("latest", "20261129T160312Z-0a1b2c3d4e")
    assert "2 runs in" in called("report", *both, "--output", path, "--results", store.root).said
    assert called("report", "--output", tmp_path, "--results", store.root).exit_code == 2


def test_a_report_that_finds_no_space_leaves_the_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk is full the page that was there stays, and nothing beside it."""
    store, path = Store(tmp_path / "results"), tmp_path / "out" / "page.html"
    stored(store, make_run(), make_row())
    path.parent.mkdir()
    path.write_text("older", encoding="utf-8")

    def full(file: int, content: bytes, start: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    result = called("report", "--output", path, "--results", store.root)
    assert result.exit_code == 2 and f"Cannot write {path}: No space left" in result.stderr
    assert path.read_text(encoding="utf-8") == "older" and list(path.parent.iterdir()) == [path]


def test_log_scale_is_symmetric() -> None:
    """Where all ratios lie near 1 the colours still span 0.8 to 1.25, so that noise looks like noise."""
    (view,) = figure(heat.speedups, at(1, 1, 8, "cublas", 8e-6), at(1, 1, 8, "own", 8.01e-6)).views
    assert view.traces[0]["zmax"] == math.log2(1.25)
