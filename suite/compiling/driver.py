"""What Triton makes of launches under a driver without a device: each compiles, and is recorded instead of run.

`prepare` of an implementation launches its kernels as it always does; nothing about a kernel is described here.
"""

# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from triton import knobs
from triton.compiler.errors import CompilationError
from triton.errors import TritonError
from triton.runtime import JITFunction
from triton.runtime.driver import driver as drivers
from triton.runtime.errors import PTXASError

from gemmgate.suite.cases import Target
from gemmgate.suite.compiling.facts import FactStore
from gemmgate.suite.measure.compile_only import CompileOnly

_PTXAS = {
    "stack_bytes": re.compile(r"(\d+) bytes stack frame"),
    "spill_store_bytes": re.compile(r"(\d+) bytes spill stores"),
    "spill_load_bytes": re.compile(r"(\d+) bytes spill loads"),
    "registers": re.compile(r"Used (\d+) registers"),
    "static_shared_bytes": re.compile(r"(\d+) bytes smem"),
}
"""What `ptxas -v` says, which Triton always asks it for."""
_AMDGCN = {
    "registers": re.compile(r"\.vgpr_count:\s+(\d+)"),
    "spills": re.compile(r"\.vgpr_spill_count:\s+(\d+)"),
    "stack_bytes": re.compile(r"\.private_segment_fixed_size:\s+(\d+)"),
}
"""The same in the metadata of AMD's assembly; a spilled register is one of 4 bytes."""


class NotCompiled(Exception):
    """Triton or its assembler refused a kernel for this target: `detail` is the sentence that says most."""

    def __init__(self, kernel: str, error: Exception) -> None:
        self.reason = "assembler" if isinstance(error, PTXASError) else "compiler"
        self.detail = f"{kernel}: {said(error)}"
        super().__init__(self.detail)


def said(error: BaseException) -> str:
    """What is wrong: the assembler's first error, or Triton's sentence with the line of source that it is about.

    A fault in a function that the kernel calls is the cause of an error that points at the call and says no more.
    """
    at, told = "", ""
    cause: Any = error
    while isinstance(cause, CompilationError):
        at, told = _place(cause) or at, " ".join((cause.error_message or "").split()) or told
        cause = cause.__cause__
    told = told or (_sentence(str(cause)) if cause is not None else "")
    return f"{told[:300] or type(error).__name__}{at}"


def _sentence(text: str) -> str:
    """The assembler's first error, or the last line that has a word."""
    found = re.search(r"\b(?:error|fatal)\s*:\s*(.+)", text.partition("stderr:")[2])
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w", line)]
    return (found[1] if found else lines[-1] if lines else "")[:300]


def _place(error: Any) -> str:
    """The line of source at which Triton gave up."""
    number = getattr(error.node, "lineno", 0)
    lines = (error.src or "").splitlines()
    return f" (line {number}: `{lines[number - 1].strip()[:160]}`)" if 0 < number <= len(lines) else ""


Launches = list[tuple[str, dict[str, Any]]]
"""What was launched, in order: a kernel's name and the facts of its compilation."""


class Recorder:
    """Takes the place of the GPU in this process, for good."""

    def __init__(self, store: FactStore) -> None:
        self._store = store
        self._driver = CompileOnly(Target("sm_90"))
        self._launches: Launches = []
        self._facts: dict[str, dict[str, Any]] = {}
        self._times: Any = None
        self._cached = False
        self._run = JITFunction.run
        drivers.set_active(self._driver)
        knobs.cache.dir = str(store.triton)
        knobs.nvidia.dump_ptxas_log = True
        knobs.compilation.disable_line_info = True  # lines and paths of the source are no part of the code
        knobs.compilation.listener = self._listen

        def run(function: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
            return self._record(function, arguments, {"grid": grid, **options})

        JITFunction.run = run

    @contextmanager
    def recording(self, target: Target) -> Iterator[Launches]:
        """What is launched within is compiled for `target`."""
        self._driver.target = target
        self._launches = []
        yield self._launches

    def _record(self, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        kernel, said = self._compile(function, arguments, options)
        if kernel.hash not in self._facts:
            facts = self._store.read_kernel(kernel.hash) if self._cached else None
            if self._cached and facts is None:  # what the assembler said is lost, so it must say it again
                function.device_caches.pop(self._driver.get_current_device(), None)
                with knobs.compilation.scope():
                    knobs.compilation.always_compile = True
                    kernel, said = self._compile(function, arguments, options)
            self._facts[kernel.hash] = facts or self._measured(kernel, said)
        self._launches.append((function.fn.__name__, self._facts[kernel.hash]))
        return kernel

    def _compile(self, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, str]:
        said = io.StringIO()
        try:
            with redirect_stdout(said):
                return self._run(function, *arguments, warmup=True, **options), said.getvalue()
        except (TritonError, RuntimeError, ValueError, AssertionError) as error:
            raise NotCompiled(function.fn.__name__, error) from error

    def _listen(self, *, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool) -> None:
        self._times, self._cached = times, cache_hit

    def _measured(self, kernel: Any, said: str) -> dict[str, Any]:
        metadata = kernel.metadata
        nvidia = "cubin" in kernel.asm
        patterns, text = (_PTXAS, said) if nvidia else (_AMDGCN, kernel.asm["amdgcn"])
        read = {name: int((pattern.findall(text) or [0])[-1]) for name, pattern in patterns.items()}
        facts = {
            "registers": read["registers"],
            "spill_bytes": read["spill_store_bytes"] + read["spill_load_bytes"] if nvidia else 4 * read["spills"],
            "stack_bytes": read["stack_bytes"],
            "shared_bytes": metadata.shared + read.get("static_shared_bytes", 0),
            "tensor_memory": getattr(metadata, "tmem_size", None) or 0,
            "warps": metadata.num_warps,
            "stages_s": {
                name: microseconds / 1e6
                for name, microseconds in [("front_end", self._times.ir_initialization), *self._times.lowering_stages]
            },
        }
        return self._store.write_kernel(kernel.hash, facts, kernel.kernel, countable=nvidia)


def disassembler() -> Path:
    """NVIDIA's, as Triton brings it."""
    return Path(knobs.nvidia.nvdisasm.path)
