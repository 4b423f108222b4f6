"""A checkout with one known edit, so that finding it can be tried: a copy in a temporary folder, no git needed."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from gemmgate.suite.errors import UsageError


@dataclass(frozen=True)
class Edit:
    """A change of one kernel's source: what `pattern` finds, exactly once, becomes `replacement`."""

    implementation: str
    file: str
    pattern: str
    replacement: str
    what: str

    def applied(self, source: str) -> str:
        """The edited text. Raises `UsageError` where there is not exactly one place for it."""
        edited, count = re.subn(self.pattern, self.replacement, source, flags=re.MULTILINE)
        if count != 1:
            raise UsageError(
                f"{self.file} has {count or 'no'} lines that match '{self.pattern}', and the known edit ({self.what}) "
                "needs one: change the pattern in suite/edits.py with the kernel."
            )
        return edited


EXTRA_TRIP = Edit(
    implementation="triton_split_k",
    file="dense_splitk/triton_split_k.py",
    pattern=r"^(?P<indent> +)for k_tile in range\((?P<first>\w+), (?P<last>\w+)\):$",
    # Past the end of K every load is masked, so that the result has the same bits.
    replacement=(
        r"\g<indent>for k_trip in range(\g<first>, \g<last> + 1):\n"
        r"\g<indent>    k_tile = tl.where(k_trip < \g<last>, k_trip, tl.cdiv(K, BK))"
    ),
    what="one trip more of the loop over K",
)
"""What an off-by-one in a loop's bound costs when masks make up for it: slower, and never wrong."""


def edited_overlay(source: Path, folder: Path, edit: Edit) -> Path:
    """Copies the package below `source`, with the edit, into `folder`; returns the folder, to start workers on.

    Raises `UsageError` where the edit has no place, before anything is copied.
    """
    package = source / "gemmgate"
    path = package / "kernels" / edit.file
    if not path.is_file():
        raise UsageError(f"{path} does not exist, so the known edit ({edit.what}) cannot be made.")
    edited = edit.applied(path.read_text(encoding="utf-8"))
    # Links to folders become folders: this is a checkout of its own.
    shutil.copytree(package, folder / "gemmgate", ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    (folder / "gemmgate" / "kernels" / edit.file).write_text(edited, encoding="utf-8")
    return folder
