"""Who holds a context on a board, as NVML lists it: read by a process that itself never touches CUDA."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pynvml

from gemmgate.suite.errors import CannotMeasureError

LEAVE_S = 30.0
"""By then a process that was killed has left the board; the driver takes a second at most."""
BLIND_S = 2.0
"""So long is waited where NVML fails: more than a driver takes, and it may answer again."""
_LOOK_S = 0.05


class Tenants:
    """The processes on the board of that name. Where NVML does not know the board, nobody is ever seen there."""

    def __init__(
        self,
        board: str,
        nvml: Any = pynvml,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._nvml = nvml
        self._now = now
        self._sleep = sleep
        self._handle: Any = None
        with suppress(nvml.NVMLError):
            nvml.nvmlInit()
            for index in range(nvml.nvmlDeviceGetCount()):
                with suppress(nvml.NVMLError):  # a board that is lost hides none of the others
                    handle = nvml.nvmlDeviceGetHandleByIndex(index)
                    if _board(nvml.nvmlDeviceGetUUID(handle)) == board:
                        self._handle = handle

    def pids(self) -> list[int] | None:
        """Their numbers, which in a container may be those of the host; None where NVML fails."""
        if self._handle is None:
            return []
        with suppress(self._nvml.NVMLError):
            return [process.pid for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)]
        return None

    def wait_until_gone(self) -> None:
        """Returns once nobody is there, or NVML cannot tell. Raises `CannotMeasureError` where somebody stays."""
        begin = self._now()
        while (pids := self.pids()) != []:
            if pids is None and self._now() >= begin + BLIND_S:
                return
            if pids and self._now() >= begin + LEAVE_S:
                listed = ", ".join(map(str, pids))
                raise CannotMeasureError(
                    f"The GPU admits one process at a time, and after {LEAVE_S:.0f} s process {listed} still holds it: "
                    "end that, or let several in with `nvidia-smi -c DEFAULT`."
                )
            self._sleep(_LOOK_S)


def _board(uuid: str | bytes) -> str:
    """The name of a board in records, from NVML's `GPU-<uuid>`."""
    text = uuid.decode() if isinstance(uuid, bytes) else uuid
    return hashlib.sha256(text.removeprefix("GPU-").encode()).hexdigest()[:12]
