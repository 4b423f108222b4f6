"""`gemmgate learn`: a rule that a person can read, from stored runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import find, offered
from gemmgate.suite.cli import _options, _terminal
from gemmgate.suite.cli._stored import loaded
from gemmgate.suite.errors import UnreadableError, UsageError, unknown
from gemmgate.suite.learning.fit import DEPTHS, learn
from gemmgate.suite.learning.points import WORDS, Point, collect, dispatchers, said_to_run
from gemmgate.suite.learning.ranges import into_table, ranges_of
from gemmgate.suite.learning.score import score
from gemmgate.suite.learning.tree import Tree, kind_of, to_python
from gemmgate.suite.records import Row, Run
from gemmgate.suite.report import text, units
from gemmgate.suite.report.dispatch_map import tree_map
from gemmgate.suite.report.learning import learned_blocks, ranges_blocks, said_of_held_out, score_blocks
from gemmgate.suite.store.files import explained, write_named
from gemmgate.suite.tuning import tables

ORDER = 65
READING = ("runs", "family", "cache", "impl", "hold_out", "results")
"""Parameters that have a meaning where no tree is learned."""


def command(
    context: typer.Context,
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Paths, ids or latest. Default: latest."),
    ] = None,
    family: Annotated[str, typer.Option("--family", help="The family to learn about.")] = "",
    cache: Annotated[
        str, typer.Option("--cache", help="Cache state. Default: the one with most rows, or serving.")
    ] = "",
    impl: Annotated[
        list[str] | None,
        typer.Option("--impl", metavar="NAME,...", help="What may be chosen. Default: all but dispatchers."),
    ] = None,
    hold_out: Annotated[
        list[str] | None,
        typer.Option("--hold-out", metavar="SIZE,...", help="Sizes held out together. Default: all but the first."),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option("--depth", min=0, max=DEPTHS[-1], help="Default: what held-out sizes say."),
    ] = None,
    python: Annotated[
        Path | None, typer.Option("--python", metavar="FILE", help="Write the tree as a Python function.")
    ] = None,
    tree_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the tree and its split points as JSON.")
    ] = None,
    explain: Annotated[
        Path | None, typer.Option("--explain", metavar="FILE", help="Draw what is chosen where, as SVG.")
    ] = None,
    scored: Annotated[
        str,
        typer.Option("--score", metavar="NAME", help="Only show what this implementation costs."),
    ] = "",
    ranges: Annotated[
        Path | None,
        typer.Option("--ranges", metavar="TABLE", help="No tree: put ranges of the first size into this table."),
    ] = None,
    results: _options.Results = None,
) -> None:
    """Learn which implementation to run for which shape.

    A decision tree over sizes, dtypes and machine, scored by the time it loses on sizes that it has not seen. Beyond
    what was measured it refuses, and the yardstick is run.
    """
    _options.refuse_beside(context, {"scored": READING, "ranges": READING})
    _options.refuse_same_file({"--python": python, "--json": tree_json, "--explain": explain})
    store = _options.store(results)
    read = [loaded(store, reference) for reference in runs or ["latest"]]
    rows = [row for run in read for row in run.rows]
    if not family:
        families = sorted({row.family for row in rows})
        raise UsageError(f"Name a --family to learn about. These runs have {', '.join(families) or 'none'}.")
    among, held = _options.globs("--impl", impl), _options.globs("--hold-out", hold_out)
    apart = dispatchers(rows, family) - {scored, *among}
    points = collect(rows, family, cache, (*among, scored) if among and scored else among, held, apart)
    if scored:
        _put_score(scored, points, [row for row in rows if row.family == family])
        return
    if ranges is not None:
        found = ranges_of(points)
        table = _own_table(ranges, family, read, points[0].words["machine"])
        _terminal.put(text.render(ranges_blocks(found), width=_terminal.width(), color=_terminal.color()))
        _write(ranges, tables.spelled(into_table(table, found)))
        return
    learned = learn(family, points, depth)
    tree = replace(learned.tree, fallbacks={**_yardsticks(family), **learned.tree.fallbacks})
    _terminal.put(text.render(learned_blocks(learned), width=_terminal.width(), color=_terminal.color()))
    about = (
        f"Learned from {len(points)} cases of {', '.join(run.id for run in read)}.",
        said_of_held_out(learned),
    )
    if python is not None:
        _write(python, to_python(tree, about))
    if tree_json is not None:
        exported = {**tree.to_json(), "about": list(about), "split_points": _split_points(points, tree)}
        _write(tree_json, json.dumps(exported, indent=1) + "\n")
    if explain is not None:
        _write(explain, tree_map(points, learned.tree))


def _own_table(path: Path, family: str, runs: Sequence[Run], machine: str) -> tables.Table:
    """The table, if it is of this family and of this machine."""
    table = tables.read(path)
    if table is None:
        raise UnreadableError(f"There is no table {path}: `gemmgate tune --family {family}` writes one.")
    run, row = next((run, row) for run in runs for row in run.rows if row.machine == machine)
    tables.refuse_other(path, table, find(), family, tables.profile_of(Target(row.target, run.machine.model)))
    return table


def _put_score(name: str, points: Sequence[Point], rows: Sequence[Row]) -> None:
    known = {other for point in points for other in point.times_s}
    if name not in known:
        raise unknown("implementation with times", name, known)
    chosen = {row.case: said_to_run(row) for row in rows if row.implementation == name}
    others = {row.implementation for row in rows} - {name}
    timed = [point for point in points if name in point.times_s]
    # Where a dispatcher chose what was not timed beside it, nobody knows what else there was.
    judged = [point for point in timed if chosen[point.case] in point.times_s or chosen[point.case] not in others]
    if len(judged) < len(timed):
        left_out = units.counted(len(timed) - len(judged), "case")
        _terminal.say(f"{left_out} left out: what {name} chose was not timed by itself there.")
    if judged:
        blocks = score_blocks(name, score(judged, lambda _: (name, False)))
        _terminal.put(text.render(blocks, width=_terminal.width(), color=_terminal.color()))


def _yardsticks(name: str) -> dict[str, str]:
    """The first yardstick that a known family offers for each kind of its cases; of an unknown family none."""
    family = find().families.get(name)
    if family is None:
        return {}
    found: dict[str, str] = {}
    for case in family.cases:
        names = offered(family, case)
        yardstick = next((yardstick for yardstick in family.yardsticks if yardstick in names), None)
        if yardstick:
            found.setdefault(kind_of({word: str(getattr(case, word)) for word in WORDS}), yardstick)
    return found


def _split_points(points: list[Point], tree: Tree) -> list[dict[str, Any]]:
    """For each group of sizes and words: the ranges of the first size."""
    along = next(iter(points[0].dims))
    found: dict[str, dict[str, Any]] = {}
    for point in points:
        others = {name: size for name, size in point.dims.items() if name != along}
        where = {**others, **point.words}
        ranges = tree.split_points(point.dims, point.words, along)
        found[json.dumps(where)] = {
            "where": where,
            "along": along,
            "split_points": [end for end, _ in ranges[:-1]],
            "implementations": [name for _, name in ranges],
            "fallback": point.yardstick,
        }
    return list(found.values())


def _write(path: Path, content: str) -> None:
    with explained("write", path, ", or name another file."):
        write_named(path, content)
    _terminal.say(f"wrote {path}")
