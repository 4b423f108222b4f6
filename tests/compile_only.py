"""A Triton driver for a GPU that is not here: launches are compiled, and nothing runs."""

from __future__ import annotations

from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver


class _Utils:
    def __init__(self, shared_bytes: int) -> None:
        self._shared_bytes = shared_bytes

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[int, ...]:
        return 0, 0, 0, 0, 1024

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": self._shared_bytes, "max_num_regs": 65536, "warpSize": 32}


class _Launcher:
    def __init__(self, source: Any, metadata: Any) -> None:
        self.launch_cooperative_grid = False

    def __call__(self, *arguments: Any, **options: Any) -> None:
        """Nothing is launched."""


class CompileOnly:
    """What Triton asks of a driver before it launches."""

    launcher_cls = _Launcher

    def __init__(self, compute_capability: int, shared_bytes: int) -> None:
        self._target = GPUTarget("cuda", compute_capability, 32)
        self.utils = _Utils(shared_bytes)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        """A number for each GPU: a kernel keeps what it compiled, and for what, by device."""
        return int(self._target.arch)

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def map_python_to_cpp_type(self, kind: str) -> str:
        return kind


def compile_for(compute_capability: int, shared_bytes: int) -> None:
    """From here on, Triton's launches in this process are compilations for that GPU."""
    driver.set_active(CompileOnly(compute_capability, shared_bytes))
