"""The results folder: what is stored, what a reference means, and where a new run goes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Literal

from gemmgate.suite.errors import UnreadableError, UsageError, unknown
from gemmgate.suite.records import Limits, Run, machine_key
from gemmgate.suite.store import encoding, journal
from gemmgate.suite.store.files import explained, legible, make_folders, open_file
from gemmgate.suite.store.journal import Journal

State = Literal["finished", "interrupted", "running", "unreadable"]
Kind = Literal["runs", "calibrations", "timers", "tunings", "gates"]
_NAMES: Mapping[Kind, tuple[str, str]] = {
    "runs": ("run", "run"),
    "calibrations": ("calibration", "calibrate"),
    "timers": ("comparison of timers", "timers"),
    "tunings": ("tuning", "tune"),
    "gates": ("gate", "gate"),
}
"""What one of them is called, and the command that makes it."""
_MADE_BY: Mapping[str, Kind] = {command: kind for kind, (_, command) in _NAMES.items()} | {
    "static": "runs",
    "try": "runs",
}


class OtherKindError(UsageError):
    """What was named is stored, but is no run of the kind that is meant."""


@dataclass(frozen=True)
class RunInfo:
    """One stored run at a glance. `note` says what is wrong with an unreadable file, or was lost of a torn one."""

    id: str
    machine: str
    gpu: str
    utc: str
    commit: str
    families: tuple[str, ...]
    rows: int
    state: State
    path: Path
    note: str = ""


@dataclass(frozen=True)
class Reading:
    """A run with what its reader should say about it; one of several runs has these as `parts`."""

    run: Run
    state: State
    notes: tuple[str, ...] = ()
    parts: tuple[Reading, ...] = ()


@dataclass(frozen=True)
class Gathered:
    """Finished runs, oldest first, and a sentence on each file that cannot be read."""

    runs: tuple[Run, ...]
    lost: tuple[str, ...]


class Store:
    """A results folder. Reading creates nothing; `begin` makes the folders it needs.

    `kind` is the folder below it whose runs are meant. A calibration is a run too, of blocks, and so is a tuning, of
    candidates; they stand apart: `latest` should not find them, and no page should show them among measurements.
    """

    def __init__(self, root: Path, kind: Kind = "runs") -> None:
        self.root = root
        self._kind: Kind = kind

    @property
    def calibrations(self) -> Store:
        """The calibrations in the same folder, under the same kinds of reference."""
        return Store(self.root, "calibrations")

    @property
    def timers(self) -> Store:
        """Comparisons of timers in the same folder, likewise."""
        return Store(self.root, "timers")

    @property
    def tunings(self) -> Store:
        """The tunings in the same folder."""
        return Store(self.root, "tunings")

    @property
    def gates(self) -> Store:
        """The gates in the same folder: runs of blocks of two sides."""
        return Store(self.root, "gates")

    def begin(self, run: Run) -> Journal:
        """Opens the journal of a new run, whose id becomes `journal.run.id`; rows that `run` has are carried over.

        Raises `UnwritableError` if nothing could be stored, so that nothing is measured in vain.
        """
        if machine_key(run.machine.key) != run.machine.key or not run.id:
            raise ValueError(f"Run '{run.id}' on machine '{run.machine.key}': these cannot name a file and a folder.")
        folder = self._runs / run.machine.key
        with explained("create a run in", folder):
            make_folders(folder)
            for number in count(1):
                named = replace(run, id=run.id if number == 1 else f"{run.id}-{number}")
                path = folder / f"{named.id}.jsonl"
                try:
                    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
                except FileExistsError:
                    continue
                if not path.with_suffix(".parquet").exists():
                    break
                os.close(file)
                path.unlink()
        return Journal.begin(path, file, named)

    def resume(self, reference: str, now: Run) -> Journal:
        """Opens a journal that holds the rows of an earlier run, to add what is missing there.

        `now` describes the present execution as `begin` takes it: fresh id, utc, commit, machine, stack.
        An interrupted run goes on in its own journal under its own id. A finished one stays as it is:
        `now` begins, says `resumed`, and carries its rows over unchanged. New rows get the board and
        commit of `now` in both cases. Machine, stack and method must be those of the earlier run.
        """
        paths = self._find(reference)
        if len(paths) > 1:
            raise UsageError(f"'{reference}' names {len(paths)} runs, and only one can be resumed: give its id.")
        reading = self._read(paths[0])
        _refuse_other_conditions(reading.run, now)
        if reading.state == "finished":
            earlier = reading.run
            return self.begin(replace(now, resumed=earlier.id, dirty=earlier.dirty or now.dirty, rows=earlier.rows))
        return Journal.reopen(paths[0], now)

    def finish(self, reference: str) -> Path:
        """Writes the file of an interrupted run, with the rows it has, in place of its journal.

        Raises `UsageError` where it is finished, and `CannotMeasureError` where it goes on or has no row.
        """
        paths = self._find(reference)
        if len(paths) > 1:
            raise UsageError(f"'{reference}' names {len(paths)} runs, and one is finished at a time: give its id.")
        reading = self._read(paths[0])
        if reading.state == "finished":
            raise UsageError(f"Run {reading.run.id} is finished already: {paths[0]}.")
        with Journal.reopen(paths[0], reading.run) as opened:
            return opened.finish()

    def load(self, reference: str) -> Run:
        """The run of a path, an id, `latest`, `latest:<machine>` or `baseline:<machine>`, or of several with commas."""
        return self.read(reference).run

    def read(self, reference: str) -> Reading:
        """As `load`, with the run's state and what should be said about it.

        A baseline of several runs, and several references with commas between them, have the rows of all, oldest
        first, and the header of the newest run.
        """
        readings = [self._read(path) for path in self._find(reference)]
        if len(readings) == 1:
            notes = readings[0].notes + (self._passed_over(readings[0].run) if reference.startswith("latest") else ())
            return replace(readings[0], notes=notes)
        state = max((reading.state for reading in readings), key=("finished", "interrupted", "running").index)
        notes = tuple(note for reading in readings for note in reading.notes)
        runs = [reading.run for reading in readings]
        name = reference if reference.startswith("baseline:") else ",".join(run.id for run in runs)
        return Reading(_merged(name, runs), state, notes, tuple(readings))

    def gather(self, wanted: Callable[[RunInfo], bool], *, headers: bool = False) -> Gathered:
        """The wanted runs that are finished; with `headers` without their rows, which is much faster.

        Of a file that cannot be read only the machine and the name are known, as id. `left_out` says what is lost.
        """
        runs, lost = [], []
        for info in filter(wanted, self.runs()):
            if info.state == "unreadable":
                lost.append(info.note)
            elif info.state == "finished":
                try:
                    runs.append(_header(info.path)[0] if headers else self._read(info.path).run)
                except UnreadableError as error:
                    lost.append(str(error))
        return Gathered(tuple(runs), tuple(lost))

    def limits(self, machine: str) -> tuple[Limits | None, tuple[str, ...]]:
        """What the newest finished calibration of a machine found that it can do, None where there is none.

        With a sentence on each of its calibrations that cannot be read.
        """
        found = self.calibrations.gather(lambda info: info.machine == machine, headers=True)
        limits = (replace(run.limits, source=run.id) for run in reversed(found.runs) if run.limits.source)
        return next(limits, None), found.lost

    def runs(self) -> list[RunInfo]:
        """All stored runs, oldest first, from their metadata alone. Unreadable files are among them, with a note."""
        infos: list[RunInfo] = []
        paths: list[Path] = []
        for folder in self._folders():
            try:
                with legible(folder):
                    paths += [path for path in folder.iterdir() if path.suffix in (".parquet", ".jsonl")]
            except UnreadableError as error:
                infos.append(_unreadable(folder.name, folder.name, folder, error))
        finished = {path for path in paths if path.suffix == ".parquet"}
        shown = [path for path in paths if path in finished or path.with_suffix(".parquet") not in finished]
        infos += map(_info, sorted(shown))
        return sorted(infos, key=lambda info: (re.sub("[-:]", "", info.utc) or info.id, info.id))

    @property
    def _runs(self) -> Path:
        return self.root / self._kind

    def _folders(self) -> list[Path]:
        """Of each machine one. Raises `UnreadableError` where nobody may look, which is not the same as none."""
        with legible(self._runs):
            return sorted(path for path in self._runs.iterdir() if path.is_dir()) if self._runs.is_dir() else []

    def _passed_over(self, run: Run) -> tuple[str, ...]:
        newer = [i for i in self.runs() if i.state == "unreadable" and i.machine == run.machine.key and i.id > run.id]
        return left_out([info.note for info in newer], "newer file")

    def _read(self, path: Path) -> Reading:
        if path.suffix == ".jsonl":
            held = journal.read(path)
            return Reading(held.run, _state(path), (_TORN.format(path),) if held.torn else ())
        with legible(path), open_file(path) as file:
            return Reading(encoding.read_parquet(file), "finished")

    def _find(self, reference: str) -> list[Path]:
        if "," in reference:
            return list(dict.fromkeys(path for part in reference.split(",") for path in self._find(part.strip())))
        word, _, machine = reference.partition(":")
        if word == "latest":
            return [self._latest(machine)]
        if word == "baseline":
            return self._baseline(machine)
        path = Path(reference)
        if path.suffix in (".parquet", ".jsonl") or os.sep in reference:
            if path.is_file():
                kind = _kind_of(path)
                if kind and kind != self._kind:
                    raise self._other_kind(reference, kind)
                return [path]
            raise UsageError(
                f"{path} is {'a folder' if path.is_dir() else 'no file'}. `gemmgate runs` lists what is stored."
            )
        return [self._by_id(reference, "*")]

    def _by_id(self, run_id: str, machine: str) -> Path:
        infos = self.runs()
        named = [info for info in _named(run_id, infos) if machine in ("*", info.path.parent.name)]
        if not named:
            for kind in _NAMES:
                if _named(run_id, Store(self.root, kind).runs()):
                    raise self._other_kind(run_id, kind)
        if not infos:
            raise self._empty()
        if not named:
            raise unknown(_NAMES[self._kind][0], run_id, [info.id for info in infos])
        if len(ids := sorted({info.id for info in named})) > 1:
            raise UsageError(f"Several runs begin with '{run_id}': {', '.join(ids)}. Name one of them.")
        if len(named) > 1:
            paths = ", ".join(str(info.path) for info in named)
            raise UsageError(f"Several runs are called '{run_id}': give one as a path: {paths}.")
        return named[0].path

    def _latest(self, machine: str) -> Path:
        known = self.runs()
        infos = [info for info in known if info.rows]
        if not infos:
            for sentence in left_out([info.note for info in known if info.state == "unreadable"]):
                raise UnreadableError(f"No {_NAMES[self._kind][0]} in {self.root} can be read: {sentence}")
            raise self._empty()
        if machine and machine not in {info.machine for info in infos}:
            raise unknown("machine", machine, {info.machine for info in infos})
        return [info.path for info in infos if machine in ("", info.machine)][-1]

    def _baseline(self, machine: str) -> list[Path]:
        folder = self.root / "baselines"
        path = folder / f"{machine}.json"
        if not path.is_file():
            raise unknown("baseline", machine, [known.stem for known in folder.glob("*.json")])
        with legible(path):
            ids = json.loads(path.read_text(encoding="utf-8"))["runs"]
            if not isinstance(ids, list) or not ids:
                raise UnreadableError('it should be {"runs": [ids]} with one id or more.')
        return [self._by_id(str(run_id), machine) for run_id in ids]

    def _other_kind(self, reference: str, kind: Kind) -> OtherKindError:
        noun, command = _NAMES[kind]
        shows = "show" if kind == "runs" else f"{command} --show"
        return OtherKindError(
            f"{reference} is a {noun} and no {_NAMES[self._kind][0]}: `gemmgate {shows} {reference}` shows it."
        )

    def _empty(self) -> UsageError:
        noun, command = _NAMES[self._kind]
        return UsageError(
            f"No {noun} is stored in {self.root}: measure one with `gemmgate {command}`, "
            "or name another folder with --results."
        )


def left_out(lost: Sequence[str], noun: str = "file") -> tuple[str, ...]:
    """What to say once of files that cannot be read: how many there are, and what is wrong with the first."""
    if not lost:
        return ()
    if len(lost) == 1:
        return (f"1 {noun} is left out: {lost[0]}",)
    return (f"{len(lost)} {noun}s are left out; the first: {lost[0]}",)


_LEAST_OF_ID = 8
"""Letters of an id that name a run: those of its date."""
_TORN = "The last line of {} was torn by an interruption; its row was never reported as stored, and is left out."


def _named(run_id: str, infos: Sequence[RunInfo]) -> list[RunInfo]:
    """Those of that id, else those whose ids begin with it, if it is as long as a date."""
    exactly = [info for info in infos if info.id == run_id]
    return exactly or [info for info in infos if len(run_id) >= _LEAST_OF_ID and info.id.startswith(run_id)]


def _kind_of(path: Path) -> Kind | None:
    """By the command that made the run, wherever it lies now, or else by its folder; None where neither tells."""
    words: list[str] = []
    with suppress(UnreadableError):  # whoever reads its rows says so
        run = journal.read(path).run if path.suffix == ".jsonl" else _header(path)[0]
        words = [word for word in run.command.split() if not word.startswith("-")]
    folder = path.absolute().parent.parent.name
    by_folder = next((kind for kind in _NAMES if kind == folder), None)
    return _MADE_BY.get("".join(words[1:2]), by_folder)


def _merged(reference: str, runs: Sequence[Run]) -> Run:
    """One run of several. Which row of an id counts is for `compare` to say, as within one run."""
    last = max(runs, key=lambda run: run.utc)
    for run in runs:
        if (run.stack, run.method) != (last.stack, last.method):
            raise UsageError(
                f"'{reference}' mixes runs of different stacks or methods ({run.id} and {last.id}): "
                "name runs of one stack in it, or measure the older cases again."
            )
    rows = sorted((row for run in runs for row in run.rows), key=lambda row: row.utc)
    return replace(last, id=reference, dirty=any(run.dirty for run in runs), rows=tuple(rows))


def _refuse_other_conditions(earlier: Run, now: Run) -> None:
    pairs = {"machine": (earlier.machine.key, now.machine.key), "method": (earlier.method, now.method)}
    stacks = asdict(earlier.stack), asdict(now.stack)
    pairs |= {name: (value, stacks[1][name]) for name, value in stacks[0].items()}
    changed = [f"{name} {then or '?'}, now {new or '?'}" for name, (then, new) in pairs.items() if then != new]
    if changed:
        raise UsageError(
            f"Run {earlier.id} cannot be resumed here, because its rows would not compare: {'; '.join(changed)}. "
            "Resume it where it was measured, or start a new run."
        )


def _info(path: Path) -> RunInfo:
    state: State = "finished"
    note = ""
    try:
        if path.suffix == ".jsonl":
            held = journal.read(path)
            run, families, size = held.run, encoding.families(held.run.rows), len(held.run.rows)
            state, note = _state(path), _TORN.format(path) if held.torn else ""
        else:
            run, families, size = _header(path)
    except UnreadableError as error:
        return _unreadable(path.stem, path.parent.name, path, error)
    return RunInfo(run.id, run.machine.key, run.machine.model, run.utc, run.commit, families, size, state, path, note)


def _header(path: Path) -> tuple[Run, tuple[str, ...], int]:
    with legible(path), open_file(path) as file:
        return encoding.read_parquet_header(file)


def _unreadable(run_id: str, machine: str, path: Path, error: UnreadableError) -> RunInfo:
    return RunInfo(run_id, machine, "", "", "", (), 0, "unreadable", path, str(error))


def _state(path: Path) -> State:
    return "running" if journal.is_held(path) else "interrupted"
