"""A ring of fresh inputs: while one slot is computed, the others push it out of the cache.

A memset before each call would leave dirty lines that the timed kernel then has to write back, and
reads several microseconds more. Inputs that are themselves the traffic leave the cache as a model's
layers would: full of clean lines of other tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import psutil
import torch

from gemmgate.suite.cases import Inputs

CACHE_MULTIPLE = 3
"""A ring holds at least this many times the last-level cache, inputs alone."""
_MIN_SLOTS = 3
_HOST_SHARE = 0.25


@dataclass(frozen=True)
class Ring:
    """`slots[0]` is checked first and is the only one used in the `hot` state."""

    slots: tuple[Inputs, ...]
    input_bytes: int
    cold: bool
    why: str = ""


def tensors_in(values: object) -> list[torch.Tensor]:
    """Tensors in a tensor, a mapping or any nesting of sequences, in order."""
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    if isinstance(values, Iterable) and not isinstance(values, str):
        return [tensor for value in values for tensor in tensors_in(value)]
    return []


def storage_bytes(values: object) -> int:
    """Bytes of the elements, each tensor once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(values))


def slots_needed(input_bytes: int, cache_bytes: int) -> int:
    """Slots that make a ring cold: never fewer than three times the cache, however small the inputs."""
    return max(_MIN_SLOTS, math.ceil(CACHE_MULTIPLE * cache_bytes / max(input_bytes, 1)))


def build_ring(make: Callable[[int], Inputs], cache_bytes: int, device: torch.device) -> Ring:
    """Slots `make(0)`, `make(1)`, ... until the ring is cold.

    Where that would take more than a quarter of the free memory the ring has one slot, is not cold,
    and says why.
    """
    first = make(0)
    size = storage_bytes(first)
    count = slots_needed(size, cache_bytes)
    why = _too_large(count * size, device)
    if why:
        return Ring((first,), size, cold=False, why=why)
    return Ring((first, *(make(index) for index in range(1, count))), size, cold=True)


def serving_ring(
    ring: Ring, make: Callable[[int], Inputs], activations: Sequence[str], cache_bytes: int, device: torch.device
) -> Ring:
    """The slots of a cold ring with the activations of its first slot in all of them.

    The weights alone have to make it cold, so it may need more slots than the other. `ring` is not cold
    where memory is short or where there is nothing but activations.
    """
    shared = {name: ring.slots[0][name] for name in activations}
    weight_bytes = ring.input_bytes - storage_bytes(shared)
    if weight_bytes <= 0:
        return Ring(ring.slots[:1], ring.input_bytes, cold=False, why="all inputs of this case are activations")
    count = slots_needed(weight_bytes, cache_bytes)
    had = tuple({**slot, **shared} for slot in ring.slots[:count])
    own = extra_slots(sharing(make, shared), len(had), count - len(had), weight_bytes, device)
    if own is None:
        why = _too_large((count - len(had)) * weight_bytes, device)
        return Ring(ring.slots[:1], ring.input_bytes, cold=False, why=why)
    return Ring((*had, *own), ring.input_bytes, cold=True)


def sharing(make: Callable[[int], Inputs], shared: Inputs) -> Callable[[int], Inputs]:
    """Makes slots of which `shared` takes the place of what has the same name: that is gone before the next is made."""
    return lambda slot: {**make(slot), **shared}


def extra_slots(
    make: Callable[[int], Inputs], first: int, count: int, slot_bytes: int, device: torch.device
) -> tuple[Inputs, ...] | None:
    """`count` slots from `make(first)` on, each of so many bytes of its own; None where that takes too much memory."""
    if _too_large(count * slot_bytes, device):
        return None
    return tuple(make(index) for index in range(first, first + count))


def no_room(size: int, device: torch.device) -> str:
    """Why so many bytes cannot be had on the device, in a sentence; empty where they can."""
    free = _free_bytes(device)
    return "" if size <= free else f"{size / 2**30:.1f} GiB are needed, and {free / 2**30:.1f} GiB of memory are free"


def free_share(device: torch.device) -> float:
    """Share of the device's memory that nobody holds, this process's allocator included."""
    free, total = _memory_bytes(device)
    return free / total


def _memory_bytes(device: torch.device) -> tuple[int, int]:
    """What nobody holds, and all there is."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return int(free), int(total)
    memory = psutil.virtual_memory()
    return memory.available, memory.total


def _free_bytes(device: torch.device) -> int:
    """What can be had: also what the allocator holds for later, which it gives back before it fails."""
    free, _ = _memory_bytes(device)
    if device.type == "cuda":
        free += max(torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device), 0)
    return free


def _too_large(size: int, device: torch.device) -> str:
    free = _free_bytes(device)
    if size <= _HOST_SHARE * free:
        return ""
    return f"a cold ring takes {size >> 20} MiB, more than a quarter of the free {free >> 20} MiB"
