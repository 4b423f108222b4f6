"""Files that survive a kill and a loss of power, and errors that say which file and what to do."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from gemmgate.suite.errors import USAGE, GemmgateError, UnreadableError


class UnwritableError(GemmgateError):
    """A disk is full, a folder read-only or a file in the way: what was measured so far stays."""

    exit_code = USAGE


@contextmanager
def explained(doing: str, path: Path, then: str = "") -> Iterator[None]:
    """Turns the operating system's error into what happened, where, and what to do next.

    `then` says what is safe and how to go on, once what the error asks for is done.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "Free some space"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            advice = "Make it writable"
        elif error.errno in (errno.EEXIST, errno.ENOTDIR):
            advice = "Move what stands there out of the way"
        else:
            advice = "Repair that"
        rest = then or ", or name another folder with --results."
        raise UnwritableError(f"Cannot {doing} {path}: {error.strerror or error}. {advice}{rest}") from error


@contextmanager
def legible(path: Path) -> Iterator[None]:
    """Says which file could not be read, why, and what to do next."""
    try:
        yield
    except UnreadableError as error:
        raise UnreadableError(f"{path} cannot be read: {error}") from error
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno:
            raise UnreadableError(f"{path} cannot be read: {error.strerror}. Name a file that you may read.") from error
        raise UnreadableError(
            f"{path} is truncated or damaged ({str(error).partition(chr(10))[0].rstrip('.')}). "
            "Restore it from version control, or delete it."
        ) from error


def open_file(path: Path) -> BinaryIO:
    """For reading. Raises `UnreadableError` for what is no file: opening a pipe would wait for a writer for ever."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise UnreadableError("it is a folder, pipe or device, and no file. Move it somewhere else.")
    return os.fdopen(file, "rb")


def try_lock(file: int, how: int) -> bool:
    """Advisory, and gone with its process: `flock` leaves nothing to clean up after a kill."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def make_folders(folder: Path) -> None:
    """As `mkdir -p`, each on disk before the next."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable: new, renamed or removed files."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def write_at(file: int, content: bytes, start: int) -> None:
    """On disk when it returns. If it fails, the file ends at `start` again, so that no half line is left."""
    done = 0
    try:
        while done < len(content):
            done += os.pwrite(file, content[done:], start + done)
        os.fsync(file)
    except BaseException:
        with suppress(OSError):
            os.ftruncate(file, start)
        raise


def write_whole(path: Path, content: bytes, *, anew: bool = False) -> None:
    """A file, all of it or none: written under a temporary name beside its place, then renamed.

    One that is there already is an error, unless it is to be written `anew`.
    """
    if path.exists() and not anew:
        raise FileExistsError(errno.EEXIST, "A file of this name exists already", str(path))
    _write_through(path.with_name(path.name + ".tmp"), os.O_TRUNC, path, content)


def write_named(path: Path, text: str) -> None:
    """A file that somebody named, in place of an older one: all of it or none, with the older one's mode.

    Links, pipes and devices stay and are written to, as is a file in a folder that takes no others.
    """
    if path.is_symlink() or (path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK))):
        path.write_text(text, encoding="utf-8")
        return
    mode = None
    if path.exists():
        with path.open("r+b"):  # what may not be written may not be replaced
            mode = stat.S_IMODE(path.stat().st_mode)
    beside = path.with_name(f".{secrets.token_hex(8)}.tmp")  # what else lies here is not ours
    _write_through(beside, os.O_EXCL, path, text.encode(), mode)


def _write_through(temporary: Path, how: int, path: Path, content: bytes, mode: int | None = None) -> None:
    """Writes a temporary file, opened that way, and renames it."""
    file = os.open(temporary, os.O_CREAT | os.O_WRONLY | how, 0o666)
    try:
        try:
            if mode is not None:
                os.fchmod(file, mode)
            write_at(file, content, 0)
        finally:
            os.close(file)
        temporary.rename(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)
