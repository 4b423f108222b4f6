"""Stored runs as commands take them, with what their reader should know said first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gemmgate.suite.again import go_on
from gemmgate.suite.cli import _terminal
from gemmgate.suite.records import Run
from gemmgate.suite.store import Reading, RunInfo, Store, left_out


def loaded(store: Store, reference: str) -> Run:
    """The run; on stderr stands whether it, or which of several, goes on or was interrupted."""
    reading = store.read(reference)
    for remark in remarks(reading, store.root):
        _terminal.say(remark)
    return reading.run


def gathered(stores: Sequence[Store], wanted: Callable[[RunInfo], bool]) -> list[tuple[Run, ...]]:
    """Of each folder the wanted runs that are finished; on stderr stands once what cannot be read of all."""
    found = [store.gather(wanted) for store in stores]
    say_left_out([sentence for one in found for sentence in one.lost])
    return [one.runs for one in found]


def say_left_out(lost: Sequence[str]) -> None:
    """On stderr, once, where files cannot be read."""
    for sentence in left_out(lost):
        _terminal.say(sentence)


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
