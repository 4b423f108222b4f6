"""Instructions of a listing are counted by group, and belong to the piece of code that they stand in."""

from __future__ import annotations

import struct

import pytest

from gemmgate.suite.compiling.cubin import count_listed, distinct, instructions, tensor_core

LISTING = """\
\t.headerflags\t@"EF_CUDA_64BIT_ADDRESS EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   LDG.E.128.CONSTANT R4, desc[UR6][R2.64] ;
        /*0020*/              @!P0 LDGSTS.E.BYPASS.LTC128B.128 [R3], desc[UR6][R2.64] ;
        /*0030*/                   LDG.E.64 R4, desc[UR6][R2.64] ;
        /*0040*/                   HMMA.16816.F32.BF16 R8, R4, R12, R8 ;
        /*0050*/             @!UP1 UTMALDG.2D [UR8], [UR4] ;
        /*0060*/                   EXIT ;
        /*0070*/                   NOP;
        /*0080*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], R24 ;
        /*0090*/                   STL [R1], R2 ;
        /*00a0*/                   LDL R2, [R1] ;
        /*00b0*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*00c0*/                   UTCHMMA gdesc[UR10], gdesc[UR12], tmem[UR8], tmem[UR14], idesc[UR15], UP0 ;
        /*00d0*/                   LDG.E.ENL2.256 R4, R8, desc[UR6][R2.64] ;
"""


WORDS = [bytes([number]) * 16 for number in range(14)]
"""Fourteen instructions, by their lines of the listing."""


def test_instructions_are_counted_where_they_stand() -> None:
    """Two pieces of code have counts of their own; padding counts for nothing, predicates are looked through."""
    codes = [b"".join(WORDS[:8]), b"".join(WORDS[8:])]
    assert distinct(codes) == WORDS
    first, second = count_listed(LISTING, WORDS, codes)
    assert first == {"all": 7, "mma": 1, "load_16_bytes": 2, "load_narrow": 1, "tma": 1}
    assert second == {
        "all": 6,
        "wgmma": 1,
        "tcgen05": 1,
        "load_16_bytes": 1,
        "load_narrow": 0,
        "load_local": 1,
        "store_local": 1,
        "barrier": 1,
    }


def test_an_instruction_that_is_listed_once_counts_wherever_it_stands() -> None:
    """Loads and exits of two codes are listed once and counted as often as they stand, and padding for nothing."""
    load, leave, padding = WORDS[1], WORDS[6], bytes(16)[:15] + b"\xff"
    codes = [load * 3 + leave + padding * 2, leave + load]
    once = distinct(codes)
    assert once == [load, leave, padding]
    listing = "\n        /*0000*/   LDG.E.128 R4, [R2] ;\n        /*0010*/   EXIT ;\n"
    assert count_listed(listing, once, codes) == [
        {"all": 4, "load_16_bytes": 3, "load_narrow": 0},
        {"all": 2, "load_16_bytes": 1, "load_narrow": 0},
    ]


@pytest.mark.parametrize(
    ("counts", "kind"), [({}, ""), ({"mma": 3}, "mma"), ({"mma": 3, "wgmma": 1}, "wgmma"), ({"tcgen05": 1}, "tcgen05")]
)
def test_newest_tensor_core_instruction_counts(counts: dict[str, int], kind: str) -> None:
    """A kernel that uses several kinds is named by the newest."""
    assert tensor_core(counts) == kind


def elf(sections: dict[str, bytes]) -> bytes:
    """A 64-bit little-endian ELF file of nothing but sections."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    contents = [*sections.values(), names]
    offset, headers = 64, []
    for name, content in zip((*sections, ".shstrtab"), contents, strict=True):
        headers.append(struct.pack("<IIQQQQ", names.index(name.encode()), 1, 0, 0, offset, len(content)) + bytes(24))
        offset += len(content)
    head = b"\x7fELF\x02\x01".ljust(0x28, b"\0") + struct.pack("<Q", offset)
    head = head.ljust(0x3A, b"\0") + struct.pack("<HHH", 64, len(headers), len(headers) - 1)
    return head.ljust(64, b"\0") + b"".join(contents) + b"".join(headers)


def test_instructions_of_a_file_are_its_text() -> None:
    """Only sections whose names begin with .text are code, in the order of the file."""
    assert instructions(elf({".debug": b"line 7", ".text.a": b"code", ".text.b": b"more"})) == b"codemore"


def test_other_files_are_refused() -> None:
    """What is no ELF file has no instructions."""
    with pytest.raises(ValueError, match="no cubin"):
        instructions(b"MZ" + bytes(100))
