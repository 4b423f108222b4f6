"""The results folder: what is stored, what a reference means, and where a new run goes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
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

    def limits(self, machine: str) -> Limits | None:
        """What the newest finished calibration of a machine found that it can do; None where there is none."""
        found = [info for info in self.calibrations.runs() if info.machine == machine and info.state == "finished"]
        for info in reversed(found):
            run = _header(info.path)
            if run.limits.source:
                return replace(run.limits, source=run.id)
        return None

    def runs(self) -> list[RunInfo]:
        """All stored runs, oldest first, from their metadata alone. Unreadable files are among them, with a note."""
        paths = [path for path in self._runs.glob("*/*") if path.suffix in (".parquet", ".jsonl")]
        finished = {path for path in paths if path.suffix == ".parquet"}
        shown = [path for path in paths if path in finished or path.with_suffix(".parquet") not in finished]
        return sorted(map(_info, sorted(shown)), key=lambda info: (re.sub("[-:]", "", info.utc) or info.id, info.id))

    @property
    def _runs(self) -> Path:
        return self.root / self._kind

    def _passed_over(self, run: Run) -> tuple[str, ...]:
        newer = [i for i in self.runs() if i.state == "unreadable" and i.machine == run.machine.key and i.id > run.id]
        return tuple(f"A newer file cannot be read: {info.note}" for info in newer)

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
        found = [i.path for i in infos if i.id == run_id and machine in ("*", i.path.parent.name)]
        if not found:
            for kind in _NAMES:
                if any(info.id == run_id for info in Store(self.root, kind).runs()):
                    raise self._other_kind(run_id, kind)
        if not infos:
            raise self._empty()
        if not found:
            raise unknown(_NAMES[self._kind][0], run_id, [info.id for info in infos])
        if len(found) > 1:
            raise UsageError(f"Several runs are called '{run_id}': give one as a path: {', '.join(map(str, found))}.")
        return found[0]

    def _latest(self, machine: str) -> Path:
        infos = [info for info in self.runs() if info.rows]
        if not infos:
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


_TORN = "The last line of {} was torn by an interruption; its row was never reported as stored, and is left out."


def _kind_of(path: Path) -> Kind | None:
    """By the command that made the run, wherever it lies now, or else by its folder; None where neither tells."""
    words: list[str] = []
    with suppress(UnreadableError):  # whoever reads its rows says so
        words = [word for word in _header(path).command.split() if not word.startswith("-")]
    folder = path.absolute().parent.parent.name
    by_folder = next((kind for kind in _NAMES if kind == folder), None)
    return _MADE_BY.get("".join(words[1:2]), by_folder)


def _header(path: Path) -> Run:
    if path.suffix == ".jsonl":
        return journal.read(path).run
    with legible(path), open_file(path) as file:
        return encoding.read_parquet_header(file)[0]


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
            with legible(path), open_file(path) as file:
                run, families, size = encoding.read_parquet_header(file)
    except UnreadableError as error:
        return RunInfo(path.stem, path.parent.name, "", "", "", (), 0, "unreadable", path, str(error))
    return RunInfo(run.id, run.machine.key, run.machine.model, run.utc, run.commit, families, size, state, path, note)


def _state(path: Path) -> State:
    return "running" if journal.is_held(path) else "interrupted"
