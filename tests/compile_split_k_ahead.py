"""Compiles tiles of `triton_split_k` for an H200 that need not be here; run in a process of its own.

Prints the kernels that each launch needed and how many binaries lie in Triton's cache after each: on tensors without
memory, then on tensors in memory, in a process that has forgotten what it compiled.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

from gemmgate.kernels.dense_splitk import triton_split_k as module
from gemmgate.kernels.dense_splitk.cases import case_of
from gemmgate.kernels.dense_splitk.inputs import make_inputs
from gemmgate.suite.cases import Target
from gemmgate.suite.measure.compile_only import compile_ahead, meta_inputs

H200 = Target("sm_90", "NVIDIA H200", sm_count=132, shared_bytes=232448)
CASES = (case_of(16, 16, 4096, "bf16", "acc32"), case_of(48, 33, 1001, "fp16", "acc32"))


def binaries() -> int:
    return len(list(Path(os.environ["TRITON_CACHE_DIR"]).rglob("*.cubin")))


def main() -> None:
    made = []
    for case in CASES:
        real = make_inputs(case, 0, "cpu")
        without_memory = meta_inputs(lambda case=case: make_inputs(case, 0, "cpu"))  # type: ignore[misc]
        assert all(tensor.is_meta for tensor in without_memory.values())
        for example in (without_memory, {name: _aligned(tensor) for name, tensor in real.items()}):
            for kernel in (module._multiply, module._add):
                kernel.device_caches.clear()
            answer = compile_ahead(module.IMPLEMENTATION, case, example, H200, None, None, lambda step: None)
            made.append({"case": case.name, "binaries": binaries(), **answer})
    print(json.dumps(made))


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """As a GPU's allocator would place it, on a multiple of 16 bytes."""
    assert tensor.data_ptr() % 16 == 0
    return tensor


if __name__ == "__main__":
    main()
