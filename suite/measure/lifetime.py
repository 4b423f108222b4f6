"""How long a worker lives: no longer than who started it, and what it starts itself no longer than it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Ends this process when its parent ends, however that happens, also inside a kernel that hangs.

    Linux sends the signal itself; elsewhere, and for a parent that ended before we asked, a thread looks.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=look, daemon=True, name="parent-watch").start()


def take_children_along() -> None:
    """Whatever this process starts ends with it: a shell waits for its end, then ends its process group."""
    if os.getpgrp() != os.getpid():  # started by hand: the group is not ours
        return
    waiting, held = os.pipe()
    subprocess.Popen(["/bin/sh", "-c", "read _; kill -KILL 0"], stdin=waiting, stdout=subprocess.DEVNULL)
    os.close(waiting)
    os.register_at_fork(after_in_child=partial(os.close, held))
