"""The public functions have no derivative, and nobody gets zeros for one: of either mode, eager, compiled or traced."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from gemmgate.kernels.dense_splitk import matmul
from gemmgate.kernels.dense_splitk.triton_split_k import split_k
from gemmgate.kernels.router import logits

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is:DeprecationWarning")  # torch.func.jvp's own

Product = Callable[..., Tensor]
OPERANDS = (torch.ones(4, 4), torch.ones(4, 4), torch.ones(4))
PLACES = [(product, place) for product in (matmul, logits) for place in range(3)]


def with_one(place: int, operand: Tensor) -> list[Tensor]:
    """The operands, one of them in its place replaced."""
    return [operand if index == place else x for index, x in enumerate(OPERANDS)]


@pytest.mark.parametrize(("product", "place"), PLACES)
@pytest.mark.parametrize("compiled", [False, True])
def test_a_gradient_is_refused_by_the_operator(compiled: bool, product: Product, place: int) -> None:
    """The graph is not cut where an operand wants a gradient, and a backward pass names the operator that has none."""
    call = torch.compile(product, backend="eager", fullgraph=True) if compiled else product
    out = call(*with_one(place, torch.ones_like(OPERANDS[place]).requires_grad_()))
    assert out.requires_grad
    with pytest.raises(RuntimeError, match=r"backward through gemmgate\.\w+\.default but no autograd formula"):
        out.sum().backward()


@pytest.mark.parametrize("product", [matmul, logits])
def test_parameters_without_grad_mode(product: Product) -> None:
    """Weights of a model, which want gradients, are multiplied as any others where grad mode is off."""
    operands = [torch.nn.Parameter(x) for x in OPERANDS]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(product(*operands), torch.full((4, 4), 5.0))


@pytest.mark.parametrize(("product", "place"), [*PLACES, (split_k, 0), (split_k, 1)])
def test_a_tangent_is_refused(product: Product, place: int) -> None:
    """An operand with a tangent, of either of torch's two kinds of forward mode, is refused: it would be lost."""
    count = 2 if product is split_k else 3
    x = OPERANDS[place]
    said = f"{product.__name__} has no derivative.*torch's product"
    with pytest.raises(NotImplementedError, match=said), forward_ad.dual_level():
        product(*with_one(place, forward_ad.make_dual(x, x))[:count])
    with pytest.raises(NotImplementedError, match=said):
        torch.func.jvp(lambda tangent: product(*with_one(place, tangent)[:count]), (x,), (x,))


@pytest.mark.parametrize("product", [matmul, logits])
def test_constants_of_a_differentiated_function(product: Product) -> None:
    """Inside of a function that is differentiated, a product of what does not depend on its argument is computed."""
    x = torch.tensor(3.0)
    value, tangent = torch.func.jvp(lambda x: x * x * product(*OPERANDS), (x,), (torch.ones(()),))
    assert torch.equal(value, torch.full((4, 4), 45.0))
    assert torch.equal(tangent, torch.full((4, 4), 30.0))
