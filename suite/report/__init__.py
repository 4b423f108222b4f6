"""Runs and comparisons as text, Markdown, CSV and JSON. Nothing here measures, reads a file or prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, get_args

from gemmgate.suite.calibration import Calibration
from gemmgate.suite.compare import Comparison
from gemmgate.suite.errors import unknown
from gemmgate.suite.forecast import Forecast
from gemmgate.suite.gate import GateResult
from gemmgate.suite.judgement import Judgement
from gemmgate.suite.records import Run
from gemmgate.suite.replay import Replayed
from gemmgate.suite.report import calibration as _calibration
from gemmgate.suite.report import comparisons as _comparisons
from gemmgate.suite.report import dispatch_goals, markdown, measured, text
from gemmgate.suite.report import forecast as _forecast
from gemmgate.suite.report import gate as _gate
from gemmgate.suite.report import replay as _replay
from gemmgate.suite.report import timers as _timers
from gemmgate.suite.report import tuning as _tuning
from gemmgate.suite.report.annotations import gate_annotations
from gemmgate.suite.report.answer import markdown_answer
from gemmgate.suite.report.audit import audit_page
from gemmgate.suite.report.choices import choices_map, markdown_choices
from gemmgate.suite.report.claims import claims_table
from gemmgate.suite.report.comparisons import comparisons_json
from gemmgate.suite.report.gate import gate_json, gate_markdown
from gemmgate.suite.report.goals import goals_blocks
from gemmgate.suite.report.junit import gate_junit
from gemmgate.suite.report.layout import Block
from gemmgate.suite.report.rows import rows_csv, rows_json
from gemmgate.suite.report.static import static_comparison_blocks
from gemmgate.suite.report.summary import markdown_summary
from gemmgate.suite.report.timers_picture import timers_picture
from gemmgate.suite.tuning.planned import Planned
from gemmgate.suite.watch import Watched

Format = Literal["table", "markdown", "csv", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)

__all__ = [
    "FORMATS",
    "Format",
    "audit_page",
    "choices_map",
    "claims_table",
    "comparisons_json",
    "gate_annotations",
    "gate_json",
    "gate_junit",
    "gate_markdown",
    "markdown_answer",
    "markdown_choices",
    "markdown_comparisons",
    "markdown_static",
    "markdown_summary",
    "rows_csv",
    "rows_json",
    "show",
    "show_calibration",
    "show_forecast",
    "show_goals",
    "show_planned",
    "show_replayed",
    "show_timers",
    "show_tuning",
    "show_watched",
    "table_comparisons",
    "table_gate",
    "table_static",
    "timers_picture",
]


def show(run: Run, format: str = "table", *, width: int | None = None, color: bool = False) -> str:
    """A run in one of `FORMATS`. `width` and `color` are for tables; without a width they are as wide as they need."""
    if format == "table":
        return text.render(measured.blocks(run), width=width, color=color)
    if format == "markdown":
        return markdown.render(measured.blocks(run))
    if format == "csv":
        return rows_csv(run)
    if format == "json":
        return json.dumps(rows_json(run), indent=1, allow_nan=False) + "\n"
    raise unknown("format", format, FORMATS)


def show_goals(run: Run, format: str = "table", *, width: int | None = None, color: bool = False) -> str:
    """Where a run stands against the goals of split-K products or of the router, as a table or as Markdown.

    Those of the router only where the run has any of it, and those of split-K products unless it has nothing else.
    """
    router = dispatch_goals.blocks(run) if dispatch_goals.has_goals(run) else []
    has_products = any(row.family.startswith("dense_splitk") for row in run.rows)
    return _rendered([*(goals_blocks(run) if has_products or not router else []), *router], format, width, color)


def show_calibration(
    made: Calibration, format: str, *, parts: Sequence[str] = (), width: int | None = None, color: bool = False
) -> str:
    """A calibration as a table or as Markdown; all of it, or some of its `parts`."""
    return _rendered(_calibration.blocks(made, parts), format, width, color)


def show_timers(run: Run, format: str, *, width: int | None = None, color: bool = False) -> str:
    """A comparison of timers as a table or as Markdown."""
    return _rendered(_timers.blocks(run), format, width, color)


def show_forecast(found: Forecast, seconds: float | None, *, width: int | None = None, color: bool = False) -> str:
    """What a gate will take, as a table; `seconds` is what it is given."""
    return text.render(_forecast.blocks(found, seconds), width=width, color=color)


def show_replayed(found: Replayed, format: str, *, width: int | None = None, color: bool = False) -> str:
    """What recorded blocks say of the gate, as a table or as Markdown."""
    return _rendered(_replay.blocks(found), format, width, color)


def _rendered(blocks: Sequence[Block], format: str, width: int | None, color: bool) -> str:
    if format == "table":
        return text.render(blocks, width=width, color=color)
    if format == "markdown":
        return markdown.render(blocks)
    raise unknown("format", format, ("table", "markdown"))


def show_tuning(run: Run, format: str, *, width: int | None = None, color: bool = False) -> str:
    """A tuning as a table or as Markdown."""
    return _rendered(_tuning.blocks(run), format, width, color)


def show_planned(
    found: Sequence[Planned], machine: str, format: str, *, width: int | None = None, color: bool = False
) -> str:
    """What a tuning would search on a machine, as a table or as Markdown."""
    return _rendered(_tuning.planned_blocks(found, machine), format, width, color)


def table_comparisons(
    comparisons: Sequence[Comparison],
    gate_result: GateResult | None = None,
    *,
    width: int | None = None,
    color: bool = False,
) -> str:
    """Comparisons as a table with a sentence for each row that changed."""
    return text.render(_comparisons.blocks(comparisons, gate_result), width=width, color=color)


def markdown_comparisons(comparisons: Sequence[Comparison], gate_result: GateResult | None = None) -> str:
    """The same as Markdown, for a comment on a pull request."""
    return markdown.render(_comparisons.blocks(comparisons, gate_result))


def table_static(
    comparisons: Sequence[Comparison], gate_result: GateResult, *, width: int | None = None, color: bool = False
) -> str:
    """Comparisons of compiled code as a table with a sentence for each kernel that changed for better or worse."""
    return text.render(static_comparison_blocks(comparisons, gate_result), width=width, color=color)


def markdown_static(comparisons: Sequence[Comparison], gate_result: GateResult) -> str:
    """The same as Markdown, for a comment on a pull request."""
    return markdown.render(static_comparison_blocks(comparisons, gate_result))


def table_gate(found: Judgement, *, width: int | None = None, color: bool = False) -> str:
    """A gate as a table, with a sentence for each item that is not the same, and what it comes to."""
    return text.render(_gate.blocks(found), width=width, color=color)


def show_watched(found: Watched, *, width: int | None = None, color: bool = False) -> str:
    """What gates of unchanged code show, as a table."""
    return text.render(_gate.watch_blocks(found), width=width, color=color)
