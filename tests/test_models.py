"""From a model's config to its products: sizes and counts worked out by hand from the models' papers and cards."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gemmgate.suite.catalog import Catalog, find
from gemmgate.suite.models import read_model
from gemmgate.suite.shapes import Shape, make_cases
from tests import model_configs as configs


def shapes(tmp_path: Path, config: configs.Config, *tokens: int) -> tuple[dict[str, Shape], list[str]]:
    """The products of a pass by their names; of several passes the last one's."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    found, notes = read_model(tmp_path / "config.json", tokens)
    return {shape.origin.partition(": ")[2]: shape for shape in found}, notes


Expected = dict[str, tuple[int, int, int]]
"""N, K and calls of a pass with one token, by the product's name."""
MODELS: list[tuple[str, configs.Config, Expected]] = [
    (
        "llama",
        configs.LLAMA_3_8B,
        {
            "qkv": (6144, 4096, 32),  # (32 + 2 x 8) x 128
            "o": (4096, 4096, 32),
            "mlp.gate_up": (28672, 4096, 32),
            "mlp.down": (4096, 14336, 32),
            "lm_head": (128256, 4096, 1),
        },
    ),
    (
        "qwen2",
        configs.QWEN2_7B,
        {
            "qkv": (4608, 3584, 28),  # (28 + 2 x 4) x 128
            "o": (3584, 3584, 28),
            "mlp.gate_up": (37888, 3584, 28),
            "mlp.down": (3584, 18944, 28),
            "lm_head": (152064, 3584, 1),
        },
    ),
    (
        "qwen3_moe",
        configs.QWEN3_30B_A3B,
        {
            "qkv": (5120, 2048, 48),  # (32 + 2 x 4) x 128
            "o": (2048, 4096, 48),
            "router": (128, 2048, 48),
            "expert.gate_up": (1536, 2048, 8 * 48),
            "expert.down": (2048, 768, 8 * 48),
            "lm_head": (151936, 2048, 1),
        },
    ),
    (
        "qwen2_moe",
        configs.QWEN2_MOE,
        {
            "qkv": (6144, 2048, 24),
            "o": (2048, 2048, 24),
            "mlp.gate_up": (11264, 2048, 13),  # the even layers, and the third of the odd ones is named as dense
            "mlp.down": (2048, 5632, 13),
            "router": (60, 2048, 11),
            "expert.gate_up": (2816, 2048, 4 * 11),
            "expert.down": (2048, 1408, 4 * 11),
            "shared_expert.gate_up": (11264, 2048, 11),
            "shared_expert.down": (2048, 5632, 11),
            "lm_head": (151936, 2048, 1),
        },
    ),
    (
        "mixtral",
        configs.MIXTRAL_8X7B,
        {
            "qkv": (6144, 4096, 32),
            "o": (4096, 4096, 32),
            "router": (8, 4096, 32),
            "expert.gate_up": (28672, 4096, 2 * 32),
            "expert.down": (4096, 14336, 2 * 32),
            "lm_head": (32000, 4096, 1),
        },
    ),
    (
        "deepseek_v3",
        configs.DEEPSEEK_V3,
        {
            "qkv_a": (2112, 7168, 61),
            "q_b": (24576, 1536, 61),
            "kv_b": (32768, 512, 61),
            "o": (7168, 16384, 61),
            "mlp.gate_up": (36864, 7168, 3),
            "mlp.down": (7168, 18432, 3),
            "router": (256, 7168, 58),
            "expert.gate_up": (4096, 7168, 8 * 58),
            "expert.down": (7168, 2048, 8 * 58),
            "shared_expert.gate_up": (4096, 7168, 58),
            "shared_expert.down": (7168, 2048, 58),
            "lm_head": (129280, 7168, 1),
        },
    ),
    (
        "deepseek_v2",
        configs.DEEPSEEK_V2_LITE,
        {
            "q": (3072, 2048, 27),
            "kv_a": (576, 2048, 27),
            "kv_b": (4096, 512, 27),
            "o": (2048, 2048, 27),
            "mlp.gate_up": (21888, 2048, 1),
            "mlp.down": (2048, 10944, 1),
            "router": (64, 2048, 26),
            "expert.gate_up": (2816, 2048, 6 * 26),
            "expert.down": (2048, 1408, 6 * 26),
            "shared_expert.gate_up": (5632, 2048, 26),
            "shared_expert.down": (2048, 2816, 26),
            "lm_head": (102400, 2048, 1),
        },
    ),
    (
        "kimi_k2",
        configs.KIMI_K2,
        {
            "qkv_a": (2112, 7168, 61),
            "q_b": (12288, 1536, 61),
            "kv_b": (16384, 512, 61),
            "o": (7168, 8192, 61),
            "mlp.gate_up": (36864, 7168, 1),
            "mlp.down": (7168, 18432, 1),
            "router": (384, 7168, 60),
            "expert.gate_up": (4096, 7168, 8 * 60),
            "expert.down": (7168, 2048, 8 * 60),
            "shared_expert.gate_up": (4096, 7168, 60),
            "shared_expert.down": (7168, 2048, 60),
            "lm_head": (163840, 7168, 1),
        },
    ),
    (
        "gpt_oss",
        configs.GPT_OSS_120B,
        {
            "qkv": (5120, 2880, 36),  # (64 + 2 x 8) x 64
            "o": (2880, 4096, 36),
            "router": (128, 2880, 36),
            "expert.gate_up": (5760, 2880, 4 * 36),
            "expert.down": (2880, 2880, 4 * 36),
            "lm_head": (201088, 2880, 1),
        },
    ),
    (
        "glm4_moe",
        configs.GLM_4_5,
        {
            "qkv": (14336, 5120, 92),  # (96 + 2 x 8) x 128
            "o": (5120, 12288, 92),
            "mlp.gate_up": (24576, 5120, 3),
            "mlp.down": (5120, 12288, 3),
            "router": (160, 5120, 89),
            "expert.gate_up": (3072, 5120, 8 * 89),
            "expert.down": (5120, 1536, 8 * 89),
            "shared_expert.gate_up": (3072, 5120, 89),
            "shared_expert.down": (5120, 1536, 89),
            "lm_head": (151552, 5120, 1),
        },
    ),
    (
        "minimax",
        configs.MINIMAX_M2,
        {
            "qkv": (8192, 3072, 62),  # (48 + 2 x 8) x 128
            "o": (3072, 6144, 62),
            "router": (256, 3072, 62),
            "expert.gate_up": (3072, 3072, 8 * 62),
            "expert.down": (3072, 1536, 8 * 62),
            "lm_head": (200064, 3072, 1),
        },
    ),
    (
        "llama4",
        configs.LLAMA4_MAVERICK,
        {
            "qkv": (7168, 5120, 48),  # (40 + 2 x 8) x 128
            "o": (5120, 5120, 48),
            "mlp.gate_up": (32768, 5120, 24),
            "mlp.down": (5120, 16384, 24),
            "router": (128, 5120, 24),
            "expert.gate_up": (16384, 5120, 24),
            "expert.down": (5120, 8192, 24),
            "shared_expert.gate_up": (16384, 5120, 24),
            "shared_expert.down": (5120, 8192, 24),
            "lm_head": (202048, 5120, 1),
        },
    ),
]


