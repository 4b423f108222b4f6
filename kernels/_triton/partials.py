"""Partial sums in memory, who has arrived, and sums in a fixed order: what programs that share a tile need.

Counters are zero before a launch and zero after it: whoever is last puts them back, so that no launch has to.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def store_partial(slot, total, BM: tl.constexpr, BN: tl.constexpr):
    """Writes a tile [BM, BN] to the BM BN elements from `slot` on."""
    tl.store(slot + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], total)


@triton.jit
def arrive(counter):
    """Adds 1 to a counter once all of this program's stores can be seen; returns what it held before.

    What others stored before they arrived can be read afterwards.
    """
    tl.debug_barrier()  # the one thread that adds must not overtake the stores of the others
    return tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")


@triton.jit
def wait_for(counter, value):
    """Returns once the counter holds `value`; who adds to it must be running or done."""
    seen = tl.atomic_add(counter, 0, sem="acquire", scope="gpu")
    while seen != value:
        seen = tl.atomic_add(counter, 0, sem="acquire", scope="gpu")
    tl.debug_barrier()


@triton.jit
def sum_partials(first, apart, parts, elements, within, SIZE: tl.constexpr, AT_ONCE: tl.constexpr):
    """sum over p of first[p * apart + elements], [SIZE], p in steps of AT_ONCE: the same order each time.

    Reads past the first-level cache, which does not see what other multiprocessors wrote.
    """
    total = tl.zeros((AT_ONCE, SIZE), dtype=tl.float32)
    for begin in range(0, parts, AT_ONCE):
        part = begin + tl.arange(0, AT_ONCE)[:, None]
        some = tl.load(
            first + part.to(tl.int64) * apart + elements[None, :],
            mask=(part < parts) & within[None, :],
            other=0.0,
            cache_modifier=".cg",
        )
        total += some
    return tl.sum(total, axis=0)
