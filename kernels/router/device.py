"""The end of both own kernels: a block of logits, or a program's share of it, goes where it belongs."""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl

from gemmgate.kernels._triton.arrival import is_last
from gemmgate.kernels._triton.device import store_cast


@triton.jit
def finish(
    logits, tokens, experts, split, block,
    bias_ptr, out_ptr, partials_ptr, counters_ptr,
    T, N,
    SPLITS: tl.constexpr, AT_ONCE: tl.constexpr, HAS_BIAS: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Stores logits [BT, BN] of tokens [BT] and experts [BN].

    Where `SPLITS` programs share the block, each leaves its part in partials [S, T, N], and the last to arrive at the
    block's counter adds them in the order of S, and asks for `AT_ONCE` of them at a time.
    """
    place = tokens.to(tl.int64)[:, None] * N + experts[None, :]  # [BT, BN]
    inside = (tokens < T)[:, None] & (experts < N)[None, :]
    if SPLITS > 1:
        size = tl.cast(T, tl.int64) * N
        tl.store(partials_ptr + split * size + place, logits, mask=inside)
        if is_last(counters_ptr + block, SPLITS):
            total = tl.zeros_like(logits)
            for part in range(0, SPLITS, AT_ONCE):
                for other in tl.static_range(AT_ONCE):
                    held = partials_ptr + (part + other) * size + place
                    is_there = inside & (part + other < SPLITS)
                    total += tl.load(held, mask=is_there, other=0.0, cache_modifier=".cg")
            _store(total, experts, place, inside, bias_ptr, out_ptr, N, HAS_BIAS, INTERPRETED)
    else:
        _store(logits, experts, place, inside, bias_ptr, out_ptr, N, HAS_BIAS, INTERPRETED)


@triton.jit
def _store(
    logits, experts, place, inside, bias_ptr, out_ptr, N, HAS_BIAS: tl.constexpr, INTERPRETED: tl.constexpr
):  # fmt: skip
    if HAS_BIAS:
        logits += tl.load(bias_ptr + experts, mask=experts < N, other=0.0).to(tl.float32)[None, :]
    tl.store(out_ptr + place, store_cast(logits, out_ptr.dtype.element_ty, INTERPRETED), mask=inside)