@pytest.mark.parametrize(("config", "expected"), [model[1:] for model in MODELS], ids=[model[0] for model in MODELS])
def test_products_of_a_model(tmp_path: Path, config: configs.Config, expected: Expected) -> None:
    """Names, N, K and calls of every product in a pass with one token are those of the model's card."""
    found, _ = shapes(tmp_path, config, 1)
    assert {name: (shape.n, shape.k, shape.calls) for name, shape in found.items()} == expected
    assert {shape.m for shape in found.values()} == {1}
    assert {shape.dtype for shape in found.values()} == {"bf16"}


def test_tokens_are_spread_over_experts(tmp_path: Path) -> None:
    """Of 128 tokens with 8 of 256 experts each, every one gets 4; of 3, 24 get one each; 10 over 8 are 2 each."""
    found, _ = shapes(tmp_path, configs.DEEPSEEK_V3, 128)
    assert (found["expert.down"].m, found["expert.down"].calls) == (4, 256 * 58)
    assert (found["router"].m, found["router"].calls, found["router"].group) == (128, 58, "128 tokens")
    found, _ = shapes(tmp_path, configs.DEEPSEEK_V3, 1, 3)
    assert (found["expert.down"].m, found["expert.down"].calls) == (1, 24 * 58)
    found, _ = shapes(tmp_path, configs.MIXTRAL_8X7B, 5)
    assert (found["expert.down"].m, found["expert.down"].calls) == (2, 8 * 32)


def test_parameters_add_up(tmp_path: Path) -> None:
    """N x K over the products of Llama-3-8B, with its embedding, come to its 8.03 billion parameters."""
    found, _ = shapes(tmp_path, configs.LLAMA_3_8B, 1)
    weights = sum(shape.n * shape.k * (shape.calls or 0) for shape in found.values())
    assert weights + 128256 * 4096 == pytest.approx(8.03e9, rel=1e-3)


def test_active_parameters_add_up(tmp_path: Path) -> None:
    """N x K of one token's pass come to DeepSeek-V3's 37 billion active parameters, without the embedding."""
    found, _ = shapes(tmp_path, configs.DEEPSEEK_V3, 1)
    weights = sum(shape.n * shape.k * (shape.calls or 0) for shape in found.values())
    assert weights == pytest.approx(37e9, rel=0.02)


