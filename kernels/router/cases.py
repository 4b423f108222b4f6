"""The cases of `router`: logits[T, N] = x[T, K] @ w[N, K]^T + bias, by model and tokens. Standard library only.

A model is one line of `MODELS`, measured at every T of `TOKENS`. Its dtype rule is part of it: operands in bf16
with logits in fp32 or in bf16, or everything in fp32. `epilogue` says what differs from a plain product:
`out_fp32` where bf16 operands give fp32 logits, `bias`, or both.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gemmgate.suite.cases import Case

FAMILY = "router"
TOKENS = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 64, 127, 128, 129, 256, 512, 513, 1024, 2048, 4096)
ITEM_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
DRAWN_SEED = 20250811
DRAWN_TOKENS = (1, 2, 4, 8, 16)

MAX_SPLITS = 64
MIN_K_PER_SPLIT = 128
MAX_PARTIALS_PER_INPUT = 4
"""Partial sums beyond four times the bytes of both operands cost more traffic than parallelism pays back."""


class Model(NamedTuple):
    """One router: its sizes, the dtypes it is run in, and how its logits choose experts.

    `score` is `softmax` or `sigmoid`. Where nothing is published, `top_k` is 8 and `score` that of the model before.
    """

    name: str
    hidden: int
    experts: int
    dtype: str
    out: str
    bias: bool
    top_k: int
    score: str
    origin: str


def _model(
    name: str,
    sizes: tuple[int, int],
    dtypes: tuple[str, str],
    choice: tuple[int, str],
    origin: str,
    *,
    bias: bool = False,
) -> Model:
    return Model(name, *sizes, *dtypes, bias, *choice, origin=f"{origin}, router")


def _drawn() -> Iterator[Model]:
    """Sizes that no table was tuned on: hidden sizes of five classes of alignment, any number of experts.

    Only `random()` is used: it is the one method whose sequence Python promises to keep.
    """
    source = random.Random(DRAWN_SEED)
    for index in range(12):
        step = (512, 256, 128, 64, 8)[index % 5]
        hidden = step * round((1024 + source.random() * 7168) / step)
        experts = (8, 4, 2, 1)[index % 4] * (1 + int(source.random() * 96))
        dtype, out = (("bf16", "fp32"), ("bf16", "bf16"), ("fp32", "fp32"))[index % 3]
        origin = f"drawn, seed {DRAWN_SEED}, number {index}"
        yield Model(f"drawn{index}", hidden, max(experts, 8), dtype, out, index % 6 == 1, 8, "softmax", origin)


_BF16, _TO_FLOAT, _FP32 = ("bf16", "bf16"), ("bf16", "fp32"), ("fp32", "fp32")
MODELS = (
    _model("deepseek-v3", (7168, 256), _TO_FLOAT, (8, "sigmoid"), "DeepSeek-V3 and V3.2"),
    _model("kimi-k2", (7168, 384), _TO_FLOAT, (8, "sigmoid"), "Kimi-K2"),
    _model("kimi-k3", (7168, 896), _TO_FLOAT, (8, "sigmoid"), "Kimi-K3"),
    _model("mistral-large-3", (7168, 128), _BF16, (4, "softmax"), "Mistral-Large-3"),
    _model("glm-5.2", (6144, 256), _TO_FLOAT, (8, "sigmoid"), "GLM-5.2"),
    _model("glm-4.5", (5120, 160), _TO_FLOAT, (8, "sigmoid"), "GLM-4.5"),
    _model("qwen3-30b-a3b", (2048, 128), _BF16, (8, "softmax"), "Qwen3-30B-A3B"),
    _model("qwen3-235b-a22b", (4096, 128), _BF16, (8, "softmax"), "Qwen3-235B-A22B"),
    _model("qwen3-next", (2048, 512), _BF16, (10, "softmax"), "Qwen3-Next"),
    _model("qwen3.5-35b", (2048, 256), _BF16, (8, "softmax"), "Qwen3.5-35B"),
    _model("qwen3.5-moe", (4096, 512), _BF16, (10, "softmax"), "Qwen3.5-MoE"),
    _model("gpt-oss-120b", (2880, 128), _BF16, (4, "softmax"), "gpt-oss-120b", bias=True),
    _model("gpt-oss-20b", (2880, 32), _BF16, (4, "softmax"), "gpt-oss-20b", bias=True),
    _model("llama4-scout", (5120, 16), _BF16, (1, "sigmoid"), "Llama 4 Scout"),
    _model("llama4-maverick", (5120, 128), _BF16, (1, "sigmoid"), "Llama 4 Maverick"),
    _model("mixtral-8x7b", (4096, 8), _BF16, (2, "softmax"), "Mixtral 8x7B"),
    _model("mixtral-8x22b", (6144, 8), _BF16, (2, "softmax"), "Mixtral 8x22B"),
    _model("minimax-m2", (3072, 256), _FP32, (8, "sigmoid"), "MiniMax-M2"),
    _model("minimax-m3", (6144, 128), _FP32, (8, "sigmoid"), "MiniMax-M3"),
    _model("longcat-flash", (6144, 768), _FP32, (12, "softmax"), "LongCat-Flash"),
    _model("longcat-lite", (3072, 384), _FP32, (8, "softmax"), "LongCat-Lite"),
)
DRAWN = tuple(_drawn())

_INDUCTOR = ("deepseek-v3", "qwen3-235b-a22b", "gpt-oss-120b")
_INDUCTOR_TOKENS = (1, 8, 16, 128, 1024)
_QUICK: Mapping[str, tuple[int, ...]] = {
    "deepseek-v3": (1, 4, 8, 16, 64, 512),
    "kimi-k2": (8,),
    "glm-4.5": (4,),
    "qwen3-235b-a22b": (1, 8, 16, 128),
    "qwen3-next": (2,),
    "gpt-oss-120b": (1, 16),
    "llama4-scout": (8,),
    "mixtral-8x7b": (1, 16),
    "minimax-m2": (1, 16),
    "longcat-flash": (8,),
}
"""The cases that answer the question in a minute or two."""
_LONG = 5120
"""From this hidden size on reading x is what costs, and a second launch pays earlier."""


def _tuned_tokens(model: Model) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where tiles are searched for, of `dot_product` and of `split_k`: where each is likely to be chosen and the tile
    changes. Elsewhere the rules' tiles are as good: docs/findings/2026-11-30-router-tiles.md.
    """
    if model.dtype == "fp32":
        return (8, 32, 64, 128), ()
    return ((2, 4), (16,)) if model.hidden >= _LONG else ((4, 8), (32,))


