"""Configs and options that fit no model: each ends in a sentence that names the file and the field, or the option."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmgate.suite.errors import UnreadableError, UsageError
from gemmgate.suite.models import read_model
from tests import model_configs as configs
from tests.called import called

SMALL = '{"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_experts": 4, '


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "config.json is no JSON: "),
        ("[" * 100_000, "config.json is no JSON: "),
        ("[1]", "config.json holds no JSON object"),
        ("{}", "it has no field 'hidden_size' or 'n_embd' or 'd_model'. Is it the config of a language model"),
        ('{"hidden_size": "large"}', "field 'hidden_size' is \"large\", which is no number"),
        ('{"hidden_size": 8, "num_hidden_layers": [2]}', "field 'num_hidden_layers' is [2], which is no number"),
        ('{"hidden_size": 8, "num_layers": 0}', "field 'num_layers' is 0, which is no whole number above 0"),
        (SMALL.replace('heads": 2', 'heads": 0') + '"vocab_size": 8}', "field 'num_attention_heads' is 0, which is no"),
        (SMALL + '"num_experts_per_tok": 2}', "it has no field 'intermediate_size'"),
        (SMALL + '"moe_intermediate_size": 4}', "it has no field 'experts_per_token' or 'num_experts_per_tok' or"),
        ('{"hidden_size": 8, "num_hidden_layers": 2, "torch_dtype": "fp4"}', "'fp4' is no dtype known here"),
    ],
)
def test_what_is_no_config(tmp_path: Path, text: str, said: str) -> None:
    """No JSON, no object, a field that is missing, 0 or no number: the sentence names the file and the field."""
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UnreadableError) as error:
        read_model(tmp_path, (1,))
    assert said in str(error.value)
    assert str(tmp_path / "config.json") in str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("moe_layer_freq", [1, 0], "field 'moe_layer_freq' has 2 entries for 48 layers"),
        ("mlp_only_layers", 5, "field 'mlp_only_layers' is 5, which is no list"),
        ("hidden_size", float("inf"), "field 'hidden_size' is inf, which is no whole number of 0 or more"),
        ("hidden_size", float("nan"), "field 'hidden_size' is nan, which is no whole number of 0 or more"),
        ("hidden_size", 2048.5, "field 'hidden_size' is 2048.5, which is no whole number"),
        ("num_key_value_heads", -4, "field 'num_key_value_heads' is -4, which is no whole number"),
        ("num_experts_per_tok", 999, "it has 128 experts, and each token goes to 999"),
        ("head_dim", None, "its product qkv would be 0 by 2048"),
    ],
)
def test_fields_that_fit_no_model(tmp_path: Path, field: str, value: object, said: str) -> None:
    """A field whose value no model can have is named with the value, and never a traceback or a product of nothing."""
    heads = {"num_attention_heads": 4096} if field == "head_dim" else {}
    (tmp_path / "config.json").write_text(json.dumps({**configs.QWEN3_30B_A3B, **heads, field: value}))
    with pytest.raises(UnreadableError) as error:
        read_model(tmp_path, (1,))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("expert_layer_period", 2),
        ("attn_layer_offset", 4),
        ("moe_layer_start_index", 1),
        ("moe_layer_frequency", 2),
        ("parallel_attn_mlp_res", True),
    ],
)
def test_patterns_of_layers_that_are_not_understood(tmp_path: Path, field: str, value: object) -> None:
    """A field that says which layers are of which kind, and that is not read, is refused by name; null says nothing."""
    (tmp_path / "config.json").write_text(json.dumps({**configs.MIXTRAL_8X7B, field: value}))
    with pytest.raises(UnreadableError, match=f"field '{field}' is .*not understood"):
        read_model(tmp_path, (1,))
    (tmp_path / "config.json").write_text(json.dumps({**configs.MIXTRAL_8X7B, field: None}))
    assert read_model(tmp_path, (1,))[0]


def test_a_config_that_is_not_there(tmp_path: Path) -> None:
    """A folder without a config is named with the reason."""
    with pytest.raises(UsageError, match=r"config\.json: No such file"):
        read_model(tmp_path, (1,))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tokens", "1,x"], "--tokens '1,x' should be whole numbers above 0"),
        (["--tokens", "0"], "--tokens '0' should be"),
        (["--family", "dense_splitc"], "Did you mean dense_splitk?"),
        (["--case", "m2*"], "No case matches 'm2*'"),
        (["--tag", "quick"], "No tag matches 'quick'. Known: attention, dense."),
        (["--dtype", "fp16"], "--dtype means nothing without --shapes"),
    ],
)
@pytest.mark.parametrize("command", ["run", "list"])
def test_bad_options(tmp_path: Path, command: str, options: list[str], said: str) -> None:
    """Options that make no sense with a config end with exit code 2 before anything is measured."""
    (tmp_path / "config.json").write_text(json.dumps(configs.LLAMA_3_8B))
    result = called(command, "--config", tmp_path, *options, *(["--tokens", "1"] if "--tokens" not in options else []))
    assert result.exit_code == 2
    assert said in result.said


def test_tokens_need_a_config() -> None:
    """--tokens alone is an error."""
    result = called("run", "--tokens", "4")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--tokens means nothing without --config" in result.said
