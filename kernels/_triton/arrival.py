"""Finding the last of several programs that share an output: shared by kernels that split a sum in one launch."""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def is_last(counter_ptr, programs: tl.constexpr):
    """Whether all other of the `programs` that share a counter have arrived; what they stored before is then visible.

    The counter must be 0 before the launch, and the last to arrive leaves it so. Read what the others stored with
    `cache_modifier=".cg"`: a line of the first-level cache may be older than that.
    """
    tl.debug_barrier()  # the atomic below is one thread's, and must follow what all threads stored
    before = tl.atomic_add(counter_ptr, 1, sem="acq_rel", scope="gpu")
    last = before == programs - 1
    if last:
        tl.store(counter_ptr, 0)
    return last
