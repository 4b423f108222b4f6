"""C = A @ B by `torch.mm`: cuBLAS on an NVIDIA GPU, the CPU's BLAS on a CPU.

Precision flags of the library are set around a whole case, not here. The yardstick.
"""

from __future__ import annotations

from typing import Any

import torch

from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Refusal, Target, Tile


def supports(case: Case, target: Target) -> Refusal | None:
    return None if target.is_gpu else cpu_refusal(case)


def cpu_refusal(case: Case) -> Refusal | None:
    """What torch on a CPU is not asked to do."""
    if case.dtype == "fp16":
        return "cpu_fp16", "fp16 products on a CPU take seconds a call and tell nothing."
    if case.precision == "tf32":
        return "cpu_tf32", "A CPU has no TF32: it would measure fp32 under another name."
    return None


def gpu_only(what: str) -> Refusal:
    return "gpu_only", f"{what} is measured on a GPU."


def prepare(case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    if tile is not None:
        raise ValueError(f"torch.mm takes no tile, got {dict(tile)}.")
    return Prepared(_bind, algorithm="torch.mm" if target.is_gpu else f"torch.mm on CPU ({_cpu_library()})")


def _bind(inputs: Inputs) -> Call:
    a, b = inputs["a"], inputs["b"]

    def call() -> Any:
        return torch.mm(a, b)

    return call


def _cpu_library() -> str:
    libraries = (("mkl", torch.backends.mkl), ("mkldnn", torch.backends.mkldnn))
    return "/".join(name for name, library in libraries if library.is_available()) or "native"


IMPLEMENTATION = Implementation("cublas", "yardstick", True, supports, prepare)
