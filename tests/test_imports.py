"""Judging old results needs no torch, and importing any of it where torch is installed does not load it.

GEMMGATE_TEST_PYTHONS names further interpreters, separated as in PATH, with numpy and scipy and without torch.
`.ci/run` prepares one for each Python that it finds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PURE = "compare records statistics gate catalog cases errors report".split()
IMPORT = "import " + ", ".join(f"gemmgate.suite.{name}" for name in PURE)
OTHERS = [path for path in os.environ.get("GEMMGATE_TEST_PYTHONS", "").split(os.pathsep) if path]


def run(python: str, code: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter at the root of the checkout."""
    return subprocess.run([python, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("python", [sys.executable, *OTHERS])
def test_pure_half_imports_without_torch(python: str) -> None:
    """Everything between a stored run and a verdict imports where torch and Triton do not exist."""
    version = run(python, "import sys; print(sys.version_info[:2] >= (3, 11))")
    assert version.stdout.strip() == "True", f"{python} is no Python 3.11 or newer: {version.stderr}"
    result = run(
        python, f"import sys; sys.modules['torch'] = sys.modules['triton'] = None; {IMPORT}; print('imported')"
    )
    assert result.stdout.strip() == "imported", result.stderr


def test_pure_half_and_families_leave_torch_alone() -> None:
    """Importing the pure half and finding all families loads no torch, no Triton and no child-process machinery."""
    heavy = "{name.partition('.')[0] for name in sys.modules} & {'torch', 'triton', 'pyarrow', 'multiprocessing'}"
    result = run(sys.executable, f"import sys; {IMPORT}; gemmgate.suite.catalog.find(); print(sorted({heavy}))")
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


def test_command_line_leaves_torch_alone() -> None:
    """The parent process, which is the command line, loads no torch: only workers do."""
    code = "import sys, gemmgate.suite.cli; print(sorted({'torch', 'triton'} & set(sys.modules)))"
    result = run(sys.executable, code)
    assert result.stdout.strip() == "[]", result.stdout + result.stderr