def epilogue_of(dtype: str, out: str, *, bias: bool) -> str:
    """`none`, `bias`, `out_fp32` or `bias_out_fp32`."""
    words = [*(["bias"] if bias else []), *(["out_fp32"] if out != dtype else [])]
    return "_".join(words) or "none"


def case_of(
    t: int, n: int, k: int, dtype: str, out: str = "", *, bias: bool = False, name: str = "", origin: str = ""
) -> Case:
    """A case of any sizes; `out` is the logits' dtype, by default the operands'.

    Without a name it is called `t8-n256-k7168-bf16`, with `-bias` or `-to-float` behind it where that applies.
    """
    out = out or dtype
    if not name:
        name = f"t{t}-n{n}-k{k}-{dtype}" + ("-bias" if bias else "") + ("-to-float" if out != dtype else "")
    return Case(
        FAMILY,
        name,
        {"t": t, "n": n, "k": k},
        dtype,
        "ieee" if dtype == "fp32" else "acc32",
        epilogue=epilogue_of(dtype, out, bias=bias),
        origin=origin or "given by the caller",
    )


def make_case(
    dims: Mapping[str, int], dtype: str, precision: str, tags: tuple[str, ...] = (), origin: str = ""
) -> Case:
    """A case with logits in the operands' dtype, of dimensions t (or m), n and k.

    Raises ValueError for what is no product of this family.
    """
    known = {"t" if name == "m" else name: size for name, size in dims.items()}
    if set(known) != {"t", "n", "k"} or len(known) != len(dims) or min(known.values()) < 1:
        raise ValueError(f"{FAMILY} has the dimensions t (or m), n and k, each at least 1; not {dict(dims)}.")
    if (dtype, precision) not in (("bf16", "acc32"), ("fp16", "acc32"), ("fp32", "ieee")):
        raise ValueError(f"{FAMILY} computes in bf16 acc32, fp16 acc32 and fp32 ieee; not in {dtype} {precision}.")
    made = case_of(known["t"], known["n"], known["k"], dtype, origin=origin)
    return Case(**{**{name: getattr(made, name) for name in Case.__dataclass_fields__}, "tags": tags})


