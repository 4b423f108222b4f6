"""The machine code inside a cubin, and which instructions it consists of. Standard library only."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
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
_NO_EFFECT = ("NOP", "")
"""What counts for nothing; the disassembler lists no opcode for some padding."""
_WORD_BYTES = 16
"""Of an instruction, on all architectures since Volta."""


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

    All are disassembled at once, each instruction that they share a single time: starting NVIDIA's disassembler takes
    as long as some 20,000 instructions. Raises CannotMeasureError where it fails.
    """
    if not codes:
        return []
    model = f"SM{arch.removeprefix('sm_')}" + ("a" if int(arch.removeprefix("sm_")) >= 90 else "")
    once = distinct(codes)
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(b"".join(once))
        file.flush()
        command = [str(disassembler), "--binary", model, "--no-dataflow", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotMeasureError(f"The disassembler cannot read code for {arch}: {done.stderr.strip()[-300:]}.")
    return count_listed(done.stdout, once, codes)


def distinct(codes: Iterable[bytes]) -> list[bytes]:
    """The instructions of all codes, each once."""
    return list(dict.fromkeys(word for code in codes for word in _words(code)))


def count_listed(listing: str, once: Sequence[bytes], codes: Iterable[bytes]) -> list[dict[str, int]]:
    """The counts of each code, from a listing of their distinct instructions: without dataflow each stands alone."""
    opcodes = {once[int(address, 16) // _WORD_BYTES]: opcode.rstrip(";") for address, opcode in _LINE.findall(listing)}
    found = []
    for code in codes:
        counts: Counter[str] = Counter()
        for word in _words(code):
            counts.update(_counted_as(opcodes.get(word, "")))
        found.append({name: counts[name] for name in ("all", *GROUPS) if counts[name] or name in _ALWAYS})
    return found


def _words(code: bytes) -> Iterator[bytes]:
    return (code[at : at + _WORD_BYTES] for at in range(0, len(code), _WORD_BYTES))


@cache
def _counted_as(opcode: str) -> tuple[str, ...]:
    """Groups of an opcode; there are few of them, each many times."""
    return (
        () if opcode in _NO_EFFECT else ("all", *(group for group, pattern in _GROUP.items() if pattern.match(opcode)))
    )


def tensor_core(counts: Mapping[str, int]) -> str:
    """The newest kind of tensor-core instruction among them; empty without any."""
    return next((name for name in reversed(TENSOR_CORES) if counts.get(name)), "")
