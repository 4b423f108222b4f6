"""Counters and sums that every launch finds zero and leaves zero, for kernels called outside a harness.

Calls on one stream follow one another and share theirs. A call that is captured into a CUDA graph gets its own,
for its graph may be replayed beside anything else; it comes from a reserve that was cleared before, so that the
graph has nothing to clear.

What outlives a call is made by a thread of its own, whose allocations follow no redirection of this one's: torch's
CUDA-graph trees let the first call of a compiled function allocate from a graph's pool, where nothing may stay.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

RESERVE = 1 << 20
"""Elements for captured calls on one device, handed out once each. Past them a graph clears its own."""

_of_stream: dict[tuple[torch.device, int], Tensor] = {}
_reserve: dict[torch.device, tuple[Tensor, int]] = {}
_handing_out = threading.Lock()


def zeros(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`count` zero elements of fp32 or int32, for launches on the current stream that restore them.

    The first call on a stream, outside of a capture, waits for the device.
    """
    if device.type != "cuda":
        return torch.zeros(count, dtype=dtype, device=device)
    if torch.cuda.is_current_stream_capturing():
        return _own(count, device).view(dtype)
    if device not in _reserve:
        _reserve[device] = _lasting(RESERVE, device), 0
    key = device, torch.cuda.current_stream(device).cuda_stream
    if key not in _of_stream or _of_stream[key].numel() < count:
        _of_stream[key] = _lasting(max(count, 4096), device)
    return _of_stream[key][:count].view(dtype)


def _lasting(count: int, device: torch.device) -> Tensor:
    """Zeros that any stream may use at once: the device has been waited for."""

    def make() -> Tensor:
        with torch.inference_mode(False):
            made = torch.zeros(count, dtype=torch.int32, device=device)
        torch.cuda.synchronize(device)
        return made

    with ThreadPoolExecutor(1) as alone:
        return alone.submit(make).result()


def forget(device: torch.device) -> None:
    """After a call that was broken off between its launches, whose zeros may be none: the next call gets new ones."""
    if device.type == "cuda":
        _of_stream.pop((device, torch.cuda.current_stream(device).cuda_stream), None)


def _own(count: int, device: torch.device) -> Tensor:
    count_aligned = -(-count // 32) * 32  # a line of the cache for each call
    with _handing_out:  # threads may capture at the same time
        reserve, used = _reserve.get(device, (None, 0))
        if reserve is not None and used + count_aligned <= reserve.numel():
            _reserve[device] = reserve, used + count_aligned
            return reserve[used : used + count]
    return torch.zeros(count, dtype=torch.int32, device=device)
