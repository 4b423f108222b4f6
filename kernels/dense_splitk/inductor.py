"""C = A @ B as Inductor compiles it: what it does by default, what its autotuner picks, and what it could have picked.

a [M, K] and b [K, N] row-major, static sizes. The autotuner (`max_autotune`) times the library's product,
its Triton templates and, where K is long beside M and N, decompose-K with some divisors of K, and keeps
what read fastest. It times with events around eager launches, which for kernels of some microseconds is
mostly the launch: `inductor_best_choice` times the same compiled choices as the harness times everything.
Compiled in the worker's own process, with nothing taken from earlier processes' choices.
Refuses a CPU, where the autotuner has other choices, except for the default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch._inductor import utils

from gemmgate.kernels._inductor.compiled import compile_once, has_option
from gemmgate.kernels._inductor.tuning import Tuning, call_of, recorded
from gemmgate.kernels.dense_splitk.cases import sizes
from gemmgate.kernels.dense_splitk.cublas import cpu_refusal, gpu_only
from gemmgate.kernels.dense_splitk.inputs import make_inputs
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Refusal, Target, Tile

_SPLITS = "triton.num_decompose_k_splits"
_THRESHOLD = "triton.decompose_k_threshold"
_TUNE: Mapping[str, object] = {"max_autotune": True}


@dataclass(frozen=True)
class Way:
    """A way to ask Inductor for the product: its options, and whether only decompose-K may be chosen."""

    options: Mapping[str, object]
    only_decompose_k: bool = False


WAYS = {
    "inductor_default": Way({}),
    "inductor_max_autotune": Way(_TUNE),
    "inductor_decompose_k": Way({**_TUNE, _THRESHOLD: 0}, only_decompose_k=True),
    "inductor_no_decompose_k": Way({**_TUNE, _SPLITS: 0}),
}

_latest: dict[Case, Tuning] = {}
"""The tuning of the case that `inductor_max_autotune` prepared last: the search beside it has the same choices."""


def mm(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b)


def supports(name: str, case: Case, target: Target) -> Refusal | None:
    if not target.is_gpu:
        return cpu_refusal(case) if name == "inductor_default" else gpu_only("Inductor's autotuner")
    if min(sizes(case)) == 0:
        return "empty", "There is nothing to choose for an empty product."
    way = WAYS.get(name)
    missing = [option for option in (way.options if way else _TUNE) if not has_option(option)]
    if missing:
        return "not_in_this_torch", f"Inductor of torch {torch.__version__} has no option {', '.join(missing)}."
    if way is not None and way.only_decompose_k and not inductor_splits(case):
        return (
            "no_split_offered",
            f"Inductor of torch {torch.__version__} offers no split of K = {case.dims['k']} here.",
        )
    return None


def inductor_splits(case: Case) -> tuple[int, ...]:
    """The numbers of parts that this torch's Inductor would try; empty where it knows no decompose-K."""
    get_k_splits = getattr(utils, "get_k_splits", None)
    return tuple(int(split) for split in get_k_splits(*sizes(case))) if get_k_splits is not None else ()


def prepare(name: str, case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    if tile is not None:
        raise ValueError(f"{name} takes no tile, got {dict(tile)}.")
    tensors, way = (example["a"], example["b"]), WAYS[name]
    _forget_gates()
    try:
        with recorded(_is_decompose_k if way.only_decompose_k else None) as tuning:
            compiled = compile_once(mm, tensors, way.options)
    finally:
        _forget_gates()
    if way.only_decompose_k and not _is_decompose_k(tuning.pick):
        raise RuntimeError(f"Inductor of torch {torch.__version__} chose '{tuning.pick}' though told otherwise.")
    if name == "inductor_max_autotune":
        _latest.clear()
        _latest[case] = tuning

    def bind(inputs: Inputs) -> Call:
        a, b = inputs["a"], inputs["b"]
        return lambda: compiled(a, b)

    # Without `max_autotune` there is one choice, the library's.
    return Prepared(bind, algorithm=tuning.pick, readings_s=tuning.readings_s or None)


def prepare_choice(case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    """Without a tile: the autotuner's pick."""
    tuning = _tuning(case, target)
    chosen = str(tile["choice"]) if tile is not None else tuning.pick
    if chosen not in tuning.choices:
        raise ValueError(f"Inductor has no choice '{chosen}' for {case.name}. It has: {', '.join(tuning.choices)}.")
    choice = tuning.choices[chosen]

    def bind(inputs: Inputs) -> Call:
        return call_of(choice, (inputs["a"], inputs["b"]))

    return Prepared(bind, tile={"choice": chosen}, algorithm=chosen, readings_s=tuning.readings_s or None)


def choices(case: Case, target: Target) -> Sequence[Tile]:
    """Everything that Inductor's autotuner timed for the case."""
    tuning = _tuning(case, target)
    return [{"choice": name} for name in tuning.readings_s or tuning.choices]


def _tuning(case: Case, target: Target) -> Tuning:
    if case not in _latest:
        example = make_inputs(case, 0, "cuda" if target.is_gpu else "cpu")
        prepare("inductor_max_autotune", case, example, target)
    return _latest[case]


def _is_decompose_k(name: str) -> bool:
    return name.startswith("decompose_k")


def _forget_gates() -> None:
    """Inductor remembers for a size whether it takes decompose-K, whatever its options are by then."""
    for name in ("use_decompose_k_choice", "get_k_splits"):
        getattr(getattr(utils, name, None), "cache_clear", lambda: None)()


IMPLEMENTATIONS = {
    **{name: Implementation(name, "compiler", True, partial(supports, name), partial(prepare, name)) for name in WAYS},
    "inductor_best_choice": Implementation(
        "inductor_best_choice",
        "compiler",
        True,
        partial(supports, "inductor_best_choice"),
        prepare_choice,
        tiles=choices,
        screened=True,
    ),
}
