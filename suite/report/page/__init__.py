"""Runs as one HTML file: no network, no second file, every number with the way back to its measurement.

The page's tables are HTML. Figures and the fields of every row are data, compressed, that its script unpacks
and plotly draws. The file refuses to load anything from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from gemmgate.suite.records import Run
from gemmgate.suite.report import units
from gemmgate.suite.report.best import counts
from gemmgate.suite.report.measured import where
from gemmgate.suite.report.page import charts, heat, tables
from gemmgate.suite.report.page.figure import Figure
from gemmgate.suite.report.page.markup import packed, packed_json, tag, text, without_empty
from gemmgate.suite.report.page.sections import Section, sections
from gemmgate.suite.report.rows import rows_json
from gemmgate.suite.statistics import Interval, geometric_mean

_FIGURES = (
    heat.speedups,
    heat.dispatched,
    charts.roofline,
    charts.samples,
    charts.errors,
    charts.compiling,
    charts.searches,
)
_HERE = Path(__file__).parent


def report_page(runs: Sequence[Run], plotly_js: str) -> str:
    """The page of one run or more. `plotly_js` is the text of plotly's script.

    Runs of one machine, stack and method are shown as one; others get a part of the page each.
    """
    figures: list[Mapping[str, Any]] = []
    found = sections(runs)
    parts = [_part(section, number, figures) for number, section in enumerate(found)]
    data = {"figures": figures, "rows": {row["id"]: row for section in found for row in _rows(section)}}
    machines = ", ".join(dict.fromkeys(run.machine.model for run in runs))
    return Template(_read("report.html")).substitute(
        title=text(f"gemmgate: {machines}"),
        style=_read("report.css"),
        script=_read("report.js"),
        parts="".join(parts),
        data=packed_json(data),
        plotly=packed(plotly_js.encode()),
    )


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _rows(section: Section) -> list[dict[str, Any]]:
    """Every field of every row, samples included, without those that say nothing."""
    made = rows_json(section.run)["rows"]
    samples = {r.row.id: [float(f"{value:.5g}") for value in r.row.samples_s] for r in section.rated}
    return [without_empty({**row, "samples_s": samples[row["id"]]}) for row in made]


def _part(section: Section, number: int, figures: list[Mapping[str, Any]]) -> str:
    """One machine. Its figures are appended to `figures`; where each stands, a place with its index is left."""
    run = section.run
    anchor = f"part-{number}"
    content = [tag("h2", text(run.machine.model or run.machine.key), id=anchor)]
    content += [tag("p", text(line), class_="where") for line in where(run).lines[:2]]
    if len(section.ids) > 1:
        content.append(
            tag(
                "p",
                text(f"Runs: {', '.join(section.ids)}. Of what was measured twice the newest counts."),
                class_="where",
            )
        )
    for family in section.families:
        content += _family(section, family, figures)
    for title, table in (("Without a result", tables.failures(section)), ("Values", tables.values(section))):
        if table:
            content.append(_fold(title, table))
    return tag("section", *content, aria_labelledby=anchor)


def _family(section: Section, family: str, figures: list[Mapping[str, Any]]) -> list[str]:
    content = [tag("h3", text(family)), tag("p", text(_headline(section, family)), class_="headline")]
    content.append(tables.summary(section, family))
    for make in _FIGURES:
        figure = make(section, family)
        if figure is not None:
            content.append(_figure(figure, len(figures)))
            figures.append(figure.to_json())
    table = tables.measurements(section, family)
    if table:
        content.append(_fold(f"All measurements of {family}", table, unfolded=True))
    return content


def _headline(section: Section, family: str) -> str:
    """What the family comes to, in sentences."""
    timed = section.timed(family)
    cases = len({r.row.case for r in timed})
    ok = [r for r in timed if r.row.status == "ok"]
    names = units.counted(len({r.row.implementation for r in ok}), "implementation")
    said = [f"{units.counted(cases, 'case')}, {units.counted(len(ok), 'measurement')} of {names}."]
    cache = next(iter(section.caches(family)), "")
    ratios: dict[str, list[Interval]] = {}
    for r in ok:
        if r.ratio and r.row.cache == cache and r.row.implementation != r.yardstick:
            ratios.setdefault(r.row.implementation, []).append(r.ratio)
    whole = {
        name: geometric_mean([ratio.estimate for ratio in found])
        for name, found in ratios.items()
        if 2 * len(found) > cases
    }
    if whole:
        best = max(whole, key=lambda name: whole[name])
        faster, *_ = counts(ratios[best])
        against = next(r.yardstick for r in ok if r.row.implementation == best and r.yardstick)
        said.append(
            f"Highest mean: {best}, {units.speedup(whole[best])} times as fast as {against} over "
            f"{units.counted(len(ratios[best]), 'case')}, faster in {faster} of them{f' ({cache})' if cache else ''}."
        )
    failed = [r for r in timed if r.row.status not in ("ok", "unsupported")]
    said += [f"{units.counted(len(failed), 'measurement')} failed."] if failed else []
    return " ".join(said)


def _figure(figure: Figure, index: int) -> str:
    caption = tag("figcaption", text(figure.caption), id=f"caption-{index}")
    place = tag(
        "div",
        tag(
            "div",
            class_="plot",
            id=f"plot-{index}",
            role="img",
            aria_label=f"{figure.title}. {figure.caption} The tables hold the same numbers.",
        ),
        class_="scroll",
        tabindex="0",
        role="group",
        aria_label=figure.title,
    )
    return tag(
        "figure", tag("h4", text(figure.title)), tag("div", class_="choices", id=f"choices-{index}"), place, caption
    )


def _fold(title: str, content: str, *, unfolded: bool = False) -> str:
    return tag("details", tag("summary", text(title)), content, open=unfolded)
