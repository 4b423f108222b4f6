"""`gemmgate gate`: did this change make anything slower or wrong?"""

from __future__ import annotations

import json
import os
import tempfile
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gemmgate.suite import profiles, report
from gemmgate.suite.acceptances import Acceptances, read_acceptances
from gemmgate.suite.checkouts import ACCEPTED, Checkouts
from gemmgate.suite.cli import _options as options
from gemmgate.suite.cli import _terminal
from gemmgate.suite.cli._compiled_sides import ARCHITECTURES
from gemmgate.suite.cli._foresee import foresee
from gemmgate.suite.cli._gate_sides import Asked
from gemmgate.suite.cli._gating import measure
from gemmgate.suite.cli._stored import gathered
from gemmgate.suite.errors import UsageError
from gemmgate.suite.judged import is_unchanged
from gemmgate.suite.judgement import Judgement, judgement
from gemmgate.suite.records import METHOD_VERSION, Run
from gemmgate.suite.replay import replay as replayed
from gemmgate.suite.report import units
from gemmgate.suite.store import OtherKindError, Store
from gemmgate.suite.store.files import write_named
from gemmgate.suite.watch import watched, whole

ORDER = 55
SUMMARY = "GITHUB_STEP_SUMMARY"
"""Environment variable with the file that GitHub shows as a job's summary."""
MEANT = {
    "watch": ("format", "results"),
    "replay": ("format", "results"),
    "show": ("format", "markdown", "junit", "as_json", "github", "results"),
    "plan": (
        *("base", "head", "family", "case", "impl", "tag", "device", "seconds", "everything", "base_python"),
        *("head_python", "no_wait", "static", "cache", "suite", "results"),
    ),
}
"""Parameters that have a meaning beside those that measure nothing."""


