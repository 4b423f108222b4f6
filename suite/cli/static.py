"""`gemmgate static`: what own kernels become on GPUs that are not here."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from gemmgate.suite import profiles, report
from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import Choice
from gemmgate.suite.cli import _options as options
from gemmgate.suite.cli import _terminal
from gemmgate.suite.cli._beginning import begin_run
from gemmgate.suite.cli._stored import loaded
from gemmgate.suite.commits import describe_commit
from gemmgate.suite.compiling.base import commit_named, overlay_of
from gemmgate.suite.compiling.instructions import NOT_INSTALLED
from gemmgate.suite.compiling.judge import absent, judge_static
from gemmgate.suite.compiling.plan import FAMILY, Request, compile_rows, illegal_tuned, installed
from gemmgate.suite.compiling.representative import CHOSEN, TUNED, chosen, is_representative
from gemmgate.suite.errors import PASS, REGRESSION, CannotMeasureError, UsageError
from gemmgate.suite.gate import judge
from gemmgate.suite.records import Machine, Row, Run, Stack
from gemmgate.suite.store import Store
from gemmgate.suite.workers import own_overlay, private_caches

ORDER = 55
MACHINE = Machine(key="static", model="compiled, not run")
"""Compiled code is the same wherever it was compiled."""
PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Tiles(StrEnum):
    """Which tiles are compiled."""

    CHOSEN = "chosen"
    RULE = "rule"
    TUNED = "tuned"
    ALL = "all"


@options.grouped
def command(
    selected: options.Selected,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", metavar="NAME,...", help="Architectures such as sm_90, or machines such as h100-nvl."),
    ] = None,
    tile: Annotated[
        Tiles, typer.Option("--tile", help="What the rule chooses, what was tuned, both (chosen), or all tiles.")
    ] = Tiles.CHOSEN,
    full: Annotated[bool, typer.Option("--full", help="Every case, and AMD's architectures too.")] = False,
    against: Annotated[
        str, typer.Option("--against", metavar="BASE", help="Judge against a stored run or a git revision.")
    ] = "",
    across_stacks: Annotated[
        bool, typer.Option("--across-stacks", help="Compare code though the compilers' versions differ.")
    ] = False,
    cache: Annotated[
        Path | None, typer.Option("--cache", metavar="DIR", help="What was compiled before; may be deleted.")
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, max=256, help="Compiling processes. Default: as many as processors.")
    ] = PROCESSORS,
    commit: Annotated[str, typer.Option(help="Commit to file the run under, where git cannot tell.")] = "",
    format: Annotated[options.Page, typer.Option(help="How the result is shown.")] = options.Page.TABLE,
    results: options.Results = None,
    suite: options.Suite = None,
) -> None:
    """Compile for every architecture without a GPU: registers, shared memory, spills.

    Without --case, --tag and --full: of the quick cases, the largest in each precision, and of the tuned tiles the
    smallest, the largest and the one with most outputs a warp. Stores a run of rows of kind static. The exit code
    is 1 where a tuned tile cannot run on the GPUs it is for; with --against also where spills appeared, occupancy
    fell, tensor-core instructions vanished or a kernel no longer compiles or fits.
    """
    begun = time.monotonic()
    selection = selected.selection()
    if full and not (selection.cases or selection.tags):
        selection = replace(selection, cases=("*",))
    request = Request(
        selection,
        _targets(options.globs("--target", target), full=full),
        CHOSEN if tile is Tiles.CHOSEN else (tile.value,),
        tuple(suite or ()),
    )
    choices = chosen(options.families(suite), selection)  # what does not exist is said before anything starts
    store, folder = options.store(results), options.writable_folder("--cache", cache or _default_cache())
    overlay = own_overlay()
    base = _Base.find(against, store, overlay) if against else None
    run = _begin(request, commit)
    rows = _compiled(request, overlay, folder, jobs)
    with store.begin(run) as journal:
        for row in rows:
            journal.append(row)
        journal.update(seconds={"compiling": time.monotonic() - begun})
        path = journal.finish()
    run = store.load(str(path))
    for row in absent(run.rows).values():
        _terminal.say(f"{row.implementation} was not compiled, since its module cannot be imported: {row.detail}.")
    if base is None:
        _terminal.put(report.show(run, format.value, width=_terminal.width(), color=_terminal.color()))
        _terminal.say(f"stored as {path}")
        raise typer.Exit(REGRESSION if _say_illegal(run) else _exit_code(run))
    earlier = base.load(request, choices, folder, jobs)
    before = _without_other_entries(earlier.rows, run.rows) if is_representative(selection) else earlier.rows
    found = judge_static(_nvidia(before), _nvidia(run.rows), (earlier.stack, run.stack), across_stacks=across_stacks)
    result = judge(found)
    if format is options.Page.MARKDOWN:
        _terminal.put(report.markdown_static(found, result))
    else:
        _terminal.put(report.table_static(found, result, width=_terminal.width(), color=_terminal.color()))
    _terminal.say(f"stored as {path}")
    raise typer.Exit(REGRESSION if _say_illegal(run) else result.exit_code)


class _Base:
    """What `--against` names: a stored run, or a commit whose kernels are compiled now."""

    def __init__(self, run: Run | None, overlay: Path, commit: str) -> None:
        self._run, self._overlay, self._commit = run, overlay, commit

    @classmethod
    def find(cls, asked: str, store: Store, overlay: Path) -> _Base:
        """Raises UsageError where it is neither."""
        try:
            run = loaded(store, asked)
        except UsageError as error:
            commit = commit_named(overlay, asked)
            if not commit:
                raise UsageError(f"--against {asked}: {error} Git knows no such revision either.") from error
            return cls(None, overlay, commit)
        if not any(row.kind == "static" for row in run.rows):
            raise UsageError(
                f"--against {asked}: run {run.id} holds no compiled kernels. Name one of `gemmgate static`."
            )
        return cls(run, overlay, run.commit)

    def load(self, request: Request, choices: Sequence[Choice], cache: Path, jobs: int) -> Run:
        """Its rows, as far as they belong to the request."""
        if self._run is not None:
            rows = tuple(row for row in self._run.rows if _asked_for(row, request, choices))
            return replace(self._run, rows=rows)
        with overlay_of(self._overlay, self._commit) as overlay:
            compiled = _compiled(request, overlay, cache, jobs)
        return replace(_begin(request, ""), commit=self._commit, rows=compiled)


def _asked_for(row: Row, request: Request, choices: Sequence[Choice]) -> bool:
    """Whether a request for these choices would have made this row, had its implementation been there."""
    family, _, implementation = row.implementation.partition("/")
    globs = request.selection.implementations
    tile = row.flags.get("tile", "")
    if not row.target:
        return any(choice.family.name == family and implementation in choice.implementations for choice in choices)
    return (
        row.kind == "static"
        and row.target in request.targets
        and (tile in request.tiles or (request.tiles == ("all",) and tile not in CHOSEN))
        and (not globs or any(fnmatchcase(implementation, glob) for glob in globs))
        and any(
            choice.family.name == family
            and (choice.case.name == row.case or (tile == TUNED and is_representative(request.selection)))
            for choice in choices
        )
    )


def _without_other_entries(baseline: Sequence[Row], candidate: Sequence[Row]) -> tuple[Row, ...]:
    """The baseline without tuned tiles for which others stand now: they were left out, not lost."""
    now = {(row.implementation, row.case, row.target) for row in candidate if row.flags.get("tile") == TUNED}
    gone = absent(candidate)
    return tuple(
        row
        for row in baseline
        if row.flags.get("tile") != TUNED
        or (row.implementation, row.case, row.target) in now
        or row.implementation in gone
    )


def _say_illegal(run: Run) -> bool:
    """Names the entries of tuned tables that cannot run where they are for; whether there are any."""
    illegal = illegal_tuned(run.rows)
    for row in illegal:
        said = f"{row.implementation} {row.case}".rstrip()
        _terminal.say(f"tuned tile of {said} is illegal on {row.target}: {row.detail} Tune it again, or remove it.")
    return bool(illegal)


def _targets(asked: tuple[str, ...], *, full: bool) -> dict[str, Target]:
    """By the name that rows carry: `sm_90`, or `sm_90:nvidia-h100-nvl` for a machine that was named."""
    if not asked:
        return {
            name: profiles.target(name) for name in (profiles.representatives() if full else profiles.architectures())
        }
    found = {}
    for name in asked:
        target = profiles.target(name)
        if not target.is_gpu:
            raise UsageError(f"--target {name}: kernels are compiled for GPUs.")
        found[name if name == target.arch else f"{target.arch}:{profiles.profile(name).name}"] = target
    return found


def _compiled(request: Request, overlay: Path, cache: Path, jobs: int) -> tuple[Row, ...]:
    """The rows, with a bar where a person looks."""
    console = Console(stderr=True)
    columns = (BarColumn(bar_width=24), TextColumn("{task.completed}/{task.total} compiled"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)
        return compile_rows(
            request, overlay, cache, jobs, lambda done, of: progress.update(task, completed=done, total=of)
        )


def _begin(request: Request, commit: str) -> Run:
    stack = Stack(python=platform.python_version(), torch=installed("torch"), triton=installed("triton"))
    selection = {**request.selection.to_json(), "targets": list(request.targets), "tiles": list(request.tiles)}
    return begin_run(MACHINE, stack, selection, describe_commit(own_overlay(), commit))


def _default_cache() -> Path:
    return Path(private_caches()["TRITON_CACHE_DIR"]).parent / FAMILY


def _nvidia(rows: tuple[Row, ...]) -> list[Row]:
    """AMD's targets are reported and not judged; modules that cannot be imported have none."""
    return [row for row in rows if row.target.startswith("sm_") or not row.target]


def _exit_code(run: Run) -> int:
    if all(row.reason == NOT_INSTALLED for row in run.rows):
        lacking = run.rows[0]
        raise CannotMeasureError(
            f"Nothing of this selection could be compiled: the module of {lacking.implementation} cannot be imported: "
            f"{lacking.detail}. Install what it needs, or name another with --impl."
        )
    failed = [row for row in run.rows if row.status in ("error", "timeout")]
    if failed:
        where = (failed[0].implementation, failed[0].case, failed[0].target)
        first = f"{' '.join(filter(None, where))}: {failed[0].detail}"
        raise CannotMeasureError(f"{len(failed)} preparations failed, which is no property of the kernels. {first}")
    return PASS
