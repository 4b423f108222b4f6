"""What an implementation may set for the whole process, put back: the others are measured in it too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_MATMUL = (
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)
_CUDNN = ("enabled", "benchmark", "deterministic")


@contextmanager
def own_settings() -> Iterator[None]:
    """Threads, default dtype, autograd, determinism, precision and library of products, switches of both libraries."""
    owners = ((torch.backends.cuda.matmul, _MATMUL), (torch.backends.cudnn, _CUDNN))
    # Not every build of torch has every switch.
    flags = [(owner, name, getattr(owner, name)) for owner, names in owners for name in names if hasattr(owner, name)]
    threads, dtype, grad = torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
    deterministic = torch.get_deterministic_debug_mode()
    precision, library = torch.get_float32_matmul_precision(), torch.backends.cuda.preferred_blas_library()
    try:
        yield
    finally:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        if torch.get_deterministic_debug_mode() != deterministic:  # setting it imports half of Inductor
            torch.use_deterministic_algorithms(deterministic > 0, warn_only=deterministic == 1)
        torch.set_float32_matmul_precision(precision)
        for owner, name, value in flags:
            if getattr(owner, name) != value:
                setattr(owner, name, value)
        if torch.backends.cuda.preferred_blas_library() != library:
            torch.backends.cuda.preferred_blas_library(library)
