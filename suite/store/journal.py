"""The journal of a run in the making, which becomes a Parquet file at its end."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from gemmgate.suite.again import go_on
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.records import Limits, Row, Run
from gemmgate.suite.store import encoding
from gemmgate.suite.store.files import explained, legible, open_file, sync_folder, try_lock, write_at, write_whole

LOCK_PATIENCE_S = 1.0
"""How long a writer waits for a lock: a reader that asks whether a run goes on holds it for a moment."""


class Journal:
    """Only one process can hold it. A `with` block closes it and never loses a row; `finish` ends it.

    Opened by `Store.begin` and `Store.resume`. `run` is its header, with the id that its rows carry. An interruption
    or a failed measurement that leaves the block is told how to go on, as a note.
    """

    def __init__(self, path: Path, file: int, run: Run) -> None:
        self.path = path
        self.run = run
        self._now = run
        self._file = file
        self._end = 0
        self._rows = list(run.rows)
        self._needed = False  # whether it holds what no other file holds

    @classmethod
    def begin(cls, path: Path, file: int, run: Run) -> Journal:
        """Writes the header and the rows that are carried over into a file that was just created."""
        journal = cls(path, file, run)
        try:
            journal._lock()
            journal._write(encoding.line(run.header()), _process(), *map(encoding.row_line, run.rows))
            with explained("create", path):
                sync_folder(path.parent)
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def reopen(cls, path: Path, now: Run) -> Journal:
        """Goes on where an interrupted process stopped; a torn last line is cut off."""
        with explained("open", path):
            journal = cls(path, os.open(path, os.O_RDWR), now)
        journal._needed = True
        try:
            journal._lock()
            held = read(path)
            journal.run, journal._end = replace(held.run, dirty=held.run.dirty or now.dirty), held.end
            journal._rows = list(held.run.rows)
            with explained("write", path):
                os.ftruncate(journal._file, held.end)
            journal._write(encoding.line({"dirty": journal.run.dirty}), _process())
        except BaseException:
            journal.close()
            raise
        return journal

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows so far, those of a resumed run included. What was measured again is there twice."""
        return tuple(self._rows)

    def append(self, row: Row) -> Row:
        """Returns the row as it is stored, once it is safe on disk.

        What the row leaves empty of `run_id`, `machine`, `board`, `commit` and `utc` is filled in.
        """
        (stored,) = self.extend([row])
        return stored

    def extend(self, rows: Sequence[Row]) -> list[Row]:
        """As `append` for each, at the cost of one."""
        settled = [
            encoding.settle(
                replace(
                    row,
                    run_id=row.run_id or self.run.id,
                    machine=row.machine or self.run.machine.key,
                    board=row.board or self._now.machine.board,
                    commit=row.commit or self._now.commit,
                    utc=row.utc or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                )
            )
            for row in rows
        ]
        encoding.to_table(self.run, settled)  # what no column can hold is refused now, not at the end
        self._write(*map(encoding.row_line, settled))
        self._rows.extend(settled)
        self._needed = True
        return settled

    def update(self, *, limits: Limits | None = None, seconds: Mapping[str, float] | None = None) -> None:
        """Replaces what the header says about the machine's limits, or about where the time went."""
        if limits is not None:
            self._write(encoding.line({"limits": asdict(limits)}))
            self.run = replace(self.run, limits=limits)
        if seconds is not None:
            self._write(encoding.line({"seconds": dict(seconds)}))
            self.run = replace(self.run, seconds=dict(seconds))

    def finish(self) -> Path:
        """Writes the Parquet file, removes the journal and closes. If that fails, the journal stays with all rows."""
        if not self._rows:
            self.close()
            raise CannotMeasureError(
                f"Run {self.run.id} measured nothing, so nothing was stored: not one case fitted into its time. "
                "Give it more --seconds, or fewer implementations with --impl."
            )
        self._needed = True
        final = self.path.with_suffix(".parquet")
        with explained("write", final, self._go_on()):
            write_whole(final, encoding.write_parquet(replace(self.run, rows=self.rows)))
            self.path.unlink()
            sync_folder(final.parent)
        self.close()
        return final

    def close(self) -> None:
        """Lets go of the journal and leaves it in place; one that gained no row is removed."""
        if self._file < 0:
            return
        if not self._needed:
            with suppress(OSError):
                self.path.unlink()
        os.close(self._file)
        self._file = -1

    @property
    def go_on(self) -> str:
        """The command that measures what it lacks; empty where its command cannot be resumed."""
        return go_on(self.run, self.path.parents[2])

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt | CannotMeasureError) and self._needed:
            how = f": `{self.go_on}` goes on" if self.go_on else f" in {self.path}"
            error.add_note(f"{len(self._rows)} rows are stored{how}.")
        self.close()

    def _lock(self) -> None:
        deadline = time.monotonic() + LOCK_PATIENCE_S
        with explained("lock", self.path):
            while not try_lock(self._file, fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    holder = read(self.path).process
                    raise CannotMeasureError(
                        f"Run {self.path.stem} is being written by process {holder.get('pid', '?')} on "
                        f"{holder.get('host', '?')}. Wait until it ends, or stop it, then resume."
                    )
                time.sleep(0.02)
        if not self.path.exists():
            raise CannotMeasureError(f"Run {self.path.stem} was finished by another process just now. Resume it again.")

    def _write(self, *lines: bytes) -> None:
        data = b"".join(lines)
        with explained("write", self.path, self._go_on() if self._needed else ""):
            write_at(self._file, data, self._end)
        self._end += len(data)

    def _go_on(self) -> str:
        safe = f"its {len(self._rows)} rows are safe in {self.path}."
        return f", then go on with `{self.go_on}`: {safe}" if self.go_on else f"; {safe}"


def read(path: Path) -> encoding.Journalled:
    """Raises `UnreadableError` with the file's name."""
    with legible(path), open_file(path) as file:
        return encoding.read_journal(file.read())


def is_held(path: Path) -> bool:
    """Whether a live process writes it."""
    with legible(path), open_file(path) as file:
        return not try_lock(file.fileno(), fcntl.LOCK_SH)


def _process() -> bytes:
    return encoding.line({"process": {"pid": os.getpid(), "host": socket.gethostname()}})
