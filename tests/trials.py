"""A file of functions that `gemmgate try` is asked to judge, and what a worker says of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gemmgate.suite import catalog
from gemmgate.suite.workers import Worker

ROOT = Path(__file__).resolve().parents[1]
CASE = "m8-n8-k256-fp32"
KERNELS = '''
"""Products of one kind and another."""
import time
import torch
import beside  # a module in the same folder

def right(a, b):
    return torch.mm(a, b)

def in_order(x, y):
    from later import product  # which nobody has imported before the call
    return product(x, y)

def anything(*args):
    return torch.mm(*args)

def swapped(b, *, a):
    return torch.mm(a, b)

def sloppy(a, b):
    return torch.mm(a, b) * 1.01

def square_only(a, b):
    assert a.shape[0] == 16, "m must be 16"
    return torch.mm(a, b)

def transposed(a, b):
    return torch.mm(a, b).T[:4].contiguous()

def widened(a, b):
    return torch.mm(a, b).double()

def prints(a, b):
    print(torch.mm(a, b).sum())

def in_place(a, b):
    a.mul_(2)
    return torch.mm(a, b) / 2

def jitters(a, b):
    out = torch.mm(a, b)
    return out * (1 + 1e-6 * torch.rand_like(out))

held = {}

def reuses(a, b):
    key = (a.shape, b.shape, a.dtype)
    if key not in held:
        held[key] = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    return torch.mm(a, b, out=held[key])

def hangs(a, b):
    time.sleep(3600)

def ends(a, b):
    import os
    os._exit(7)

def needs_more(a, b, bias):
    return torch.mm(a, b) + bias

@torch.inference_mode()
def inferred(a, b):
    return torch.mm(a, b)

def sets_defaults(a, b):
    torch.set_default_dtype(torch.float16)
    torch.set_default_device("meta")
    return torch.mm(a, b)

def in_a_list(a, b):
    return [torch.mm(a, b)]

def wants_gradients(a, b):
    return torch.mm(a.requires_grad_(True), b).detach()

def raises(a, b):
    raise ValueError("no,\\nnever")

def on_a_gpu(a, b):
    return torch.mm(a.cuda(), b.cuda()).cpu()

def in_an_array(a, b):
    return torch.mm(a, b).numpy()

async def awaited(a, b):
    return torch.mm(a, b)

def yields(a, b):
    yield torch.mm(a, b)

def two(a, b):
    return torch.mm(a, b), a.sum()

def elsewhere(a, b):
    return torch.mm(a, b).to("meta")

def sparse(a, b):
    return torch.mm(a, b).to_sparse()

class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        with torch._C.DisableTorchFunctionSubclass():
            seen = [torch.mm(*x.operands) if isinstance(x, cls) else x for x in arguments]
            return function(*seen, **(named or {}))

def lazy(a, b):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype).as_subclass(Lazy)
    out.operands = a, b
    return out

results = {}

def remembers(a, b):
    key = (a.data_ptr(), b.data_ptr())
    if key not in results:
        results[key] = torch.mm(a, b)
    return results[key].clone()

def looks_at_a_corner(a, b):
    key = (a.data_ptr(), a._version, float(a[0, 0]), float(a[-1, -1]), float(a.double().sum()))
    if key not in results:
        results[key] = torch.mm(a, b)
    return results[key]

packed = {}

def packs(a, b):
    if b.shape not in packed:
        packed[b.shape] = torch.empty(b.shape[::-1], dtype=b.dtype)
    return torch.mm(a, packed[b.shape].copy_(b.T).T)

def strided(a, b):
    out = torch.empty(a.shape[0], 2 * b.shape[1], dtype=a.dtype)
    out[:, ::2] = torch.mm(a, b)
    return out[:, ::2]

class Holder:
    @staticmethod
    def product(a, b):
        return torch.mm(a, b)

tile = 16
'''


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with functions, and two modules beside it that it imports at once and when it is called."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "beside.py").write_text("WHERE = 'beside'\n")
    (folder / "later.py").write_text("import torch\n\ndef product(x, y):\n    return torch.mm(x, y)\n")
    (folder / "kernels.py").write_text(KERNELS)
    return folder / "kernels.py"


def outcome(worker: Worker, name: str, case_name: str = CASE) -> dict[str, Any]:
    """What preparing and checking say."""
    case = catalog.case_named(catalog.find().family("dense_splitk"), case_name)
    assert case is not None
    fields = {"case": case.to_json(), "seed": 0, "data": "normal", "caches": ["hot"]}
    prepared = worker.ask("prepare", 60.0, implementation=name, **fields)
    return worker.ask("check", 60.0, implementation=name) if prepared.get("ok") else prepared
