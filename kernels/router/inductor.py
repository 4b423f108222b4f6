"""The model's own call as Inductor compiles it, and a dot product a token and expert written in torch for it.

x [T, K], w [N, K], bias [N] or none, static sizes. `inductor_default` and `inductor_max_autotune` compile what the
model runs: `F.linear`, cast to fp32 where its logits are. `inductor_gemv` compiles sum over k of x[t, None, k]
w[None, n, k], which Inductor makes one reduction kernel of; offered up to 16 tokens, since it reads both operands for
each pair.
Compiled in the worker's own process, with nothing taken from earlier processes' choices.
Refuses a CPU, where Inductor has other choices, except for the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from gemmgate.kernels._inductor.compiled import compile_once, has_option
from gemmgate.kernels._inductor.tuning import recorded
from gemmgate.kernels.router.cases import output_dtype, sizes
from gemmgate.kernels.router.library import Product, gpu_only, linear, linear_float
from gemmgate.kernels.router.operands import torch_dtype
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Refusal, Target, Tile

OPTIONS: Mapping[str, Mapping[str, object]] = {
    "inductor_default": {},
    "inductor_max_autotune": {"max_autotune": True},
    "inductor_gemv": {},
}


def model_call(case: Case) -> Product:
    """What the model of a case runs."""
    return linear if output_dtype(case) == case.dtype else linear_float


def gemv(out_dtype: torch.dtype, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """The logits as a product and a sum over the last of three dimensions, in fp32."""
    logits = (x[:, None, :].float() * w[None, :, :].float()).sum(-1)
    return (logits if bias is None else logits + bias.float()).to(out_dtype)


def supports(name: str, case: Case, target: Target) -> Refusal | None:
    if name != "inductor_default" and not target.is_gpu:
        return gpu_only("What Inductor makes of a GPU's kernels")
    if min(sizes(case)) == 0:
        return "empty", "There is nothing to choose for an empty product."
    missing = [option for option in OPTIONS[name] if not has_option(option)]
    if missing:
        return "not_in_this_torch", f"Inductor of torch {torch.__version__} has no option {', '.join(missing)}."
    return None


def prepare(name: str, case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    if tile is not None:
        raise ValueError(f"{name} takes no tile, got {dict(tile)}.")
    product = partial(gemv, torch_dtype(output_dtype(case))) if name == "inductor_gemv" else model_call(case)
    with recorded() as tuning:
        compiled = compile_once(product, tensors_of(example), OPTIONS[name])

    def bind(inputs: Inputs) -> Call:
        tensors = tensors_of(inputs)
        return lambda: compiled(*tensors)

    # Without `max_autotune` there is one choice.
    return Prepared(bind, algorithm=tuning.pick, readings_s=tuning.readings_s or None)


def tensors_of(inputs: Inputs) -> tuple[Tensor, ...]:
    """x, w and perhaps bias, as arguments."""
    return tuple(inputs[name] for name in ("x", "w", "bias") if name in inputs)


IMPLEMENTATIONS = {
    name: Implementation(name, "compiler", True, partial(supports, name), partial(prepare, name)) for name in OPTIONS
}
