"""A second pytest, in Triton's interpreter, that runs beside the tests of a module.

The interpreter is chosen before a kernel's module is imported, so it takes a process of its own. Begun with the module
and read by its last test, it costs a machine of two cores hardly any time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parent.parent
_COMMAND = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
_KNOWN = ("-W", "ignore:Conversion of an array:DeprecationWarning")  # Triton 3.6's interpreter


class Interpreted:
    """A pytest of these arguments, under way on one core."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process it belongs to
        self._process = subprocess.Popen(
            [sys.executable, *_COMMAND, *_KNOWN, *arguments],
            cwd=ROOT,
            env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def output(self) -> str:
        """All that it printed, once it has ended; its failure is the test's."""
        code = self._process.wait()
        self._output.seek(0)
        printed = self._output.read().decode(errors="replace")
        assert code == 0, printed
        return printed

    def close(self) -> None:
        """Ends it where nobody waited for it."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._output.close()
