"""`gemmgate try` of Triton kernels on a CPU: judged in Triton's interpreter, and not where that cannot be done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gemmgate.suite import outside
from gemmgate.suite.cli import _trial
from gemmgate.suite.records import Limits
from gemmgate.suite.report.trial import fault, is_wrong
from gemmgate.suite.workers import Worker
from tests.called import called
from tests.trials import ROOT, outcome

TRITON = """
import torch, triton, triton.language as tl

@triton.jit
def kernel(a, b, c, K, S: tl.constexpr):
    m, k = tl.arange(0, 16), tl.arange(0, 16)
    total = tl.zeros((16, 16), tl.float32)
    for start in range(0, K, 16):
        left = tl.load(a + m[:, None] * K + start + k[None, :])
        right = tl.load(b + (start + k[:, None]) * 16 + m[None, :])
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(c + m[:, None] * 16 + m[None, :], total.to(c.dtype.element_ty))

def product(a, b):
    c = torch.empty(16, 16, dtype=a.dtype)
    kernel[(1,)](a, b, c, a.shape[1], 1)
    return c

def upcast(a, b):
    return product(a.float(), b.float()).to(a.dtype)
"""


def triton_worker(folder: Path, environment: dict[str, str]) -> Worker:
    """A worker that knows `product` and `upcast` of a file with a Triton kernel."""
    (folder / "kernels.py").write_text(TRITON)
    suites = []
    for name in ("product", "upcast"):
        (folder / name).mkdir()
        file = folder / "kernels.py"
        suites.append(outside.write_suite(folder / name, "dense_splitk", name, file, name, deterministic=True))
    return Worker("cpu", suites=suites, environment=environment)


def test_a_triton_kernel_without_a_gpu_is_not_judged(tmp_path: Path) -> None:
    """On a CPU a Triton kernel is not called wrong, and the sentence says how it can be tried."""
    started = triton_worker(tmp_path, {"TRITON_INTERPRET": "0"})
    try:
        found = outcome(started, "product", "m16-n16-k32-fp32")
    finally:
        started.kill()
    assert not is_wrong(found)
    said = "cannot run here: Triton needs a GPU: on a CPU it runs in its interpreter with TRITON_INTERPRET=1, for fp32"
    assert fault(found).startswith(said)


def test_the_interpreter_is_not_asked_about_bf16(tmp_path: Path) -> None:
    """A product of bf16 in Triton's interpreter is not judged; fp16, fp32 and bf16 made fp32 before are."""
    started = triton_worker(tmp_path, {"TRITON_INTERPRET": "1"})
    try:
        unjudged = outcome(started, "product", "m16-n16-k32-bf16")
        others = [outcome(started, "product", f"m16-n16-k32-{dtype}") for dtype in ("fp16", "fp32")]
        upcast = outcome(started, "upcast", "m16-n16-k32-bf16")
    finally:
        started.kill()
    assert not is_wrong(unjudged)
    said = "Triton's interpreter computes tl.dot of bf16 wrongly; take an fp16 or fp32 case"
    assert fault(unjudged) == f"cannot be judged here: {said}"
    assert all(found["ok"] for found in [*others, upcast])


EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker that knows the kernels which the docs try, and runs Triton in its interpreter."""
    folders = [
        outside.write_suite(
            tmp_path_factory.mktemp(name), "dense_splitk", name, EXAMPLES / f"{name}.py", "matmul", deterministic=True
        )
        for name in ("right", "wrong", "slow", "waits")
    ]
    started = Worker("cpu", suites=folders, environment={"TRITON_INTERPRET": "1"})
    yield started
    started.kill()


@pytest.mark.parametrize(
    ("name", "k", "status"),
    [
        ("right", 384, "ok"),
        ("slow", 384, "ok"),
        ("waits", 384, "ok"),  # what cannot be captured is right all the same
        ("wrong", 384, "ok"),  # three blocks, and so three parts of one
        ("wrong", 12416, "broken"),  # 97 blocks in 96 parts
    ],
)
def test_examples_of_the_docs(interpreter: Worker, name: str, k: int, status: str) -> None:
    """The kernels that the docs try are what they are called."""
    checked = outcome(interpreter, name, f"m16-n16-k{k}-fp32")
    assert checked.get("status", "ok") == status, checked


def test_a_slow_kernel_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreted kernel is right and takes longer than the library, exit code 0; or 3 where others used the CPU."""
    monkeypatch.setattr(_trial, "measure_limits", lambda worker: Limits())
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    options = ["--family", "dense_splitk", "--case", "m16-n16-k256-fp32", "--seconds", 4, "--device", "cpu"]
    result = called("try", EXAMPLES / "slow.py:matmul", *options)
    busy = "Not judged: other processes used the CPU" in result.stdout
    assert result.exit_code == (3 if busy else 0), result.stdout + result.stderr
    assert "Right: matmul agrees with the float64 reference on 1 case" in result.stdout
    assert ("Slower: matmul takes " in result.stdout) != busy
