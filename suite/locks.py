"""One gate at a time on a board: an advisory lock that ends with its process."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gemmgate.suite.errors import CannotMeasureError

_LOOK_S = 0.5


def lock_folder() -> Path:
    """A folder that all users of the machine share: `GEMMGATE_LOCKS`, else /run/lock where that is writable."""
    asked = os.environ.get("GEMMGATE_LOCKS")
    shared = Path("/run/lock")
    return Path(asked) if asked else shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())


@contextmanager
def board_lock(board: str, *, wait: bool, say: Callable[[str], object]) -> Iterator[None]:
    """Holds the board of that hash. Another holder is waited for, and `say` is told so once.

    Raises `CannotMeasureError` without `wait`. In containers that do not share the folder nobody sees the other:
    rows then carry the mark `shared`.
    """
    path = lock_folder() / f"gemmgate-{board or 'cpu'}.lock"
    file = _opened(path)
    try:
        told = False
        while not _taken(file):
            holder = os.pread(file, 64, 0).decode(errors="replace").strip() or "another process"
            if not wait:
                what = f"Board {board}" if board else "This CPU"
                raise CannotMeasureError(
                    f"{what} is being gated by process {holder} ({path} is locked): wait until it ends, "
                    "or leave out --no-wait to have this done here."
                )
            if not told:
                say(f"waits for process {holder}, which gates on the same board ({path}).")
                told = True
            time.sleep(_LOOK_S)
        with suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)


def _opened(path: Path) -> int:
    """For writing where we may; a lock that another user made is only read, which is enough to lock it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError:
        with suppress(OSError):
            return os.open(path, os.O_RDONLY)
        raise CannotMeasureError(
            f"The lock {path} can neither be made nor read. Name a folder for locks in GEMMGATE_LOCKS."
        ) from None


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
