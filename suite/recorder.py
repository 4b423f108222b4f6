"""Records a program's matrix products from inside it. A file by itself: it runs in the program's own Python.

`gemmgate capture` copies it into an empty folder as `sitecustomize.py` and puts that folder first on PYTHONPATH,
so that every Python process which the program starts runs it first. Nothing happens until torch is imported;
from then on a dispatch mode in each thread counts products of two matrices.

Each process has two files: one gets a line for each different product, the other, mapped into memory, holds the
counts. What is in them survives any end of the process, SIGKILL included, and no handler of the program's is
touched. `read_counts` adds them up afterwards.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import mmap
import os
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

SPOOL = "GEMMGATE_CAPTURE_SPOOL"
"""Environment variable with the folder for those files."""
CAPACITY = 1 << 16
"""Different products that a process can count; calls of later ones are counted together."""
OPERANDS = {
    "mm": (0, 1),
    "bmm": (0, 1),
    "matmul": (0, 1),
    "linear": (0, 1),
    "addmm": (1, 2),
    "_addmm_activation": (1, 2),
    "baddbmm": (1, 2),
}
"""Operators that are recorded, and which of their arguments are multiplied."""
_ITEM_BYTES = 8
_SIZE_BYTES = (CAPACITY + 1) * _ITEM_BYTES
_WORDS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4m3",
    "float8_e5m2": "fp8e5m2",
}


class Counts:
    """The counts of one process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.open()
        os.register_at_fork(after_in_child=self.open)

    def open(self) -> None:
        """Begins files of this process's own: also in the child of a fork, which would share its parent's."""
        self._lock = threading.Lock()
        self._indices: dict[Any, int] = {}
        self._base = self._folder / f"{os.getpid()}-{os.urandom(4).hex()}"
        self._names = -1
        self._counts: Any = None

    def add(self, key: Any) -> None:
        """One more call of a product."""
        with self._lock:
            if self._counts is None:
                self._names = os.open(f"{self._base}.names", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                self._counts = _mapped(f"{self._base}.counts")
            index = self._indices.get(key)
            if index is None:
                index = self._indices[key] = len(self._indices)
                if index < CAPACITY:
                    os.write(self._names, (json.dumps(key) + "\n").encode())
            self._counts[min(index, CAPACITY)] += 1


def _mapped(path: str) -> memoryview:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(file, _SIZE_BYTES)
    memory = mmap.mmap(file, _SIZE_BYTES)
    os.close(file)
    return memoryview(memory).cast("Q")


def read_counts(folder: Path) -> tuple[Counter[Any], int]:
    """Calls by (op, m, n, k, batch, dtype, layout, device) over all processes; and calls that found no room."""
    total: Counter[Any] = Counter()
    lost = 0
    for file in sorted(folder.glob("*.counts")):
        counts = memoryview(file.read_bytes()).cast("Q")
        lost += counts[CAPACITY]
        for index, line in enumerate(file.with_suffix(".names").read_text(encoding="utf-8").splitlines()):
            with suppress(ValueError):  # a last line that was torn
                total[tuple(json.loads(line))] += counts[index]
    return total, lost


def product_of(name: str, arguments: Any, out: Any) -> Any:
    """The key of a call of an operator of `OPERANDS`, None where there is nothing to multiply."""
    a, b = (arguments[index] for index in OPERANDS[name])
    if a.device.type == "meta" or type(a).__name__ == "FakeTensor" or not (a.numel() and b.numel()):
        return None
    turned = name == "linear"  # its weight is [n, k]
    k = int(a.shape[-1])
    n = 1 if b.dim() == 1 else int(b.shape[-2 if turned else -1])
    m, batch = a.numel() // k, 1
    if b.dim() > 2:
        m = 1 if a.dim() == 1 else int(a.shape[-2])
        batch = out.numel() // (m * n)
    dtype = str(a.dtype).replace("torch.", "")
    layout = f"{_order(a, turned=False)}-{_order(b, turned=turned)}"
    return (name, m, n, k, batch, _WORDS.get(dtype, dtype), layout, a.device.type)


def _order(tensor: Any, *, turned: bool) -> str:
    """How an operand lies in memory as [rows, columns]; `turned` where its transpose is what is multiplied."""
    if tensor.dim() < 2:
        return "row"
    rows, columns = tensor.stride()[-2:]
    if turned:
        rows, columns = columns, rows
    return "row" if columns == 1 else "column" if rows == 1 else "strided"


def watch(counts: Counts) -> None:
    """Counts in this thread and in all that are started from now on."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):  # type: ignore[misc]  # Any where torch is not installed
        """Lets every operator do its work, and looks at products."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            with suppress(Exception):  # a recorder must not end the program that it watches
                name = func.overloadpacket.__name__
                if name in OPERANDS and func.namespace == "aten":
                    key = product_of(name, args, out)
                    if key is not None:
                        counts.add(key)
            return out

    def begin(*event: Any) -> None:
        sys.setprofile(None)
        Recorder().__enter__()

    Recorder().__enter__()
    threading.setprofile(begin)


class AfterTorch:
    """A finder that lets torch be imported as usual and then begins to watch. To look for torch is not to import it."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._asking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Wraps the loader of torch; every other module is somebody else's."""
        if name != "torch" or self._asking:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking = False
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            sys.meta_path.remove(self)
            watch(self._counts)

        loader.exec_module = exec_module
        return spec


def start() -> None:
    """Begins in this process, then runs the `sitecustomize` that would have been run without us."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if not path or Path(path).resolve() != here]
    folder = Path(os.environ.get(SPOOL, ""))
    if os.environ.get(SPOOL) and folder.is_dir():
        sys.meta_path.insert(0, AfterTorch(Counts(folder)))
    ours = sys.modules.pop("sitecustomize")
    try:
        with suppress(ModuleNotFoundError):
            importlib.import_module("sitecustomize")
    finally:
        sys.modules.setdefault("sitecustomize", ours)


if __name__ == "sitecustomize":
    start()