class Format(StrEnum):
    """What a gate can be shown as."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"
    JUNIT = "junit"


def command(
    context: typer.Context,
    base: Annotated[str, typer.Option(metavar="REV", help="The commit to compare with.")] = "",
    head: Annotated[str, typer.Option(metavar="REV", help="The commit to judge. Default: the tree as it is.")] = "",
    family: options.Family = None,
    case: options.Case = None,
    impl: options.Impl = None,
    tag: options.Tag = None,
    device: options.Device = "auto",
    seconds: Annotated[float | None, typer.Option(min=1.0, help="Begin no block that would end later.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Time what is the same on both sides too.")] = False,
    base_python: Annotated[
        str, typer.Option("--base-python", metavar="PROGRAM", help="The base's interpreter, with its own torch.")
    ] = "",
    head_python: Annotated[
        str, typer.Option("--head-python", metavar="PROGRAM", help="The head's interpreter, with its own torch.")
    ] = "",
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="End with exit code 3 where another gate has the GPU.")
    ] = False,
    static: Annotated[
        list[str] | None,
        typer.Option(
            "--static",
            metavar="NAME,...",
            help=f"GPUs that changed kernels are compiled for, or none. Default: {','.join(ARCHITECTURES)}.",
        ),
    ] = None,
    cache: Annotated[str, typer.Option(help="Cache state: cold or hot. Default: cold on a GPU, hot on a CPU.")] = "",
    resume: Annotated[str, typer.Option(metavar="GATE", help="Go on with a gate that was interrupted.")] = "",
    show: Annotated[str, typer.Option(metavar="GATE", help="Only show a stored one: an id, a path, latest.")] = "",
    plan: Annotated[
        str,
        typer.Option(metavar="MACHINE", help="Only say what it would take: here, or on a machine of the results."),
    ] = "",
    watch: Annotated[
        bool, typer.Option("--watch", help="Only show what stored gates of unchanged code say about the gate.")
    ] = False,
    replay: Annotated[
        str,
        typer.Option(
            metavar="RUN,...",
            help="Only play the gate on recorded blocks, for its false alarms and power: of calibrations and gates of "
            "unchanged code by id, or all.",
        ),
    ] = "",
    format: Annotated[Format, typer.Option(help="How it is shown.")] = Format.TABLE,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write Markdown there too.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit's XML there too.")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write JSON there too.")] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Annotate the change, and add to the job's summary, in GitHub's workflows.")
    ] = False,
    results: options.Results = None,
    suite: options.Suite = None,
) -> None:
    """Judge a change against a base on this machine: exit code 1 where it is slower, wrong, or lacks something.

    Two sides, two fresh processes, one GPU, in blocks that cancel drift; what is flagged is confirmed on fresh
    blocks. A side is a commit, the tree as it is, or an interpreter. With --suite, the commits are those of that
    folder's repository. Base and head alike: a test of the gate itself. Without --case and --tag: cases tagged quick.
    """
    begun = time.monotonic()
    options.refuse_beside(context, MEANT)
    options.refuse_same_file({"--markdown": markdown, "--junit": junit, "--json": as_json})
    store = options.store(results)
    gates = store.gates
    if watch:
        _show_watched(store, format)
        return
    if replay:
        _show_replayed(replay, store, format)
        return
    state = "finished"
    if show:
        reading = gates.read(show)
        run, state = reading.run, reading.state
        for note in reading.notes:
            _terminal.say(note)
    else:
        if not base and not (base_python or head_python) and not resume:
            raise UsageError(
                "Say with --base what to compare with, such as --base origin/main; or give two interpreters with "
                "--base-python and --head-python."
            )
        asked = Asked(
            base,
            head,
            options.selection(family, case, impl, tag),
            options.device(device),
            seconds,
            everything,
            (base_python, head_python),
            not no_wait,
            cache,
            resume,
            tuple(suite or ()),
            _architectures(options.globs("--static", static)),
        )
        with tempfile.TemporaryDirectory(prefix="gemmgate-gate-") as folder:
            if plan:
                foreseen = foresee(asked, store, Checkouts(Path(folder), asked.suites), plan)
                shown = report.show_forecast(foreseen, seconds, width=_terminal.width(), color=_terminal.color())
                _terminal.put(shown)
                return
            run = measure(asked, store, Path(folder), begun)
    judged = judgement(run, _accepted(run), state=state)
    _write(judged, {markdown: Format.MARKDOWN, junit: Format.JUNIT, as_json: Format.JSON})
    _terminal.put(_shown(judged, format))
    if github:
        _terminal.put(report.gate_annotations(judged))
        if os.environ.get(SUMMARY):
            try:
                with Path(os.environ[SUMMARY]).open("a", encoding="utf-8") as file:
                    file.write(report.gate_markdown(judged))
            except OSError as error:  # the verdict stands, whoever cannot read it there
                _terminal.say(f"cannot write the job summary {os.environ[SUMMARY]}: {error.strerror}.")
    if format is not Format.TABLE:
        _terminal.say(judged.result.sentence)
    raise typer.Exit(judged.result.exit_code)


def _show_watched(store: Store, format: Format) -> None:
    _refuse_format("--watch", format, (Format.TABLE, Format.JSON))
    gates, calibrations = _comparable(store)
    if not (gates or calibrations):
        raise UsageError(
            f"No gate and no calibration by method {METHOD_VERSION} is in {store.root}: "
            "`gemmgate gate --base HEAD --head HEAD` makes one; or name another folder with --results."
        )
    found = watched(gates, calibrations)
    if format is Format.JSON:
        _terminal.put(json.dumps(found.to_json(), indent=1))
    else:
        _terminal.put(report.show_watched(found, width=_terminal.width(), color=_terminal.color()))


def _show_replayed(asked: str, store: Store, format: Format) -> None:
    _refuse_format("--replay", format, (Format.TABLE, Format.MARKDOWN))
    found = replayed(_recorded(asked, store))
    _terminal.put(report.show_replayed(found, format.value, width=_terminal.width(), color=_terminal.color()))


def _refuse_format(mode: str, format: Format, shown_as: tuple[Format, ...]) -> None:
    if format not in shown_as:
        raise UsageError(f"--format {format.value} means nothing with {mode}: it has {' and '.join(shown_as)}.")


def _architectures(asked: tuple[str, ...]) -> tuple[str, ...]:
    """Names that exist; nothing asked for means one of each generation."""
    if asked == ("none",):
        return ()
    for name in asked:
        if not profiles.target(name).is_gpu:
            raise UsageError(f"--static {name}: kernels are compiled for GPUs.")
    return asked or ARCHITECTURES


def _comparable(store: Store) -> tuple[list[Run], list[Run]]:
    """Finished gates and calibrations of one machine by the present method, each block once.

    How a block by another method scatters says nothing of it.
    """
    stored = gathered([store.gates, store.calibrations], lambda _: True)
    gates, calibrations = ([run for run in whole(runs) if run.method == METHOD_VERSION] for runs in stored)
    return _of_one_machine(gates, calibrations)


def _recorded(asked: str, store: Store) -> list[Run]:
    """Runs with blocks of unchanged code: those named, else all of one machine by the present method."""
    if asked != "all":
        named = [_of_either(name, store) for name in options.globs("--replay", [asked])]
        if changed := [run.id for run in named if not _rings_in_vain(run)]:
            raise UsageError(
                f"--replay {', '.join(changed)}: a gate of changed code, or of which the identical was not timed, has "
                "no false alarms to count. Name calibrations, and gates whose base and head are the same; or all."
            )
        return whole(named)
    gates, calibrations = _comparable(store)
    unchanged = [run for run in gates if _rings_in_vain(run)]
    if len(unchanged) < len(gates):
        left = units.counted(len(gates) - len(unchanged), "gate")
        _terminal.say(f"left out: {left} of changed code, or of which the identical was not timed.")
    found = [*calibrations, *unchanged]
    if not found:
        raise UsageError(
            f"No calibration and no gate of unchanged code by method {METHOD_VERSION} is in {store.root}: "
            "`gemmgate calibrate --power` makes one. Runs of an older method can be named."
        )
    return found


def _rings_in_vain(run: Run) -> bool:
    """Whether every alarm on its blocks would be false: those of calibrations, and of gates of unchanged code."""
    return "base" not in run.selection or (is_unchanged(run) and run.selection["everything"])


def _of_either(name: str, store: Store) -> Run:
    """Of a calibration, or else of a gate."""
    try:
        return store.calibrations.load(name)
    except OtherKindError:
        return store.gates.load(name)


def _of_one_machine(gates: list[Run], calibrations: list[Run]) -> tuple[list[Run], list[Run]]:
    """Those of the machine whose times were gated last, or that was calibrated last."""
    newest = ([run for run in gates if run.selection["gates_time"]] or calibrations or gates)[-1:]
    if newest:
        _terminal.say(f"machine {newest[0].machine.key}.")
    keys = {run.machine.key for run in newest}
    return [r for r in gates if r.machine.key in keys], [r for r in calibrations if r.machine.key in keys]


def _accepted(run: Run) -> Acceptances:
    text = run.selection.get("accepted", "")
    return read_acceptances(text, f"{ACCEPTED} of the base") if text else Acceptances()


def _shown(judged: Judgement, format: Format) -> str:
    if format is Format.MARKDOWN:
        return report.gate_markdown(judged)
    if format is Format.JSON:
        return json.dumps(report.gate_json(judged), indent=1, allow_nan=False)
    if format is Format.JUNIT:
        return report.gate_junit(judged)
    return report.table_gate(judged, width=_terminal.width(), color=_terminal.color())


def _write(judged: Judgement, files: dict[Path | None, Format]) -> None:
    for path, shown_as in files.items():
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_named(path, _shown(judged, shown_as))
        except OSError as error:
            raise UsageError(f"Cannot write {path}: {error.strerror}. It is stored: --show has it.") from error
