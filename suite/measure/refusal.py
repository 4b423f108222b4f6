"""Why there is no number: an exception that is a row's status, and other exceptions read as one."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any

_HARNESS = Path(__file__).resolve().parents[1]
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()
_INSTALLED = {"site-packages", "dist-packages"}
_MOST_CHARACTERS = 300

_FATAL_SIGNS = (
    "illegal memory access",
    "device-side assert",
    "unspecified launch failure",
    "misaligned address",
    "illegal instruction",
)


class Refused(Exception):
    """An outcome that is a row's status rather than a result, with its reason code, a sentence and perhaps facts."""

    def __init__(self, status: str, reason: str, detail: str, **facts: float) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.facts = facts


def status_of(error: Exception) -> dict[str, Any]:
    """`status`, `reason`, `detail` and `fatal` of an exception; the traceback goes to standard error.

    `fatal` says that the process cannot be used further, as after an illegal access by a kernel.
    """
    text = str(error).strip() or type(error).__name__
    if isinstance(error, Refused):
        return {"status": error.status, "reason": error.reason, "detail": text, "fatal": False, **error.facts}
    traceback.print_exception(error, file=sys.stderr)
    kind = type(error).__name__
    # By name, so that a worker whose torch cannot be imported can say so.
    known = {
        "OutOfMemoryError": ("out_of_memory", "device_memory"),
        "MemoryError": ("out_of_memory", "host_memory"),
        "OutOfResources": ("unsupported", "tile_does_not_fit"),
        "ImpossibleTime": ("invalid", "impossible_time"),
        "FamilyError": ("error", "family"),
    }
    status, reason = known.get(kind, ("error", kind))
    if "DefaultCPUAllocator" in text:  # torch has no exception of its own for it
        status, reason = known["MemoryError"]
    fatal = kind == "AcceleratorError" or any(sign in text for sign in _FATAL_SIGNS)
    return {
        "status": status,
        "reason": "illegal_access" if "illegal memory" in text else reason,
        "detail": one_line(text) + (_place(error) if status == "error" else ""),
        "fatal": fatal,
    }


def one_line(text: str) -> str:
    """The first paragraph of a message in one line; of CUDA's the first line, for the rest never differs."""
    paragraph = text.strip().split("\n\n")[0]
    if paragraph.startswith("CUDA error"):
        paragraph = paragraph.splitlines()[0]
    line = " ".join(paragraph.split())
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]} ..."


def _place(error: BaseException) -> str:
    """Of the error, or of what it was raised from."""
    return own_place(error) or (own_place(error.__cause__) if error.__cause__ else "")


def own_place(error: BaseException) -> str:
    """` (my.py, line 7)`: the innermost frame of neither the harness nor anything installed, if there is one."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_file() and not _is_foreign(path.resolve()):
            return f" ({path.name}, line {frame.lineno})"
    return ""


def _is_foreign(path: Path) -> bool:
    return any(path.is_relative_to(root) for root in (_HARNESS, _STANDARD_LIBRARY)) or bool(_INSTALLED & {*path.parts})
