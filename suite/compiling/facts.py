"""What is remembered of earlier compilations, by content: a folder that may be deleted at any time.

triton/             Triton's own cache
kernels/<hash>      what a compilation said, by Triton's hash of source, options, target and version
code/<sha>          machine code whose instructions are still to be counted
counts/<sha>        instructions by group
requests/<key>      all rows of a request, by everything that they depend on
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gemmgate.suite.compiling.cubin import GROUPS, count_instructions, instructions

_FORM = 2
"""Of what stands in this folder: another one is not read."""


class FactStore:
    """Several processes may use one folder: a file is written whole or not at all."""

    def __init__(self, root: Path) -> None:
        self.root = root / f"form-{_FORM}"
        self.triton = self.root / "triton"

    def read_kernel(self, key: str) -> dict[str, Any] | None:
        return self._read("kernels", key)

    def write_kernel(self, key: str, facts: Mapping[str, Any], binary: bytes, *, countable: bool) -> dict[str, Any]:
        """The facts with the hash of the binary's code, stored under `key`, and the code where it can be counted."""
        code = instructions(binary)
        sha = hashlib.sha256(code).hexdigest()
        known = {**facts, "cubin_sha": sha, "cubin_bytes": len(binary), "countable": countable}
        if countable and self._read("counts", _counts_key(sha)) is None:
            self._write("code", sha, code)
        self._write("kernels", key, json.dumps(known).encode())
        return known

    def counts(self, shas: Iterable[str], arch: str, disassembler: Path) -> dict[str, dict[str, int]]:
        """Instructions by group of each code, `shas` being those of one architecture."""
        found = {sha: self._read("counts", _counts_key(sha)) for sha in dict.fromkeys(shas)}
        new = [sha for sha, counts in found.items() if counts is None]
        made = count_instructions([(self._folder("code") / sha).read_bytes() for sha in new], arch, disassembler)
        for sha, counts in zip(new, made, strict=True):
            with suppress(OSError):  # it is counted again the next time
                self._write("counts", _counts_key(sha), json.dumps(counts).encode())
            found[sha] = counts
        return {sha: counts for sha, counts in found.items() if counts is not None}

    def read_request(self, key: str) -> list[dict[str, Any]] | None:
        return self._read("requests", key)

    def write_request(self, key: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Where there is no space for it, it is compiled again the next time."""
        with suppress(OSError):
            self._write("requests", key, json.dumps(rows).encode())

    def _folder(self, kind: str) -> Path:
        return self.root / kind

    def _read(self, kind: str, key: str) -> Any:
        with suppress(OSError, ValueError):
            return json.loads((self._folder(kind) / key).read_bytes())
        return None

    def _write(self, kind: str, key: str, content: bytes) -> None:
        folder = self._folder(kind)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{key}.{os.getpid()}"
        try:
            temporary.write_bytes(content)
            temporary.replace(folder / key)
        except BaseException:  # a full disk must not get fuller
            temporary.unlink(missing_ok=True)
            raise


def _counts_key(sha: str) -> str:
    """Counts of other groups are other counts."""
    groups = hashlib.sha256(json.dumps(GROUPS, sort_keys=True).encode()).hexdigest()
    return f"{sha}-{groups[:8]}"
