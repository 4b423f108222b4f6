"""One question to the gate, as a program of its own: did the second of two commits make this case slower?"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gemmgate.suite.errors import PASS, REGRESSION, UNJUDGED, USAGE, CannotMeasureError, UsageError

Answer = Literal["no", "yes", "unclear"]
_ANSWERS: Mapping[int, Answer] = {PASS: "no", REGRESSION: "yes", UNJUDGED: "unclear"}


@dataclass(frozen=True)
class Asked:
    """The gate's answer to whether the head is slower, wrong or incomplete, with the last line it said."""

    answer: Answer
    said: str


def ask_gate(root: Path, options: Sequence[str]) -> Asked:
    """Runs `gemmgate gate` with these options in the checkout at `root`. Its exit code is the answer.

    Raises `UsageError` with the gate's own words where the question makes no sense, and `CannotMeasureError` where it
    ends in another way.
    """
    command = [sys.executable, "-m", "gemmgate", "gate", *options]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()  # a verdict, else why there is none
    said = lines[-1].strip() if lines else "nothing"
    if done.returncode == USAGE:
        raise UsageError(said.removeprefix("gemmgate: "))
    if done.returncode not in _ANSWERS:
        raise CannotMeasureError(f"`gemmgate gate {' '.join(options)}` ended with {done.returncode}: {said}")
    return Asked(_ANSWERS[done.returncode], said)
