"""Series as asv's result files, and asv's pages of them.

A benchmark is `track_gemm.<Family>.track_<quantity>` with the parameters case, implementation and conditions:
the names that `benchmarks/track_gemm.py` gives to what `asv run` measures, so that both meet on one page.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gemmgate.suite.errors import CannotMeasureError, UnreadableError, UsageError
from gemmgate.suite.series import Place, Point, Series, Step, newest_method
from gemmgate.suite.sides import Side
from gemmgate.suite.statistics import SIZE_OF_INTEREST, summarise

PARAM_NAMES = ("case", "implementation", "conditions")
ENVIRONMENT = "gemmgate"
"""What asv calls an environment: here, where a result file comes from. Part of the file's name."""
_FEWEST_ON_A_LEVEL = 3
"""Two launches of the same code differ by a percent: a point or two is no level."""
_MACHINE_FIELDS = ("machine", "os", "arch", "cpu", "num_cpu", "ram")
_STATS = ("ci_99_a", "ci_99_b", "q_25", "q_75", "number", "repeat")
_COLUMNS = ("result", "params", "version", "started_at", "duration", *(f"stats_{name}" for name in _STATS), "samples")
_RESULTS_VERSION, _BENCHMARKS_VERSION, _MACHINE_VERSION = 2, 2, 1
"""Versions of asv's three file formats."""


def class_name(family: str) -> str:
    """`DenseSplitk` for `dense_splitk`."""
    return "".join(word.capitalize() for word in family.split("_"))


def benchmark_name(family: str, quantity: str = "seconds", older_method: int | None = None) -> str:
    """asv's name of a family's series; those by an older method have names of their own."""
    suffix = "" if older_method is None else f"_method_{older_method}"
    return f"track_gemm.{class_name(family)}.track_{quantity}{suffix}"


def all_steps(series: Series) -> dict[Place, tuple[Step, ...]]:
    """Where each series changes its level: compiled code from one point to the next, all else by `steps`."""
    return {
        place: code_changes(points) if points[0].row.kind == "static" else steps([point.value for point in points])
        for place, points in series.items()
    }


def code_changes(points: Sequence[Point]) -> tuple[Step, ...]:
    """Every change of what a compiler made, which has no noise, of the same tile.

    Another tile is other code, chosen on purpose: its registers say nothing of the earlier ones.
    """
    known = [(index, point) for index, point in enumerate(points) if point.value]
    return tuple(
        Step(index, point.value / before.value)
        for (_, before), (index, point) in pairwise(known)
        if before.value and point.value and point.value != before.value and _pick(before) == _pick(point)
    )


def steps(values: Sequence[float | None]) -> tuple[Step, ...]:
    """Where a series changes its level, as asv sees it: by 1 % or more, with three points or more on either side.

    A step of 3 % takes 5 to 20 commits to be told from noise.
    """
    from asv.step_detect import detect_steps

    levels = [
        (left, value, sum(one is not None for one in values[left:right]) >= _FEWEST_ON_A_LEVEL)
        for left, right, value, _, _ in detect_steps(list(values))
    ]
    found = (
        Step(left, value / before)
        for (_, before, was_long), (left, value, is_long) in pairwise(levels)
        if before and was_long and is_long
    )
    return tuple(step for step in found if abs(math.log(step.ratio)) > SIZE_OF_INTEREST)


def write_asv(series: Series, folder: Path) -> None:
    """Writes one result file a machine and commit, and merges the list of benchmarks with the one that is there.

    `asv run` rewrites that list to what it discovered itself, and series that are not in it vanish from
    the pages; so this is done again before each publishing. Samples are kept for the newest commit of a
    machine alone: they are most of a file.
    """
    by_machine: dict[str, dict[str, list[tuple[Place, Point]]]] = defaultdict(lambda: defaultdict(list))
    for place, points in series.items():
        for point in points:
            by_machine[place.machine][point.commit].append((place, point))
    benchmarks: dict[str, Any] = {}
    method = newest_method(series)
    for machine, by_commit in by_machine.items():
        for old in (folder / machine).glob(f"*-{ENVIRONMENT}.json"):
            old.unlink()
        fields = _machine_fields(folder / machine / "machine.json", next(iter(by_commit.values()))[0][1])
        newest = max(by_commit, key=lambda commit: by_commit[commit][0][1].committed_s)
        for commit, members in by_commit.items():
            results = _results(members, benchmarks, method, keep_samples=commit == newest)
            params = {**fields, "python": ENVIRONMENT}
            content = {
                "commit_hash": commit,
                "env_name": ENVIRONMENT,
                "date": members[0][1].committed_s * 1000,
                "params": params,
                "python": ENVIRONMENT,
                "requirements": {},
                "env_vars": {},
                "result_columns": _COLUMNS,
                "results": results,
                "durations": {},
                "version": _RESULTS_VERSION,
            }
            _write(folder / machine / f"{commit[:8]}-{ENVIRONMENT}.json", content)
    newest_first = sorted(benchmarks.items(), key=lambda item: -int(item[1]["version"]))
    _merge_benchmarks(folder / "benchmarks.json", dict(newest_first))


