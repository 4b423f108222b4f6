"""Why there is no number: an exception that is a row's status, and other exceptions read as one."""

from __future__ import annotations

import sys
import traceback
from typing import Any

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
    kind, first = type(error).__name__, text.splitlines()[0]
    # By name, so that a worker whose torch cannot be imported can say so.
    known = {
        "OutOfMemoryError": ("out_of_memory", "device_memory"),
        "MemoryError": ("out_of_memory", "host_memory"),
        "OutOfResources": ("unsupported", "tile_does_not_fit"),
        "ImpossibleTime": ("invalid", "impossible_time"),
    }
    status, reason = known.get(kind, ("error", kind))
    if "DefaultCPUAllocator" in text:  # torch has no exception of its own for it
        status, reason = known["MemoryError"]
    fatal = kind == "AcceleratorError" or any(sign in text for sign in _FATAL_SIGNS)
    return {
        "status": status,
        "reason": "illegal_access" if "illegal memory" in text else reason,
        "detail": first,
        "fatal": fatal,
    }
