"""Blocks as GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gemmgate.suite.report.layout import Block, Cell, Table

_SPECIAL = re.compile(r"([\\`*|<])")
"""Underscores and brackets are left alone: within words and without a link behind them they mean nothing."""


def render(blocks: Sequence[Block]) -> str:
    """Tables with aligned columns, the best of a group in bold, notes as paragraphs."""
    return "\n\n".join(_table(block) if isinstance(block, Table) else _notes(block.lines) for block in blocks) + "\n"


def _table(table: Table) -> str:
    kept = [i for i, column in enumerate(table.columns) if column.header]
    columns = [table.columns[i] for i in kept]
    lines = [
        [_escaped(column.header) for column in columns],
        ["---:" if column.right else "---" for column in columns],
        *([_cell(row[i]) for i in kept] for row in table.rows),
    ]
    title = [f"**{_escaped(table.title)}**", ""] if table.title else []
    return "\n".join([*title, *(f"| {' | '.join(line)} |" for line in lines)])


def _notes(lines: Sequence[str]) -> str:
    return "  \n".join(_escaped(line) for line in lines)


def _cell(cell: Cell) -> str:
    text = _escaped(cell.text)
    return f"**{text}**" if cell.style in ("best", "bad") and text else text


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
