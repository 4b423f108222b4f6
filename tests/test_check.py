"""Right or wrong: the bound lets honest rounding pass and nothing more."""

import math

import pytest

torch = pytest.importorskip("torch", reason="checking is done with torch")

from gemmgate.suite.measure import check  # noqa: E402  torch first
from gemmgate.suite.measure.refusal import Refused  # noqa: E402  torch first


def _product(m=48, n=40, k=2048, seed=0):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(m, k, generator=generator, dtype=torch.float64) / k**0.25
    b = torch.randn(k, n, generator=generator, dtype=torch.float64) / k**0.25
    return a, b


def test_the_rounded_reference_passes_with_no_allowance():
    """A result that is the reference rounded to the output's dtype passes with an allowance of zero."""
    exact = torch.randn(33, 17, dtype=torch.float64)
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)):
        assert check.compare([exact.to(dtype)], [exact], name, 0.0).reason == ""


def test_a_result_one_unit_off_everywhere_is_broken():
    """A bf16 result whose every element is the next number after the rounded one does not pass."""
    exact = torch.randn(32, 32, dtype=torch.float64)
    rounded = exact.to(torch.bfloat16)
    next_up = (rounded.view(torch.int16) + 1).view(torch.bfloat16)
    assert check.compare([next_up], [exact], "bf16", 1e-5).reason == "error_above_bound"


def test_partial_sums_in_bf16_are_broken():
    """Sixteen partial sums rounded to bf16 before they are added do not pass as rounding."""
    a, b = _product()
    exact = a @ b
    partial = torch.stack([x @ y for x, y in zip(a.chunk(16, 1), b.chunk(16, 0), strict=True)])
    result = partial.to(torch.bfloat16).float().sum(0).to(torch.bfloat16)
    assert check.compare([result], [exact], "bf16", 1e-4).reason == "error_above_bound"


def test_one_wrong_tile_of_many_is_found():
    """One 16 x 16 tile off by 2 % among 4096 right ones is broken though the whole error stays below its bound."""
    exact = torch.randn(1024, 1024, dtype=torch.float64)
    result = exact.clone()
    result[512:528, 256:272] *= 1.02
    found = check.compare([result.to(torch.bfloat16)], [exact], "bf16", 1e-4)
    assert found.reason == "tile_error_above_bound"
    assert found.error < found.bound


@pytest.mark.parametrize("shape", [(1, 1), (1, 37), (37, 1), (17, 33), (3, 5, 7), (5,)])
def test_shapes_that_fill_no_tile_are_compared_whole(shape):
    """An element wrong in the last place of a shape that no tile divides is found."""
    exact = torch.randn(*shape, dtype=torch.float64) + 3
    right, wrong = exact.float(), exact.float()
    wrong.view(-1)[-1] *= 1.1
    assert check.compare([right], [exact], "fp32", 1e-7).reason == ""
    assert check.compare([wrong], [exact], "fp32", 1e-7).reason != ""


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_was_not_written_is_broken(value):
    """NaN or Inf where the reference is finite is broken, and the count is said."""
    exact = torch.randn(4, 4, dtype=torch.float64)
    result = exact.float()
    result[1, 2] = value
    found = check.compare([result], [exact], "fp32", 1.0)
    assert (found.reason, found.error) == ("not_finite", math.inf)
    assert found.detail.startswith("1 of 16")


def test_shape_dtype_and_number_of_outputs_are_part_of_being_right():
    """A transposed, a wider and a second output are each refused by name."""
    exact = torch.randn(4, 6, dtype=torch.float64)
    assert check.compare([exact.float().T], [exact], "fp32", 1.0).reason == "output_shape"
    assert check.compare([exact.float()], [exact], "bf16", 1.0).reason == "output_dtype"
    assert check.compare([exact.float()] * 2, [exact], "fp32", 1.0).reason == "output_count"


