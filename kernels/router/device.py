"""The end of both own kernels: a block of logits, or a program's share of it, goes where it belongs.

Where K is split there are two ways. The last program to arrive at a block adds its parts; or, with `OVERLAP`, a second
launch does, `add_parts`, whose programs are there before the first launch ends and wait on the device for it.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from gemmgate.kernels._triton.arrival import is_last
from gemmgate.kernels._triton.device import store_cast
from gemmgate.kernels._triton.partials import sum_partials


@triton.jit
def finish(
    logits, tokens, experts, split, block,
    bias_ptr, out_ptr, partials_ptr, counters_ptr,
    T, N,
    SPLITS: tl.constexpr, AT_ONCE: tl.constexpr, OVERLAP: tl.constexpr, HAS_BIAS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Stores logits [BT, BN] of tokens [BT] and experts [BN].

    Where `SPLITS` programs share the block, each leaves its part in partials [S, T, N]. Without `OVERLAP` the last to
    arrive at the block's counter adds them in the order of S, and asks for `AT_ONCE` of them at a time.
    """
    place = tokens.to(tl.int64)[:, None] * N + experts[None, :]  # [BT, BN]
    inside = (tokens < T)[:, None] & (experts < N)[None, :]
    if SPLITS > 1:
        size = tl.cast(T, tl.int64) * N
        tl.store(partials_ptr + split * size + place, logits, mask=inside)
        if not OVERLAP:  # noqa: SIM102 - joined, both would be compiled
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
def begin(OVERLAP: tl.constexpr, INTERPRETED: tl.constexpr):
    """First of all, lets the programs of the second launch come as soon as there is room."""
    if OVERLAP and not INTERPRETED:
        gdc_launch_dependents()


@triton.jit
def add_parts(
    partials_ptr, bias_ptr, out_ptr, size, N,
    SPLITS: tl.constexpr, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr, HAS_BIAS: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """The second launch: `BLOCK` of the `size` = T N logits, their parts added in the same order each time."""
    if not INTERPRETED:
        gdc_wait()
    elements = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    within = elements < size
    total = sum_partials(partials_ptr, size, SPLITS, elements, within, BLOCK, AT_ONCE)
    if HAS_BIAS:
        total += tl.load(bias_ptr + elements % N, mask=within, other=0.0).to(tl.float32)
    tl.store(out_ptr + elements, store_cast(total, out_ptr.dtype.element_ty, INTERPRETED), mask=within)


@triton.jit
def _store(
    logits, experts, place, inside, bias_ptr, out_ptr, N, HAS_BIAS: tl.constexpr, INTERPRETED: tl.constexpr
):  # fmt: skip
    if HAS_BIAS:
        logits += tl.load(bias_ptr + experts, mask=experts < N, other=0.0).to(tl.float32)[None, :]
    tl.store(out_ptr + place, store_cast(logits, out_ptr.dtype.element_ty, INTERPRETED), mask=inside)
