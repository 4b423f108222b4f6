"""A figure as data: what plotly draws, with the choices that a reader has. The page's script adds colours and draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class View:
    """One state of a figure: the value of each choice, and plotly's traces and layout.

    `customdata` of a point is the id of its row. A trace that names a `scale` gets its colours from the page.
    """

    key: tuple[str, ...]
    traces: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """`choices` names the values of the views' keys; choosing one narrows the next."""

    title: str
    caption: str
    choices: tuple[str, ...]
    views: tuple[View, ...]

    def to_json(self) -> dict[str, Any]:
        views = [{"key": view.key, "traces": view.traces, "layout": view.layout} for view in self.views]
        return {"title": self.title, "choices": self.choices, "views": views}
