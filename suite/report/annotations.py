"""A gate as GitHub's workflow commands, which show beside the changed files."""

from __future__ import annotations

from gemmgate.suite.judged import Judged
from gemmgate.suite.judgement import Judgement


def gate_annotations(found: Judgement) -> str:
    """A line an item that fails (error) or could not be judged (warning), then one with what the gate says."""
    unjudged = {comparison.row.path for comparison in found.result.unjudged}
    lines = [_line("error", one) for one in found.items if one.path in found.is_failed]
    lines += [_line("warning", one) for one in found.items if one.path in unjudged]
    level = {0: "notice", 1: "error"}.get(found.result.exit_code, "warning")
    lines.append(f"::{level} title=gemmgate gate::{_data(found.result.sentence)}")
    return "\n".join(lines) + "\n"


def _line(level: str, one: Judged) -> str:
    said = " ".join(filter(None, [one.comparison.sentence, one.cause, f"Again: {one.repro}"]))
    file = f"file={_property(one.file)}," if one.file else ""
    return f"::{level} {file}title={_property(f'{one.comparison.verdict} {one.path}')}::{_data(said)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
