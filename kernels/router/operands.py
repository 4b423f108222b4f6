"""What the own kernels ask of their operands, and the scratch they share one output in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from gemmgate.kernels._triton import host, zeros
from gemmgate.kernels.router.cases import case_of
from gemmgate.kernels.router.inputs import TORCH_DTYPE, WORD
from gemmgate.suite.cases import Case

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_COMMON_COUNTERS = 4096
_MOST_HELD = 64
"""Partial sums a thread has asked for and not yet added."""


def no_product(x: Tensor, w: Tensor) -> ValueError:
    """What to raise where sizes do not match, with those that the caller gave."""
    return ValueError(
        f"A router multiplies x [..., K] by w [N, K] transposed, got {tuple(x.shape)} and {tuple(w.shape)}."
    )


def check_sizes(x: Tensor, w: Tensor) -> None:
    """Raises ValueError, with the values, where the rows of x and w do not have one length."""
    if w.dim() != 2 or x.shape[-1] != w.shape[1]:
        raise no_product(x, w)


def check(x: Tensor, w: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> None:
    """Raises ValueError, with the values, where these are no operands of one product."""
    host.refuse_without_strides(x=x, w=w, bias=bias)
    if x.dim() != 2:
        raise no_product(x, w)
    check_sizes(x, w)
    if x.dtype not in DTYPES or x.dtype != w.dtype or x.device != w.device:
        raise ValueError(
            "A router takes x and w of one device, both bf16, fp16 or fp32; "
            f"got {x.dtype} on {x.device} and {w.dtype} on {w.device}. Cast one of them first."
        )
    if bias is not None and (bias.shape != w.shape[:1] or bias.dtype != w.dtype or bias.device != w.device):
        raise ValueError(
            f"The bias must be [{w.shape[0]}] of {w.dtype} on {w.device}; "
            f"got {list(bias.shape)} of {bias.dtype} on {bias.device}."
        )
    if out_dtype not in (x.dtype, torch.float32):
        known = " or ".join(dict.fromkeys((str(x.dtype), "torch.float32")))
        raise ValueError(f"Logits of {x.dtype} operands are {known}, not {out_dtype}.")


def case_for(x: Tensor, w: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Case:
    """The case that these operands are, of the catalog or not. T = 0 is one too."""
    (t, k), n = x.shape, w.shape[0]
    return case_of(t, n, k, WORD[x.dtype], WORD[out_dtype], bias=bias is not None)


def rows_are_contiguous(*operands: Tensor | None) -> bool:
    """Whether K (or the bias) is contiguous in all of them, which the own kernels need; rows may lie anywhere."""
    return all(o is None or o.shape[-1] <= 1 or o.stride(-1) == 1 for o in operands)


def refuse_strides(kernel: str, x: Tensor, w: Tensor, bias: Tensor | None) -> None:
    """Raises ValueError where K is not contiguous."""
    if not rows_are_contiguous(x, w, bias):
        raise ValueError(
            f"{kernel} reads rows of x and w with K contiguous, got strides {x.stride()} and {w.stride()}. "
            "`gemmgate.kernels.router.logits` takes any strides."
        )


def new_logits(x: Tensor, w: Tensor, out_dtype: torch.dtype) -> Tensor:
    return torch.empty(x.shape[0], w.shape[0], dtype=out_dtype, device=x.device)


@dataclass(frozen=True)
class Scratch:
    """Partial sums, fp32 [S, T, N], and a counter for each block of logits that several programs share.

    Counters are 0 between launches. So they are state, not scratch whose contents do not matter, and two launches at
    the same time must not have the same ones.
    """

    partials: Tensor
    counters: Tensor


def scratch(x: Tensor, w: Tensor, splits: int, blocks: int, counters: Tensor | None = None) -> Scratch:
    """For one launch at a time; empty where K is not split. `counters` are zeros to use where there are enough."""
    shared = splits > 1
    partials = torch.empty(splits if shared else 0, x.shape[0], w.shape[0], dtype=torch.float32, device=x.device)
    if not shared or blocks == 0:
        counters = _no_counters(x.device)
    elif counters is None or counters.shape[0] < blocks:
        counters = torch.zeros(blocks, dtype=torch.int32, device=x.device)
    return Scratch(partials, counters)


@lru_cache
def _no_counters(device: torch.device) -> Tensor:
    """For launches that count nothing, and take a pointer all the same. It has no memory, so it may outlive a call."""
    return torch.empty(0, dtype=torch.int32, device=device)


def common_counters(device: torch.device) -> Tensor | None:
    """Zeros for launches on the current stream of a GPU, which come one after the other; the same for each call.

    None while a graph is captured: its replays may run beside other launches, so it gets counters of its own.
    """
    if device.type != "cuda":
        return None
    if torch.cuda.is_current_stream_capturing():
        return None
    return zeros.zeros(_COMMON_COUNTERS, torch.int32, device)


def parts_at_once(splits: int, block: int, num_warps: int) -> int:
    """Parts that the last program asks for together: what a thread can hold, of `block` sums over all threads."""
    return max(1, min(splits, _MOST_HELD * 32 * num_warps // block))


def torch_dtype(word: str) -> torch.dtype:
    return TORCH_DTYPE[word]