def publish(root: Path, results: Path, html: Path) -> int:
    """Runs `asv publish`, which empties the folder `html` first. Raises what asv says where it fails.

    asv looks for no regressions in these series: it takes a single point on either side for a level, and so the next
    launch or another board for a regression. `regressions.list_regressions` adds the steps that were found.

    Returns how many result files are on none of asv's pages: it shows the main line of commits, and what was
    measured on a branch before it was merged lies beside that.
    """
    settings = root / "asv.conf.json"
    if find_spec("asv") is None:
        raise UsageError("asv is not installed here: `nox -s publish` installs it, or `pip install asv plotly`.")
    if not settings.exists():
        raise UsageError(f"{root} is no checkout with an asv.conf.json: publishing needs the history of the commits.")
    if html.exists() and any(html.iterdir()) and not (html / "asv.css").exists():
        raise UsageError(f"{html} holds something else than earlier pages, and would be emptied. Name an empty folder.")
    places = {"repo": root, "benchmark_dir": root / "benchmarks", "results_dir": results, "html_dir": html}
    asked = {**json.loads(settings.read_text(encoding="utf-8")), **{n: str(p.resolve()) for n, p in places.items()}}
    asked["regressions_first_commits"] = {r"track_gemm\.": None}
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch) / "asv.conf.json"
        config.write_text(json.dumps(asked), encoding="utf-8")
        command = [sys.executable, "-m", "asv", "--config", str(config), "publish", "--no-pull"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise CannotMeasureError(
            f"`asv publish` failed: {said[-1] if said else f'exit code {done.returncode}'}. "
            f"What it read is in {results}; it can be deleted and is written anew."
        )
    return (done.stdout + done.stderr).count("Couldn't find ")


def parameters(place: Place) -> tuple[str, ...]:
    """asv's parameters of a series, in the order of `PARAM_NAMES`."""
    return tuple(map(repr, (place.case, place.implementation, place.conditions)))


def _pick(point: Point) -> str:
    return Side(point.row, point.run).pick


def _results(
    members: Iterable[tuple[Place, Point]], benchmarks: dict[str, Any], method: int, *, keep_samples: bool
) -> Any:
    """The results of one commit by benchmark; what they need in the list of benchmarks is added to `benchmarks`."""
    grouped: dict[str, dict[tuple[str, ...], Point]] = defaultdict(dict)
    timed: dict[str, bool] = {}
    for place, point in members:
        name = benchmark_name(place.family, place.quantity, None if place.method == method else place.method)
        key = parameters(place)
        grouped[name][key] = point
        timed[name] = place.quantity == "seconds"
        _add_benchmark(benchmarks, name, key, place.unit, str(place.method))
    return {name: _result(points, timed[name], keep_samples) for name, points in grouped.items()}


def _result(points: Mapping[tuple[str, ...], Point], timed: bool, keep_samples: bool) -> list[Any]:
    """One line of a result file: a value for every combination of parameters; null failed, NaN was not measured."""
    params = [list(dict.fromkeys(key[axis] for key in points)) for axis in range(len(PARAM_NAMES))]
    keys = [(case, implementation, where) for case in params[0] for implementation in params[1] for where in params[2]]
    cells = [points.get(key) for key in keys]
    stats = [_stats(point if timed else None) for point in cells]
    method = str(next(iter(points.values())).row.method)
    values = [math.nan if point is None else point.value for point in cells]
    samples = None
    if keep_samples and timed:
        samples = [list(point.row.samples_s) or None if point else None for point in cells]
    return [values, params, method, None, None, *([one.get(name) for one in stats] for name in _STATS), samples]


def _stats(point: Point | None) -> dict[str, float]:
    if point is None or point.value is None or not point.row.samples_s:
        return {}
    summary = summarise(point.row.samples_s, 0.99)
    quarters = [float(q) for q in np.quantile(point.row.samples_s, (0.25, 0.75))]
    values = (summary.low_s, summary.high_s, *quarters, point.row.calls_per_sample, point.row.samples_n)
    return dict(zip(_STATS, values, strict=True))


def _add_benchmark(benchmarks: dict[str, Any], name: str, key: Sequence[str], unit: str, version: str) -> None:
    fresh = {
        "code": "Stored runs of gemmgate: docs/method.md says how a number comes about.",
        "name": name,
        "param_names": list(PARAM_NAMES),
        "params": [[] for _ in PARAM_NAMES],
        "type": "track",
        "unit": unit,
        "version": version,
    }
    entry = benchmarks.setdefault(name, fresh)
    entry["version"] = max(entry["version"], version, key=int)
    for known, value in zip(entry["params"], key, strict=True):
        if value not in known:
            known.append(value)


def _merge_benchmarks(path: Path, ours: Mapping[str, Any]) -> None:
    """Adds what is ours; a benchmark that `asv run` knows too keeps its entry and gains our parameters."""
    merged = {name: entry for name, entry in _read(path).items() if name != "version"}
    for name, entry in ours.items():
        held = merged.get(name)
        if held is None or held.get("version") != entry["version"] or held.get("param_names") != entry["param_names"]:
            merged[name] = entry
        else:
            both = zip(held["params"], entry["params"], strict=True)
            merged[name] = {**held, "params": [list(dict.fromkeys([*theirs, *added])) for theirs, added in both]}
    in_order = {name: merged[name] for name in ours}  # that of asv's grid
    _write(path, {**in_order, **merged, "version": _BENCHMARKS_VERSION})


def _machine_fields(path: Path, point: Point) -> dict[str, str]:
    """asv's description of a machine; one that is there already stays, for every field is part of a series' key."""
    held = _read(path)
    if not held:
        machine = point.run.machine
        ram, cores = str(machine.memory_bytes), str(machine.cores)
        held = dict(zip(_MACHINE_FIELDS, (path.parent.name, "", "", machine.model, cores, ram), strict=True))
        _write(path, {**held, "version": _MACHINE_VERSION})
    return {name: held[name] for name in _MACHINE_FIELDS}


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path} is not JSON ({error}). Delete it: it is written anew.") from error
    return found


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    temporary.replace(path)