class _Lazy(torch.Tensor):
    """Twice the values it was made of, once somebody looks."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        with torch._C.DisableTorchFunctionSubclass():
            seen = [2 * x.as_subclass(torch.Tensor) if isinstance(x, cls) else x for x in arguments]
            return function(*seen, **(named or {}))


def test_a_tensor_that_computes_when_it_is_looked_at_is_broken():
    """A class of tensors whose values are right, but may not be there yet, is refused; a parameter is a plain one."""
    exact = torch.ones(4, 4, dtype=torch.float64)
    lazy = torch.full((4, 4), 0.5).as_subclass(_Lazy)
    assert torch.equal(torch.add(lazy, 0), exact.float())
    assert check.compare([lazy], [exact], "fp32", 1.0).reason == "output_type"
    assert check.compare([torch.nn.Parameter(exact.float())], [exact], "fp32", 0.0).reason == ""


def test_zeros_must_be_zeros():
    """Where the reference is zero everywhere no allowance admits anything else."""
    exact = torch.zeros(4, 4, dtype=torch.float64)
    assert check.compare([exact.float()], [exact], "fp32", 1.0).reason == ""
    assert check.compare([exact.float() + 1e-30], [exact], "fp32", 1.0).reason == "error_above_bound"


def test_an_empty_output_is_right():
    """No elements, no error."""
    exact = torch.empty(0, 8, dtype=torch.float64)
    assert check.compare([exact.float()], [exact], "fp32", 0.0).reason == ""


def test_poison_leaves_nothing_of_what_was_there():
    """After poisoning, floats are NaN and integers the largest of their dtype."""
    floats, integers = torch.zeros(3, dtype=torch.bfloat16), torch.zeros(3, dtype=torch.int32)
    check.poison([floats, integers])
    assert floats.isnan().all()
    assert (integers == 2**31 - 1).all()


@torch.inference_mode()
def _inferred():
    return torch.ones(3, 3)


def test_what_was_made_in_inference_mode_is_poisoned_and_compared():
    """An inference tensor, which nothing outside inference mode may write to, is compared and then filled with NaN."""
    output = _inferred()
    assert check.compare([output], [torch.ones(3, 3, dtype=torch.float64)], "fp32", 0.0).reason == ""
    check.poison([output])
    assert output.isnan().all()


def test_poison_takes_what_autograd_holds():
    """A leaf that requires a gradient, and what was computed from it, are filled with NaN."""
    leaf = torch.ones(3, requires_grad=True)
    computed = leaf * 2
    check.poison([computed, leaf])
    assert computed.isnan().all()
    assert leaf.isnan().all()


def test_a_view_is_an_input_too():
    """An input that is a view, as of a padded tensor, is given back without `requires_grad`."""
    a = torch.arange(6.0).reshape(2, 3)
    with pytest.raises(Refused), check.unchanged({"a": a}):
        a.requires_grad_(True)
    assert not a.requires_grad


def test_inputs_that_are_left_alone_pass():
    """Reading an input, through a transposed view too, changes nothing of it."""
    inputs = {"a": torch.ones(2, 3)}
    with check.unchanged(inputs):
        inputs["a"].T.contiguous().mul_(2)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda a: a.mul_(2), "inputs_changed"),
        (lambda a: a.t_(), "inputs_changed"),
        (lambda a: a.resize_(1, 1), "inputs_changed"),
        (lambda a: a.mul_(torch.full((1,), 2.0, requires_grad=True)), "inputs_changed"),
        (lambda a: a.requires_grad_(True), "inputs_require_grad"),
        (lambda a: a.requires_grad_(True).sum().backward(), "inputs_require_grad"),
    ],
    ids=["values", "transposed", "resized", "values-with-a-gradient", "requires-grad", "gradient"],
)
def test_changed_inputs_are_found_and_put_back(change, reason):
    """Values, shape and `requires_grad` are found changed and are what they were afterwards, without a gradient."""
    a = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    with pytest.raises(Refused) as refused, check.unchanged({"a": a}):
        change(a)
    assert refused.value.reason == reason
    assert torch.equal(a, torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]))
    assert (a.stride(), a.is_leaf, a.requires_grad, a.grad) == ((3, 1), True, False, None)


def test_many_outputs_are_poisoned_whatever_was_in_them():
    """Of several dtypes and layouts, infinite, expanded and empty ones too: nothing but NaN is left."""
    kinds = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn)
    tensors = [torch.full((2, 3), value).to(kind) for kind in kinds for value in (math.inf, -math.inf, 0.0)]
    tensors += [torch.zeros(4, 6)[:, ::2], torch.zeros(4, 6).t(), torch.zeros(1).expand(4), torch.empty(0)]
    check.poison(tensors)
    assert all(bool(tensor.float().isnan().all()) for tensor in tensors)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("size", [3, (1 << 16) + 1])
def test_one_element_that_was_not_written_is_found(value, size):
    """Among many tensors, small or large, a single element that is no finite number shows; whole numbers never do."""
    tensors = [torch.zeros(size, dtype=kind) for kind in (torch.bfloat16, torch.float32) for _ in range(5)]
    tensors.append(torch.zeros(3, dtype=torch.int32))
    assert check.all_finite(tensors)
    tensors[7][size - 1] = value
    assert not check.all_finite(tensors)
    assert check.all_finite([])
