"""What is compiled without a GPU is what the GPU that is here would run."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmgate.suite import catalog
from gemmgate.suite.catalog import Selection
from gemmgate.suite.compiling import plan
from gemmgate.suite.workers import own_overlay

pytestmark = pytest.mark.gpu

CASES = ("m16-n16-k8192-bf16", "m64-n64-k65536-bf16", "m256-n256-k65536-bf16", "m32-n32-k32768-tf32")


@pytest.mark.parametrize("name", CASES)
def test_compiled_code_is_what_runs(tmp_path: Path, name: str) -> None:
    """`prepare` on this GPU, with real tensors, gives the machine code that it gives for this GPU without one."""
    import torch

    from gemmgate.kernels._triton import host

    target = host.target_of(torch.device("cuda:0"))
    known = catalog.find()
    family = known.family("dense_splitk")
    (case,) = (case for case in family.cases if case.name == name)
    inputs = known.load(family.name, family.make_inputs)(case, 0, "cuda", "normal")
    implementation = known.implementation(family.name, "triton_split_k")
    selection = Selection((family.name,), (name,), ("triton_split_k",))
    request = plan.Request(selection, {target.arch: target}, ("rule",))
    rows = plan.compile_rows(request, own_overlay(), tmp_path, 1)
    prepared = implementation.prepare(case, inputs, target, rows[0].tile)
    assert prepared.device_code
    assert {row.device_code for row in rows} == {prepared.device_code}
