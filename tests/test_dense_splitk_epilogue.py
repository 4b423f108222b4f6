"""The family `dense_splitk_epilogue`: its cases, inputs, reference and bound, and what is offered where."""

from __future__ import annotations

import pytest
import torch

from gemmgate.kernels.dense_splitk_epilogue import FAMILY, cases, own
from gemmgate.kernels.dense_splitk_epilogue.cases import case_of
from gemmgate.kernels.dense_splitk_epilogue.inputs import make_inputs
from gemmgate.kernels.dense_splitk_epilogue.reference import reference
from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import find, offered

BY_NAME = {case.name: case for case in FAMILY.cases}
H200 = Target("sm_90", sm_count=132, shared_bytes=232448)
EPILOGUES = sorted({case.epilogue for case in FAMILY.cases})


def test_every_shape_of_the_set_has_eight_epilogues() -> None:
    """The 32 shapes of the split-K set stand with eight epilogues in bf16, and with ReLU in four formats."""
    found = [case for case in FAMILY.cases if "tritonbench" in case.tags]
    assert sum(case.dtype == "bf16" for case in found) == 8 * 32
    assert sum(case.epilogue == "relu" for case in found) == 4 * 32


def test_thirty_cases_stand_beside_a_compiler() -> None:
    """The named cases on which Inductor is measured are thirty: six shapes by five epilogues."""
    assert len([case for case in FAMILY.cases if "beside" in case.tags]) == 30


def test_quick_cases_exist() -> None:
    """Every name of the quick set is a case, and there are ten."""
    assert sum("quick" in case.tags for case in FAMILY.cases) == len(cases._QUICK) == 10


@pytest.mark.parametrize(
    ("epilogue", "expected"),
    [
        ("relu", 65536 + 131072 + 512),
        ("bias-relu", 65536 + 131072 + 512 + 32),
        ("residual", 65536 + 131072 + 512 + 512),
        ("cast", 65536 + 131072 + 1024),
        ("sliced", 65536 + 65536 + 256),
        ("cast-in", 131072 + 131072 + 512),
        ("dequantise", 65536 + 65536 + 512 + 64),
        ("rms-scale", 65536 + 131072 + 512 + 32 + 4096),
    ],
)
def test_bytes_by_hand(epilogue: str, expected: int) -> None:
    """(16, 4096, 32) in bf16: operands, what stands beside, and C, in units of two bytes where they are 16-bit."""
    case = case_of(16, 32, 4096, "bf16", "acc32", epilogue)
    assert FAMILY.bytes_moved(case) == 2 * expected


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_reference_by_another_road(epilogue: str) -> None:
    """float64 results equal those of the formula written out in float64 with other operators."""
    case = case_of(6, 8, 40, "fp32", "ieee", epilogue)
    inputs = make_inputs(case, 3, "cpu")
    x = {name: tensor.double() for name, tensor in inputs.items()}
    product = torch.einsum("mk,kn->mn", x["a"], x["b"])
    bias = x.get("bias", torch.zeros(()))
    written = {
        "relu": product.clamp(min=0),
        "gelu": product * 0.5 * torch.special.erfc(-product / 2**0.5),
        "bias-relu": (product + bias).clamp(min=0),
        "bias-silu": (product + bias) * torch.sigmoid(product + bias),
        "bias-column": product + bias,
        "residual": product + x.get("residual", 0),
        "addmm": 0.5 * product - 2 * bias,
        "transposed": torch.einsum("km,kn->nm", x["a"].t(), x["b"]),
        "sliced": product[:, :4],
    }
    if epilogue in ("scale", "dequantise", "rms-scale"):
        scaled = x["a"] * x["weight"] if epilogue == "rms-scale" else x["a"]
        expected = (scaled @ x["b"]) * x["scale"]
    else:
        expected = written.get(epilogue, product)
    found = reference(case, inputs)
    assert found.dtype == torch.float64 and found.shape == cases.output_shape(case)
    # `rms-scale` rounds its operand to fp32 by definition.
    assert (found - expected).norm() <= (1e-7 if epilogue == "rms-scale" else 1e-12) * expected.norm()


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_inputs_follow_the_seed(epilogue: str) -> None:
    """One seed gives one set of inputs, another seed another; A and B of a product alone are its family's."""
    case = case_of(6, 8, 40, "bf16", "acc32", epilogue)
    first, again, other = (make_inputs(case, seed, "cpu") for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_outputs_are_about_one() -> None:
    """Dequantised products too have an rms near 1."""
    case = case_of(64, 64, 4096, "bf16", "acc32", "dequantise")
    assert 0.7 < reference(case, make_inputs(case, 0, "cpu")).square().mean().sqrt() < 1.4


def test_bound_tells_a_forgotten_epilogue() -> None:
    """No bound admits a product whose epilogue was left out."""
    for epilogue in EPILOGUES:
        case = case_of(32, 32, 512, "bf16", "acc32", epilogue)
        if case.layout != "row" or epilogue in ("none", "cast", "cast-in"):
            continue
        inputs = make_inputs(case, 0, "cpu")
        exact, product = reference(case, inputs), inputs["a"].double() @ inputs["b"].double()
        assert (product - exact).norm() > 10 * 2 * FAMILY.error_bound(case) * exact.norm()


def test_who_is_offered_where() -> None:
    """The library's epilogues where they compute the same, atomics on C where it is fp32 and nothing bends it."""
    assert {case.epilogue for case in FAMILY.cases if "cublaslt_fused" in offered(FAMILY, case)} == {
        "none",
        "relu",
        "bias-relu",
    }
    assert {case.epilogue for case in FAMILY.cases if "atomic_out" in offered(FAMILY, case)} == {"cast"}
    assert "decompose_k_fused" not in offered(FAMILY, BY_NAME["m32-n32-k32768-bf16-dequantise"])


def test_refusals() -> None:
    """What needs a GPU says so by code; what was refused for a product is refused with an epilogue."""
    catalog = find()
    case, cpu = BY_NAME["m32-n32-k32768-bf16-relu"], Target("cpu")
    codes = {}
    for name in offered(FAMILY, case):
        refusal = catalog.implementation(FAMILY.name, name).supports(case, cpu)
        codes[name] = refusal and refusal[0]
    assert codes.pop("cublas") is None
    assert codes.pop("decompose_k_then_epilogue") in (None, "no_fp32_partials")
    assert set(codes.values()) == {"gpu_only", "interpreter_only"}


def test_a_slice_reads_its_columns_alone() -> None:
    """The kernels compute the columns that are kept, and a transposed output through its strides."""
    sliced = case_of(6, 8, 40, "bf16", "acc32", "sliced")
    problem = own.problem_of(sliced, make_inputs(sliced, 0, "cpu"))
    assert problem.sizes == (6, 4, 40)
    turned = case_of(6, 8, 40, "bf16", "acc32", "transposed")
    problem = own.problem_of(turned, make_inputs(turned, 0, "cpu"))
    assert problem.c.shape == (6, 8) and problem.output is not None
    assert problem.output.shape == (8, 6) and problem.output.is_contiguous()
