"""Stored runs as commands take them, with what their reader should know said first."""

from __future__ import annotations

from pathlib import Path

from gemmgate.suite.again import go_on
from gemmgate.suite.cli import _terminal
from gemmgate.suite.records import Run
from gemmgate.suite.store import Reading, Store


def loaded(store: Store, reference: str) -> Run:
    """The run; on stderr stands whether it, or which of several, goes on or was interrupted."""
    reading = store.read(reference)
    for remark in remarks(reading, store.root):
        _terminal.say(remark)
    return reading.run


def remarks(reading: Reading, root: Path) -> list[str]:
    """What a reader should know about runs that are not finished, or not all there."""
    said = [text for one in reading.parts or (reading,) if (text := _state(one, root))]
    return [*said, *reading.notes]


def _state(reading: Reading, root: Path) -> str:
    run, rows = reading.run, len(reading.run.rows)
    if reading.state == "running":
        return f"run {run.id} goes on: {rows} rows so far."
    if reading.state != "interrupted":
        return ""
    command = go_on(run, root)
    return f"run {run.id} was interrupted after {rows} rows{f': `{command}` goes on' if command else ''}."
