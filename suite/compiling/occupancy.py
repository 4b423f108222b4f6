"""How many blocks of a kernel fit a multiprocessor at once. Pure arithmetic on an architecture's figures.

As NVIDIA's occupancy calculator does it (`cuda_occupancy.h` of the CUDA toolkit): warps, blocks, registers, which
a warp takes in units from its partition's share, and shared memory, of which the system reserves some for every
block; here also tensor memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmgate.suite.profiles import Architecture


@dataclass(frozen=True)
class Resident:
    """Blocks and warps that a multiprocessor holds at once; `limit` is what keeps out one block more."""

    blocks: int
    warps: int
    limit: str


def resident(
    architecture: Architecture, *, registers: int, warps: int, shared_bytes: int, tensor_memory: int = 0
) -> Resident:
    """For blocks of so many `warps`, `registers` a thread, bytes of shared memory and columns of tensor memory."""
    a = architecture
    fits = {
        "blocks": a.blocks,
        "warps": a.warps // warps,
        "registers": _by_registers(a, registers, warps),
        "shared memory": a.shared_bytes // _up(shared_bytes + a.reserved_shared_bytes, a.shared_unit_bytes),
    }
    if tensor_memory:
        fits["tensor memory"] = a.tensor_memory // tensor_memory
    if warps > a.block_warps:
        fits["warps"] = 0
    limit = min(fits, key=lambda name: fits[name])
    return Resident(fits[limit], fits[limit] * warps, limit)


def _by_registers(a: Architecture, registers: int, warps: int) -> int:
    """A warp's registers lie in one partition, whose share holds whole warps only."""
    if not registers:
        return a.blocks
    of_warp = _up(registers * a.warp_size, a.register_unit)
    if _up(warps, a.partitions) * of_warp > a.registers:
        return 0
    return a.partitions * (a.registers // a.partitions // of_warp) // warps


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
