"""What an implementation may set for the whole process, put back: the others are measured in it too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

_MATMUL = (
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)
_CUDNN = ("enabled", "benchmark", "deterministic")


def matmul_precision() -> str:
    """torch's precision of fp32 products: `highest`, `high` or `medium`.

    It cannot be read any more once somebody has set it by the newer `fp32_precision`. It is then said in the older way,
    as the newer one has it for a GPU's products, which makes it readable again.
    """
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        torch.set_float32_matmul_precision("high" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "highest")
        return torch.get_float32_matmul_precision()


@dataclass(frozen=True)
class Settings:
    """Threads, default dtype and device, autograd, determinism, precision and library of products, switches of both."""

    threads: int
    dtype: torch.dtype
    device: torch.device
    grad: bool
    deterministic: int
    precision: str
    library: Any
    flags: tuple[tuple[Any, str, Any], ...]

    @classmethod
    def read(cls) -> Settings:
        """As they are now."""
        owners = ((torch.backends.cuda.matmul, _MATMUL), (torch.backends.cudnn, _CUDNN))
        return cls(
            torch.get_num_threads(),
            torch.get_default_dtype(),
            torch.get_default_device(),
            torch.is_grad_enabled(),
            torch.get_deterministic_debug_mode(),
            matmul_precision(),
            torch.backends.cuda.preferred_blas_library(),
            # Not every build of torch has every switch.
            tuple(
                (owner, name, getattr(owner, name)) for owner, names in owners for name in names if hasattr(owner, name)
            ),
        )

    def put_back(self) -> None:
        """Makes them so again; what has not changed is left alone."""
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        self.put_back_defaults()
        torch.set_grad_enabled(self.grad)
        if torch.get_deterministic_debug_mode() != self.deterministic:  # setting it imports half of Inductor
            torch.use_deterministic_algorithms(self.deterministic > 0, warn_only=self.deterministic == 1)
        torch.set_float32_matmul_precision(self.precision)
        for owner, name, value in self.flags:
            if getattr(owner, name) != value:
                setattr(owner, name, value)
        if torch.backends.cuda.preferred_blas_library() != self.library:
            torch.backends.cuda.preferred_blas_library(self.library)

    def put_back_defaults(self) -> None:
        """Those of what makes tensors: dtype and device."""
        if torch.get_default_dtype() != self.dtype:
            torch.set_default_dtype(self.dtype)
        if torch.get_default_device() != self.device:
            # None is the CPU too, and costs no look at every call of torch.
            torch.set_default_device(None if self.device.type == "cpu" else self.device)


@contextmanager
def own_settings() -> Iterator[None]:
    """Puts all `Settings` back at the end, also after an error."""
    settings = Settings.read()
    try:
        yield
    finally:
        settings.put_back()
