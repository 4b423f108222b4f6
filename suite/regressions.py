"""The list of regressions on asv's pages, from the steps that were found: asv's own would be another list."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

from gemmgate.suite import history
from gemmgate.suite.causes import Found
from gemmgate.suite.series import Place, Series, newest_method

_ADDRESS = "gemmgate.asv"


def list_regressions(html: Path, series: Series, found: Sequence[Found]) -> None:
    """Adds the steps upwards to asv's pages in `html`: to the list and to its feed.

    Steps at commits beside the main line are not there, since asv shows that line alone.
    """
    from asv.feed import FeedEntry

    index = json.loads((html / "index.json").read_text(encoding="utf-8"))
    revisions = {commit: int(number) for number, commit in index["revision_to_hash"].items()}
    by_place: dict[Place, list[Found]] = defaultdict(list)
    for step in found:
        if step.ratio > 1 and step.before.commit in revisions and step.after.commit in revisions:
            by_place[step.place].append(step)
    method = newest_method(series)
    path = html / "regressions.json"
    listed = json.loads(path.read_text(encoding="utf-8"))
    entries = []
    for place, steps in by_place.items():
        name = history.benchmark_name(place.family, place.quantity, None if place.method == method else place.method)
        params = history.parameters(place)
        position = list(product(*index["benchmarks"][name]["params"])).index(params)
        graph, chosen = _graph(index, place, name)
        values = [point.value for point in series[place] if point.value is not None and point.commit in revisions]
        jumps = [
            [_earlier(revisions, step), revisions[step.after.commit], step.before.value, step.after.value]
            for step in reversed(steps)  # the oldest first
        ]
        title = f"{name}({', '.join(params)})"
        listed["regressions"].append([title, graph, chosen, position, values[-1], min(values), jumps])
        query = {**chosen, **dict(zip((f"p-{axis}" for axis in history.PARAM_NAMES), params, strict=True))}
        for step in steps:
            link = f"index.html#{name}?{urlencode({**query, 'commits': step.after.commit})}"
            when = datetime.fromtimestamp(step.after.committed_s, UTC)
            said = (
                f"{step.before.value:g} -> {step.after.value:g} {place.unit}; {step.cause.what}: {step.cause.sentence}"
            )
            identity = [title, place.machine, step.before.commit, step.after.commit]
            entries.append(FeedEntry(f"{step.ratio - 1:+.1%} {title}", when, link, said, identity))
    path.write_text(json.dumps(listed), encoding="utf-8")
    _add_to_feed(html / "regressions.xml", sorted(entries, key=lambda entry: entry.updated, reverse=True))


def _graph(index: Mapping[str, Any], place: Place, name: str) -> tuple[str, dict[str, str]]:
    """The file of a series' graph, and what tells it from those of other machines."""
    from asv.graph import Graph

    (params,) = (
        one
        for one in index["graph_param_list"]
        if one["machine"] == place.machine and one["python"] == history.ENVIRONMENT
    )
    chosen = {key: value for key, value in params.items() if len(index["params"][key]) > 1}
    return f"{Graph.get_file_path(params, name)}.json", chosen


def _earlier(revisions: Mapping[str, int], step: Found) -> int | None:
    """asv's number of the commit before a step; None where the two are neighbours, for there is no range to show."""
    before, after = revisions[step.before.commit], revisions[step.after.commit]
    return None if after - before == 1 else before


def _add_to_feed(path: Path, entries: Sequence[Any]) -> None:
    from asv.feed import ATOM_NS

    ElementTree.register_namespace("", ATOM_NS.strip("{}"))
    tree = ElementTree.parse(path)
    for entry in entries:
        element = entry.get_atom(_ADDRESS, "en")
        for part in element.iter():  # asv qualifies attributes, which only its own writer undoes
            part.attrib = {key.removeprefix(ATOM_NS): value for key, value in part.attrib.items()}
        tree.getroot().append(element)
    tree.write(path, encoding="utf-8", xml_declaration=True)
