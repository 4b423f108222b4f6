"""Blocks as text for a terminal or a log. The only user of rich."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from gemmgate.suite.report.layout import Block, Notes, Row, Style, Table

STYLES: dict[Style, str] = {
    "": "",
    "best": "bold green",
    "win": "green",
    "loss": "red",
    "dim": "dim",
    "bad": "bold red",
    "head": "bold",
}
_GAP = 2
_NARROWEST_WORDS = 10
"""Columns of words may be folded to this width; numbers are never cut."""
_NARROWEST_PROSE = 18


def render(blocks: Sequence[Block], *, width: int | None, color: bool) -> str:
    """`width` None takes as much as the widest table needs. Every line ends without spaces."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=10_000,
        force_terminal=color,
        color_system="truecolor" if color else None,
        no_color=not color,
        highlight=False,
        legacy_windows=False,
    )
    for i, block in enumerate(blocks):
        if i:
            console.print()
        if isinstance(block, Table):
            _print_table(console, block, width)
        else:
            _print_notes(console, block, width)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _print_notes(console: Console, notes: Notes, width: int | None) -> None:
    for line in notes.lines:
        for n, part in enumerate(Text(line, STYLES[notes.style]).wrap(console, width - 2 if width else 10_000)):
            part.rstrip()
            console.print(Padding(part, (0, 0, 0, 2 if n else 0)), width=width)


def _print_table(console: Console, table: Table, width: int | None) -> None:
    shown, stacked, dropped = _fitted(table, width)
    natural = _widths(shown)
    widths = natural if width is None else _narrowed(shown, natural, width)
    if table.title:
        console.print(Text(table.title, "bold"))
    console.print(_rich(shown, natural, widths, shown.rows if stacked is None else ()))
    if stacked is not None:
        starts = [i for i, row in enumerate(table.rows) if row[stacked].text]
        for start, end in zip(starts, [*starts[1:], len(table.rows)], strict=True):
            head = table.rows[start][stacked]
            console.print(Text(head.text, STYLES[head.style]))
            console.print(_rich(shown, natural, widths, shown.rows[start:end], show_header=False))
    if dropped:
        console.print(Text(f"No room for: {', '.join(dropped)}.", "dim"))


def _rich(
    table: Table, natural: Sequence[int], widths: Sequence[int], rows: Sequence[Row], *, show_header: bool = True
) -> RichTable:
    made = RichTable(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, _GAP - 1, 0, 0),
        header_style="bold",
        show_header=show_header,
    )
    for column, wanted, given in zip(table.columns, natural, widths, strict=True):
        justify: Literal["left", "right"] = "right" if column.right else "left"
        made.add_column(column.header, justify=justify, width=given, no_wrap=given == wanted, overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell.text, STYLES[cell.style]) for cell in row))
    return made


def _narrowed(table: Table, natural: Sequence[int], width: int) -> list[int]:
    """Prose gives way first, then the longest names; numbers keep their width, even past the edge."""
    widths = list(natural)
    words = [i for i, column in enumerate(table.columns) if not column.right]
    for i in sorted(words, key=lambda i: (table.columns[i].wraps, natural[i]), reverse=True):
        excess = sum(widths) + _GAP * (len(widths) - 1) - width
        least = _NARROWEST_PROSE if table.columns[i].wraps else _NARROWEST_WORDS
        widths[i] = max(widths[i] - max(excess, 0), min(widths[i], max(least, cell_len(table.columns[i].header))))
    return widths


def _fitted(table: Table, width: int | None) -> tuple[Table, int | None, list[str]]:
    """What fits of a table, which of its columns is stacked, and the names of those that found no room.

    Prose is folded before a column goes.
    """
    kept = list(range(len(table.columns)))
    wanted = [
        min(natural, max(_NARROWEST_PROSE, cell_len(column.header))) if column.wraps else natural
        for natural, column in zip(_widths(table), table.columns, strict=True)
    ]
    stacked = None
    dropped: list[str] = []
    while width is not None and sum(wanted[i] for i in kept) + _GAP * (len(kept) - 1) > width:
        least = max(kept, key=lambda i: table.columns[i].drop)
        if not table.columns[least].drop:
            break
        kept.remove(least)
        if table.columns[least].stacks:
            stacked = least
        else:
            dropped.append(table.columns[least].header)
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    return Table(table.title, tuple(table.columns[i] for i in kept), rows), stacked, dropped


def _widths(table: Table) -> list[int]:
    return [
        max(cell_len(text) for text in (column.header, *(row[i].text for row in table.rows)))
        for i, column in enumerate(table.columns)
    ]