def test_layers_with_another_attention_are_left_out_and_said(tmp_path: Path) -> None:
    """Three of four layers of Qwen3-Next are linear attention; gated queries count twice in the others."""
    found, notes = shapes(tmp_path, configs.QWEN3_NEXT, 1)
    assert notes[0] == "36 of 48 layers have another kind of attention, whose products are left out."
    assert (found["qkv"].n, found["qkv"].calls) == ((2 * 16 + 2 * 2) * 256, 12)


def test_quantised_weights_are_said(tmp_path: Path) -> None:
    """A config with quantised weights is measured in its dtype, and a sentence says so."""
    _, notes = shapes(tmp_path, configs.DEEPSEEK_V3, 1)
    assert notes[0] == "its weights are stored as fp8; products are measured in bf16."


def test_what_is_assumed_of_a_router_is_said(tmp_path: Path) -> None:
    """One sentence says how the router is measured and judged and what the config says; a dense model has none."""
    _, notes = shapes(tmp_path, {**configs.GPT_OSS_120B, "scoring_func": "sigmoid"}, 1)
    (said,) = [note for note in notes if "router" in note]
    assert "bf16 to bf16 without a bias" in said and "best 8 by softmax; the config says 4 a token by sigmoid." in said
    _, notes = shapes(tmp_path, configs.MIXTRAL_8X7B, 1)
    assert "2 a token, by scores it does not name" in notes[0]
    assert shapes(tmp_path, configs.LLAMA_3_8B, 1)[1] == []


def test_layers_named_one_by_one(tmp_path: Path) -> None:
    """`moe_layers`, a list as `moe_layer_freq`, and `layer_types` each say of every layer what it is."""
    base = {**configs.MIXTRAL_8X7B, "num_hidden_layers": 4}
    found, _ = shapes(tmp_path, {**base, "moe_layers": [1, 3]}, 1)
    assert (found["router"].calls, found["mlp.down"].calls) == (2, 2)
    found, _ = shapes(tmp_path, {**base, "moe_layer_freq": [0, 1, 1, 1]}, 1)
    assert (found["router"].calls, found["mlp.down"].calls) == (3, 1)
    kinds = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
    found, _ = shapes(tmp_path, {**base, "layer_types": kinds}, 1)
    assert found["qkv"].calls == 1


def test_ungated_feed_forward(tmp_path: Path) -> None:
    """A model type without a gate has products up and down."""
    found, _ = shapes(tmp_path, {**configs.LLAMA_3_8B, "model_type": "starcoder2"}, 1)
    assert (found["mlp.up"].n, "mlp.gate_up" in found) == (14336, False)


@pytest.mark.parametrize("field", ["torch_dtype", "dtype"])
def test_dtype_of_a_config(tmp_path: Path, field: str) -> None:
    """Either name of the field counts."""
    config = {key: value for key, value in configs.LLAMA_3_8B.items() if key != "torch_dtype"}
    found, _ = shapes(tmp_path, {**config, field: "float16"}, 1)
    assert found["o"].dtype == "fp16"


# which family


def test_the_first_family_that_makes_cases_takes_all_roles(tmp_path: Path) -> None:
    """Without a family of a role's name the products go to one family, and a sentence counts them by role."""
    (tmp_path / "config.json").write_text(json.dumps(configs.QWEN3_30B_A3B))
    found, _ = read_model(tmp_path, (1,))
    known = find()
    only = {name: family for name, family in known.families.items() if name == "dense_splitk"}
    made = make_cases(found, Catalog(only, known.packages))
    assert {case.family for case in made.cases} == {"dense_splitk"}
    assert "measured as dense_splitk: 2 attention, 1 router, 2 expert, 1 dense." in made.notes


def test_a_family_of_the_roles_name_takes_it(tmp_path: Path) -> None:
    """Router products go to a family called router that makes cases, others do not."""
    (tmp_path / "config.json").write_text(json.dumps(configs.MIXTRAL_8X7B))
    found, _ = read_model(tmp_path, (1,))
    general = find().family("dense_splitk")
    make = general.make_case
    assert make is not None
    router = replace(general, name="router", cases=(), make_case=lambda *words: replace(make(*words), family="router"))
    made = make_cases(found, Catalog({"dense_splitk": general, "router": router}, {}))
    assert {(case.family, case.dims["n"]) for case in made.cases if case.family == "router"} == {("router", 8)}
    assert made.calls["1 token"]["router/m1-n8-k4096-bf16"] == 32
    assert not any("router" in note for note in made.notes)
