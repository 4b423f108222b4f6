"""`gemmgate list`: what can be measured here, and why the rest cannot."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from gemmgate.suite import catalog
from gemmgate.suite.cli import _options as options
from gemmgate.suite.cli import _terminal
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.report import text, units
from gemmgate.suite.report.layout import Block, Column, Notes, Table, cells
from gemmgate.suite.workers import START_DEADLINE_S, Worker

ORDER = 10


@options.grouped
def command(
    selected: options.Selected,
    given: options.Given,
    device: options.Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a case, with every refusal.")] = False,
    suite: options.Suite = None,
) -> None:
    """List cases and implementations, with the reason where one is not supported here."""
    known = options.families(suite)
    selection = selected.selection()
    made = given.made(known, selection.families)
    known = known.with_cases(made.cases) if made else known
    choices = known.select(replace(selection, implementations=selection.implementations or ("*",)))
    worker, why = _worker(options.device(device), suite or [])
    refusals = _refusals(worker, choices)
    if as_json:
        _terminal.put(
            json.dumps([_entry(choice, found) for choice, found in zip(choices, refusals, strict=True)], indent=1)
        )
        return
    blocks: list[Block] = []
    for name in dict.fromkeys(choice.family.name for choice in choices):
        pairs = [(c, r) for c, r in zip(choices, refusals, strict=True) if c.family.name == name]
        blocks += [_table(name, pairs), *_notes(pairs)]
    if why:
        blocks.append(Notes((f"Whether an implementation is supported here is not known: {why}",), ""))
    _terminal.put(text.render(blocks, width=_terminal.width(), color=_terminal.color()))


def _worker(device: str, suites: list[Path]) -> tuple[Worker | None, str]:
    try:
        return Worker(device, suites=suites), ""
    except CannotMeasureError as error:
        return None, str(error)


def _refusals(worker: Worker | None, choices: list[catalog.Choice]) -> list[list[Any]]:
    """For each choice a list as long as its implementations: None or [code, sentence]; empty where nobody could say."""
    if worker is None:
        return [[] for _ in choices]
    pairs = [[choice.case.to_json(), list(choice.implementations)] for choice in choices]
    reply = worker.ask("supports", START_DEADLINE_S, pairs=pairs)
    worker.close()
    if not reply.get("ok"):
        raise CannotMeasureError(f"An implementation could not say what it supports: {reply['detail']}.")
    answers: list[list[Any]] = reply["refusals"]
    return answers


def _entry(choice: catalog.Choice, refusals: list[Any]) -> dict[str, Any]:
    said = refusals or [["unknown", "no worker could be started"]] * len(choice.implementations)
    return {
        **choice.case.to_json(),
        "yardsticks": list(choice.family.yardsticks),
        "implementations": [
            {
                "name": name,
                "on_request": name in _on_request(choice),
                "supported": refusal is None,
                "reason": (refusal or ["", ""])[0],
                "detail": (refusal or ["", ""])[1],
            }
            for name, refusal in zip(choice.implementations, said, strict=True)
        ],
    }


def _on_request(choice: catalog.Choice) -> set[str]:
    return {entry.name for entry in choice.family.implementations if entry.on_request}


def _table(name: str, pairs: list[tuple[catalog.Choice, list[Any]]]) -> Table:
    """A line a case; how many refused it gives way first, since the reasons stand below with their names."""
    columns = (
        Column("case"),
        Column("tags", wraps=True),
        Column("supported here", wraps=True),
        Column("refused", wraps=True, drop=1),
    )
    rows = []
    for choice, refusals in pairs:
        said = refusals or [None] * len(choice.implementations)
        supported = [one for one, refusal in zip(choice.implementations, said, strict=True) if refusal is None]
        codes = Counter(refusal[0] for refusal in said if refusal)
        refused = ", ".join(f"{code} ({count})" for code, count in codes.items())
        rows.append(
            cells((choice.case.name, " ".join(choice.case.tags), " ".join(supported) if refusals else "?", refused))
        )
    return Table(f"{name}: {units.counted(len(pairs), 'case')}", columns, tuple(rows)).without_empty_columns()


def _notes(pairs: list[tuple[catalog.Choice, list[Any]]]) -> list[Notes]:
    """What is measured on request alone, and a line for each reason."""
    asked_for = {one for choice, _ in pairs for one in choice.implementations if one in _on_request(choice)}
    lines = [f"Measured only where --impl matches them: {', '.join(sorted(asked_for))}."] if asked_for else []
    reasons: dict[tuple[str, str], list[str]] = {}
    for choice, refusals in pairs:
        for name, refusal in zip(choice.implementations, refusals, strict=False):
            if refusal:
                reasons.setdefault((refusal[0], refusal[1]), []).append(name)
    lines += [f"{code}: {sentence} ({', '.join(dict.fromkeys(names))})" for (code, sentence), names in reasons.items()]
    return [Notes(tuple(lines), "")] if lines else []