def _of_model(model: Model, t: int, tags: tuple[str, ...]) -> Case:
    made = case_of(
        t,
        model.experts,
        model.hidden,
        model.dtype,
        model.out,
        bias=model.bias,
        name=f"{model.name}-t{t}-{model.dtype}",
        origin=model.origin,
    )
    return Case(**{**{name: getattr(made, name) for name in Case.__dataclass_fields__}, "tags": tags})


_TUNE = ("tune-dot", "tune-split")


def _catalog() -> Iterator[Case]:
    for model in MODELS:
        for t in TOKENS:
            quick = ["quick"] if t in _QUICK.get(model.name, ()) else []
            compiled = ["inductor"] if model.name in _INDUCTOR and t in _INDUCTOR_TOKENS else []
            small = ["small"] if t <= 16 else []
            tuned = [tag for tag, some in zip(_TUNE, _tuned_tokens(model), strict=True) if t in some]
            yield _of_model(model, t, (*quick, *compiled, *small, *tuned, model.name, "models", "full"))
    for model in DRAWN:
        for t in DRAWN_TOKENS:
            yield _of_model(model, t, ("drawn", "full"))


CASES = tuple(_catalog())


def sizes(case: Case) -> tuple[int, int, int]:
    """(T, N, K)"""
    return case.dims["t"], case.dims["n"], case.dims["k"]


def has_bias(case: Case) -> bool:
    return "bias" in case.epilogue


def output_dtype(case: Case) -> str:
    """The dtype of the logits."""
    return "fp32" if case.epilogue.endswith("out_fp32") else case.dtype


def shape_key(case: Case) -> str:
    """All but T, the key of tuned ranges of T: `n256-k7168-bf16-acc32-row-out_fp32`."""
    _, n, k = sizes(case)
    return "-".join((f"n{n}", f"k{k}", case.dtype, case.precision, case.layout, case.epilogue))


def flop(case: Case) -> int:
    """A multiplication and an addition for each product."""
    t, n, k = sizes(case)
    return 2 * t * n * k


def bytes_moved(case: Case) -> int:
    """x, w and bias read once, the logits written once."""
    t, n, k = sizes(case)
    read = (t * k + n * k + (n if has_bias(case) else 0)) * ITEM_BYTES[case.dtype]
    return read + t * n * ITEM_BYTES[output_dtype(case)]


def legal_splits(case: Case) -> tuple[int, ...]:
    """Numbers of equal parts that K may be cut into, ascending; empty where there is none."""
    t, n, k = sizes(case)
    most_bytes = MAX_PARTIALS_PER_INPUT * (t * k + n * k) * ITEM_BYTES[case.dtype]
    most = min(MAX_SPLITS, k // MIN_K_PER_SPLIT)
    return tuple(s for s in range(2, most + 1) if k % s == 0 and s * t * n * 4 <= most_bytes)


SPLITS = tuple(sorted({s for case in CASES for s in legal_splits(case)}))
"""Every number of parts that is legal for a case of the catalog."""


def twin(case: Case) -> Case:
    """A case for the interpreter: at most 17 tokens, 40 experts and some hundred K, of the same format.

    K keeps its remainder by 64, and so its alignment.
    """
    t, n, k = sizes(case)
    small = k if k < 640 else 512 + k % 64
    return case_of(
        min(t, 17),
        min(n, 40),
        small,
        case.dtype,
        output_dtype(case),
        bias=has_bias(case),
        origin=f"twin of {case.name}",
    )
