"""What a report consists of, before anyone decides how it looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Style = Literal["", "best", "win", "loss", "dim", "bad", "head"]


@dataclass(frozen=True)
class Cell:
    text: str
    style: Style = ""


Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Column:
    """`drop` says in which order columns give way where width is short: the highest first, 0 never.

    One that `stacks` does not vanish then: its text moves to a line of its own above the rows it
    heads. `wraps` is for prose. A column without a header holds a mark for readers without colour,
    and only text shows it.
    """

    header: str
    right: bool = False
    drop: int = 0
    wraps: bool = False
    stacks: bool = False


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def without_empty_columns(self) -> Table:
        """Leaves out columns in which no row has anything to say."""
        kept = [i for i in range(len(self.columns)) if any(row[i].text not in ("", "-") for row in self.rows)]
        return Table(
            self.title,
            tuple(self.columns[i] for i in kept),
            tuple(tuple(row[i] for i in kept) for row in self.rows),
        )


@dataclass(frozen=True)
class Notes:
    """Sentences, one a line."""

    lines: tuple[str, ...]
    style: Style = "dim"


Block = Table | Notes


def cells(texts: Sequence[str], style: Style = "") -> Row:
    return tuple(Cell(text, style) for text in texts)
