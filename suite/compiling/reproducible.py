"""The same code from the same kernel: assemblers that are started see their memory at the same addresses each time."""

from __future__ import annotations

import ctypes
import sys

_ADDR_NO_RANDOMIZE = 0x0040000
_ASK = 0xFFFFFFFF
"""Of Linux's `personality(2)`."""


def fix_addresses() -> bool:
    """Has what this process starts from now on run without random addresses; whether that is allowed here.

    NVIDIA's assembler for Blackwell, of CUDA 13.1, names registers by the order of addresses: from the same PTX it
    makes one binary or another, with other addresses each time that it runs.
    """
    if sys.platform != "linux":
        return False
    personality = ctypes.CDLL(None).personality
    personality.argtypes = [ctypes.c_ulong]
    now: int = personality(_ASK)
    return now != -1 and personality(now | _ADDR_NO_RANDOMIZE) != -1
