"""The machine code inside a cubin, and which instructions it consists of. Standard library only."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path

from gemmgate.suite.compiling.instructions import TENSOR_CORES
from gemmgate.suite.errors import CannotMeasureError

GROUPS: Mapping[str, str] = {
    "mma": r"[HIQDBO]MMA\b",
    "wgmma": r"[HIQDB]GMMA\b",
    "tcgen05": r"UTC[A-Z0-9]*MMA",
    "load_16_bytes": r"(?:LDG|LDGSTS)\b(?:\.\w+)*\.(?:128|256)\b",
    "load_narrow": r"(?:LDG|LDGSTS)\b(?!(?:\.\w+)*\.(?:128|256)\b)",
    "tma": r"U(?:TMALDG|TMASTG|TMAREDG|BLKCP)\b",
    "load_local": r"LDL\b",
    "store_local": r"STL\b",
    "barrier": r"(?:BAR|SYNCS|UCGABAR_ARV|UCGABAR_WAIT)\b",
}
"""What is counted: a group's name, and how the opcodes of NVIDIA's disassembler begin that belong to it.

A load counts as one of 16 bytes a thread where it fetches 16 or 32, and as narrow where it fetches less."""
_ALWAYS = ("all", "load_narrow")
"""Counted also where there are none: rows of before the group was known lack it, and so say nothing of it."""

_GROUP = {name: re.compile(pattern) for name, pattern in GROUPS.items()}
_LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\S*)", re.MULTILINE)
_NO_EFFECT = ("NOP",)


def instructions(cubin: bytes) -> bytes:
    """The sections `.text*` of a 64-bit little-endian ELF file, joined. Raises ValueError for another file."""
    if cubin[:6] != b"\x7fELF\x02\x01":
        raise ValueError("This is no cubin: it does not begin as a 64-bit little-endian ELF file does.")
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + size * i) for i in range(count)]
    start = headers[names][4]
    return b"".join(
        cubin[offset : offset + length]
        for name, _, _, _, offset, length in headers
        if cubin[start + name :].startswith(b".text")
    )


def count_instructions(codes: Sequence[bytes], arch: str, disassembler: Path) -> list[dict[str, int]]:
    """Instructions by group, and `all` of them, of each code for `sm_90` and the like.

    All are disassembled at once: starting NVIDIA's disassembler takes longer than the work on any one of them.
    Raises CannotMeasureError where it fails.
    """
    if not codes:
        return []
    model = f"SM{arch.removeprefix('sm_')}" + ("a" if int(arch.removeprefix("sm_")) >= 90 else "")
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(b"".join(codes))
        file.flush()
        command = [str(disassembler), "--binary", model, "--no-dataflow", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotMeasureError(f"The disassembler cannot read code for {arch}: {done.stderr.strip()[-300:]}.")
    return split_counts(done.stdout, [len(code) for code in codes])


def split_counts(listing: str, lengths: Sequence[int]) -> list[dict[str, int]]:
    """The counts of pieces of code of so many bytes each, which were listed as one."""
    starts = [0, *accumulate(lengths)][:-1]
    found: list[Counter[str]] = [Counter() for _ in lengths]
    for address, opcode in _LINE.findall(listing):
        opcode = opcode.rstrip(";")
        if opcode in _NO_EFFECT:
            continue
        counts = found[bisect_right(starts, int(address, 16)) - 1]
        counts.update(_counted_as(opcode))
    return [{name: counts[name] for name in ("all", *GROUPS) if counts[name] or name in _ALWAYS} for counts in found]


@cache
def _counted_as(opcode: str) -> tuple[str, ...]:
    """Groups of an opcode; there are few of them, each many times."""
    return ("all", *(group for group, pattern in _GROUP.items() if pattern.match(opcode)))


def tensor_core(counts: Mapping[str, int]) -> str:
    """The newest kind of tensor-core instruction among them; empty without any."""
    return next((name for name in reversed(TENSOR_CORES) if counts.get(name)), "")
