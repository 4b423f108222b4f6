"""How many blocks fit a multiprocessor, against figures worked out by hand or published."""

from __future__ import annotations

import pytest

from gemmgate.suite.compiling.occupancy import resident
from gemmgate.suite.profiles import architectures


@pytest.mark.parametrize(
    ("arch", "registers", "warps", "shared_bytes", "blocks", "limit"),
    [
        # 65536 registers: 4 parts of 16384; 64 a thread are 2048 a warp, so 8 warps a part, 32 in all
        ("sm_90", 64, 4, 0, 8, "registers"),
        # 255 a thread are 8160, given out as 8192: 2 warps a part
        ("sm_90", 255, 4, 0, 2, "registers"),
        # 49152 + 1024 reserved: 233472 / 50176 = 4.65
        ("sm_90", 32, 4, 49152, 4, "shared memory"),
        # nothing but the 32 blocks
        ("sm_90", 16, 1, 0, 32, "blocks"),
        # 64 warps
        ("sm_80", 16, 8, 0, 8, "warps"),
        # 48 warps
        ("sm_86", 16, 8, 0, 6, "warps"),
        # all of the shared memory that a block may take
        ("sm_90", 32, 4, 232448, 1, "shared memory"),
        # one byte more
        ("sm_90", 32, 4, 232449, 0, "shared memory"),
        # published of an Ada card: blocks of 256 threads go from 3 to 4 as 80 registers become 64
        ("sm_89", 80, 8, 0, 3, "registers"),
        ("sm_89", 64, 8, 0, 4, "registers"),
    ],
)
def test_blocks_that_fit(arch: str, registers: int, warps: int, shared_bytes: int, blocks: int, limit: str) -> None:
    """The scarcest of warps, blocks, registers and shared memory decides, and is named."""
    found = resident(architectures()[arch], registers=registers, warps=warps, shared_bytes=shared_bytes)
    assert (found.blocks, found.warps, found.limit) == (blocks, blocks * warps, limit)


def test_tensor_memory_limits_blocks() -> None:
    """Of 512 columns, blocks of 256 get two, and of 128 columns four."""
    for columns, blocks in ((256, 2), (128, 4)):
        found = resident(architectures()["sm_100"], registers=32, warps=4, shared_bytes=0, tensor_memory=columns)
        assert (found.blocks, found.limit) == (blocks, "tensor memory")


@pytest.mark.parametrize(("registers", "warps"), [(255, 16), (32, 33)])
def test_impossible_blocks_do_not_fit(registers: int, warps: int) -> None:
    """16 warps of 255 registers are more than there are, and no block has 33 warps."""
    assert resident(architectures()["sm_90"], registers=registers, warps=warps, shared_bytes=0).blocks == 0
