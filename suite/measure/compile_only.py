"""Compiles an implementation's kernels for a GPU that is not here, or that this process must leave alone.

`prepare` launches its kernels on meta tensors under a Triton driver that knows a target and has no device: each
launch compiles, writes Triton's cache, and runs nothing. A process with a device, given the same cache, then finds
the binaries. Processes that share a folder of claims divide the work: whoever claims a kernel first compiles it.
`suite/compiling` stands on the same driver and the same tensors to say what kernels became.
"""

# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver, jit

from gemmgate.suite.cases import Case, Implementation, Inputs, Target, Tile
from gemmgate.suite.measure.refusal import status_of

_THREADS = 1024
_LEAST_SHARED_BYTES = 48 * 1024
"""What every GPU has: used where the target does not say."""
_SPELL = "serialize_specialization_data"


class CompileOnly:
    """What Triton asks of the active driver, answered for one target at a time; launches do nothing.

    Devices are numbered by target, so that a kernel keeps what it compiled for each apart.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.utils = SimpleNamespace(
            get_device_properties=self._properties,
            load_binary=lambda *binary: (object(), 0, 0, 0, _THREADS),
            unload_module=lambda module: None,
        )

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        return lambda *arguments, **options: None

    def get_current_target(self) -> Any:
        if self.target.arch.startswith("gfx"):
            return GPUTarget("hip", self.target.arch, 64)
        return GPUTarget("cuda", self.target.compute_capability, 32)

    def get_current_device(self) -> int:
        return self.target.compute_capability or int(self.target.arch.removeprefix("gfx"), 16)

    def set_current_device(self, device: int) -> None:
        """There is one."""

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        raise RuntimeError("No GPU is here: this kernel is only compiled. `prepare` must not ask for a device.")

    def get_device_interface(self) -> Any:
        return self.get_active_torch_device()

    def get_benchmarker(self) -> Any:
        raise RuntimeError("No GPU is here: this kernel is only compiled, and nothing can be timed.")

    @staticmethod
    def is_active() -> bool:
        return True

    def _properties(self, device: int) -> dict[str, int]:
        return {
            "max_shared_mem": self.target.shared_bytes or _LEAST_SHARED_BYTES,
            "multiprocessor_count": self.target.sm_count,
            "warpSize": self.get_current_target().warp_size,
        }


def meta_inputs(make: Callable[[], Inputs]) -> Inputs:
    """The inputs that `make` makes on a CPU, as tensors without memory: their shapes, strides and dtypes."""
    try:
        with FakeTensorMode():
            made = make()
    except Exception:  # noqa: BLE001  what cannot be imagined, such as sizes that depend on values, is computed
        made = make()
    return {name: _without_memory(value) for name, value in made.items()}


def _without_memory(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    storage = torch.empty(value.untyped_storage().nbytes() // value.element_size(), dtype=value.dtype, device="meta")
    return storage.as_strided(value.size(), value.stride(), value.storage_offset())


class Claims:
    """Which kernels this process compiles, and which another does. Triton asks before it compiles anything.

    Without a folder every kernel is this process's own.
    """

    def __init__(self, folder: Path | None, at: Callable[[str], None]) -> None:
        self._folder = folder
        self._at = at
        self.kernels: dict[str, bool] = {}
        """Kernels met, by digest of all that their binary depends on; true where this process claimed them."""

    def passes_over(self, *, key: Any, fn: Any, **rest: Any) -> bool:
        """Whether Triton shall not compile."""
        digest = hashlib.sha256(f"{fn.module}.{fn.name}|{key}".encode()).hexdigest()[:24]
        mine = self._folder is None or _created(self._folder / digest)
        self.kernels[digest] = mine
        if mine:
            self._at(" ".join(digest for digest, is_mine in self.kernels.items() if is_mine))
        return not mine


def _created(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


@contextmanager
def _asked_first(passes_over: Callable[..., bool]) -> Iterator[None]:
    """Triton asks `passes_over` before it compiles.

    It would also spell all constants in JSON, which nobody here reads, and before 3.7 cannot where one is a function.
    """
    spell = getattr(jit, _SPELL, None)
    knobs.runtime.jit_cache_hook = passes_over
    if spell is not None:
        setattr(jit, _SPELL, lambda *arguments: "")
    try:
        yield
    finally:
        knobs.runtime.jit_cache_hook = None
        if spell is not None:
            setattr(jit, _SPELL, spell)


def compile_ahead(
    implementation: Implementation,
    case: Case,
    example: Inputs,
    target: Target,
    tile: Tile | None,
    folder: Path | None,
    at: Callable[[str], None],
) -> dict[str, Any]:
    """Compiles what a tile launches, as far as no other process that shares the folder of claims does.

    The answer has the `kernels` met with whether they were compiled here, and the `tile` that was prepared, or
    under `failed` why it could not be. Before each kernel, `at` is told those claimed so far, the new one last.
    """
    begin = time.perf_counter()
    claims = Claims(folder, at)
    driver.set_active(CompileOnly(target))
    answer: dict[str, Any] = {"tile": None}
    try:
        with _asked_first(claims.passes_over):
            prepared = implementation.prepare(case, example, target, tile)
        answer["tile"] = dict(prepared.tile) if prepared.tile is not None else None
    except Exception as error:  # noqa: BLE001  whatever a compiler raises is an answer about the tile
        answer["failed"] = status_of(error)
    return {**answer, "kernels": claims.kernels, "compile_s": time.perf_counter() - begin}
