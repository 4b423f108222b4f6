"""`gemmgate timers`: what other benchmark functions read of the same kernels, beside the kernels' own time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gemmgate.suite import report
from gemmgate.suite.catalog import Catalog, Item, case_named
from gemmgate.suite.cli import _options as options
from gemmgate.suite.cli import _terminal
from gemmgate.suite.cli._beginning import begin_run
from gemmgate.suite.cli._stored import loaded
from gemmgate.suite.cli.calibrate import Format
from gemmgate.suite.commits import describe_commit
from gemmgate.suite.errors import CannotMeasureError, UsageError, unknown
from gemmgate.suite.loop import CHECK_DEADLINE_S, PREPARE_DEADLINE_S
from gemmgate.suite.outcomes import timer_row
from gemmgate.suite.records import Row, Run
from gemmgate.suite.report.timers import timers_json
from gemmgate.suite.store.files import explained, write_named
from gemmgate.suite.workers import Worker, WorkerLost, own_overlay

ORDER = 65
REPEATS = 10
KERNELS = (
    "dense_splitk/triton_split_k/m16-n16-k8192-bf16",
    "dense_splitk/cublas/m64-n64-k8192-bf16",
    "dense_splitk/cublas/m128-n128-k32768-bf16",
    "dense_splitk/cublas/m256-n256-k65536-bf16",
    "dense_splitk/cublas/m64-n128-k200000-fp32",
    "dense_splitk/cublas/m4096-n4096-k4096-bf16",
)
"""From 4 to 200 us: one and two kernels a call, bound by launches, by memory, by arithmetic, by power."""


def command(
    context: typer.Context,
    kernel: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="family/implementation/case instead of the usual six; may be repeated."),
    ] = None,
    device: options.Device = "auto",
    repeats: Annotated[int, typer.Option(min=3, max=100, help="Readings of each function.")] = REPEATS,
    commit: Annotated[str, typer.Option(help="Commit to file it under, where git cannot tell.")] = "",
    show: Annotated[
        str, typer.Option(metavar="ID", help="Only show a stored one: an id, a path, latest, latest:<machine>.")
    ] = "",
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the picture there, as SVG.")] = None,
    format: Annotated[Format, typer.Option(help="How it is shown.")] = Format.TABLE,
    results: options.Results = None,
    suite: options.Suite = None,
) -> None:
    """Time the same kernels with Triton's, torch's and Inductor's benchmark functions, and with ours.

    Each beside what a profiler's trace says of the kernels in the cache state that the function measures in: how far
    off, how much ten readings scatter, how many seconds they take. Needs an NVIDIA GPU.
    """
    begun = time.monotonic()
    options.refuse_beside(context, {"show": ("picture", "format", "results")})
    store = options.store(results).timers
    if show:
        _put(loaded(store, show), format, picture)
        return
    known = options.families(suite or [])
    items = [_item(known, path) for path in kernel or KERNELS]
    committed = describe_commit(own_overlay(), commit)
    worker = Worker(options.device(device), suites=suite or [])
    try:
        if not worker.target.is_gpu:
            raise CannotMeasureError(
                "Timers are compared on an NVIDIA GPU, where they differ; this machine has none that torch sees. "
                "`gemmgate timers --show` shows a stored comparison."
            )
        kernels = {"kernels": [item.path for item in items], "repeats": repeats}
        now = begin_run(worker.machine, worker.stack, kernels, committed)
        with store.begin(now) as journal:
            for item in items:
                for row in _measured(worker, item, repeats):
                    journal.append(row)
            journal.update(seconds={"total": time.monotonic() - begun})
            path = journal.finish()
    finally:
        worker.kill()
    _put(store.load(str(path)), format, picture)
    _terminal.say(f"stored as {path}")


def _item(known: Catalog, path: str) -> Item:
    parts = path.split("/")
    if len(parts) != 3:
        raise UsageError(f"--kernel '{path}' should be family/implementation/case, such as {KERNELS[0]}.")
    family = known.family(parts[0])
    if parts[1] not in {entry.name for entry in family.implementations}:
        raise unknown("implementation", parts[1], [entry.name for entry in family.implementations])
    case = next((case for case in family.cases if case.name == parts[2]), None) or case_named(family, parts[2])
    if case is None:
        raise unknown("case", parts[2], [case.name for case in family.cases])
    return Item(family, case, parts[1])


def _measured(worker: Worker, item: Item, repeats: int) -> Iterator[Row]:
    """Rows of one kernel; what cannot be measured says why and costs no other kernel."""
    _terminal.say(f"{item.path}: {repeats} readings of each function.")
    case = {"case": item.case.to_json(), "seed": 0, "data": "normal", "caches": ["cold"]}
    steps: tuple[tuple[str, float, Mapping[str, Any]], ...] = (
        ("prepare", PREPARE_DEADLINE_S, case),
        ("check", CHECK_DEADLINE_S, {}),
        ("timers", CHECK_DEADLINE_S, {"repeats": repeats}),
    )
    facts: dict[str, Any] = {}
    for operation, deadline_s, fields in steps:
        try:
            reply = worker.ask(operation, deadline_s, implementation=item.implementation, **fields)
        except WorkerLost as lost:
            raise CannotMeasureError(f"{item.path}: {lost}. What was measured before is stored.") from lost
        if not reply.get("ok"):
            _terminal.say(f"{item.path} is left out: {reply['status']} ({reply['reason']}): {reply['detail']}")
            return
        facts |= reply
    common = {"flags": worker.flags[item.case.precision], "data": "normal", "board": worker.machine.board}
    for found in facts["readings"]:
        yield timer_row(item.family, item.case, item.implementation, found, **common)
    for cache, found in facts["kernels"].items():
        reference = {**found, "timer": "cupti", "cache": cache}
        yield timer_row(item.family, item.case, item.implementation, reference, **common)


def _put(run: Run, format: Format, picture: Path | None) -> None:
    if format is Format.JSON:
        _terminal.put(timers_json(run))
    else:
        _terminal.put(report.show_timers(run, format.value, width=_terminal.width(), color=_terminal.color()))
    if picture is not None:
        with explained("write", picture, ", or name another file with --picture."):
            write_named(picture, report.timers_picture(run))
        _terminal.say(f"the picture is {picture}")
