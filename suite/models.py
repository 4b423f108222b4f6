"""The matrix products of one forward pass of a transformer, read from its Hugging Face `config.json`.

As serving engines run them: queries, keys and values in one product, gate with up, experts each by itself with
the tokens spread evenly. Products inside attention, vision towers and prediction of further tokens are left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmgate.suite.errors import UnreadableError, UsageError
from gemmgate.suite.shapes import Shape, dtype_word

Config = Mapping[str, Any]

_NESTED = ("text_config", "llm_config", "language_config")
_ALIASES = {
    "hidden_size": ("n_embd", "d_model"),
    "num_hidden_layers": ("n_layer", "num_layers"),
    "num_attention_heads": ("n_head",),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    "shared_size": ("shared_expert_intermediate_size", "shared_intermediate_size"),
}
"""The same field under other models' names; the key itself counts too."""
_UNGATED = ("gpt_neox", "nemotron", "phi", "starcoder2")
"""Model types whose feed-forward layer is two products and not three."""

_READ = {
    "moe_layer_freq",
    "interleave_moe_layer_step",
    "decoder_sparse_step",
    "full_attention_interval",
}
"""Fields about the pattern of the layers that are understood."""
_PATTERN = re.compile(
    r"(?=.*(expert|moe|attn|attention|sparse))(?=.*(period|offset|freq|start_index|end_index|interval|step))"
)
"""What a field is called that says which layers have experts or attention."""
_UNREAD = ("parallel_attn_mlp_res",)
"""Fields that add products which are not counted here, where they are true."""


@dataclass(frozen=True)
class Product:
    """C[rows, n] = A[rows, k] @ W: `calls` of them in a pass. `spread` of an expert's: (experts, experts a token)."""

    name: str
    role: str
    n: int
    k: int
    calls: int
    spread: tuple[int, int] | None = None

    def shape(self, tokens: int, dtype: str, origin: str) -> Shape:
        """With so many tokens in the pass. An expert that gets none is not called."""
        rows, used = tokens, 1
        if self.spread is not None:
            experts, each = self.spread
            used = min(experts, tokens * each)
            rows = math.ceil(tokens * each / used)
        group = "1 token" if tokens == 1 else f"{tokens} tokens"
        return Shape(rows, self.n, self.k, dtype, self.calls * used, group, self.role, f"{origin}: {self.name}")


def read_model(path: Path, tokens: Sequence[int]) -> tuple[list[Shape], list[str]]:
    """The shapes for each number of tokens, and sentences about what they leave out.

    `path` is a `config.json` or a folder with one. Raises `UsageError` where it is missing and `UnreadableError`
    where it is no such config, with the field that it lacks.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"Cannot read {file}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{file} is no JSON: {error}.") from error
    if not isinstance(config, dict):
        raise UnreadableError(f"{file} holds no JSON object, so it is no model's config.")
    try:
        model = _Model(config)
        products = list(model.products())
        for one in products:
            if min(one.n, one.k) < 1:
                raise ValueError(f"its product {one.name} would be {one.n} by {one.k}")
    except ValueError as error:
        raise UnreadableError(f"{file}: {error}. Is it the config of a language model on Hugging Face?") from error
    where = file.parent.name if file.name == "config.json" and file.parent.name else file.name
    origin = f"{model.kind} ({where})"
    return [p.shape(count, model.dtype, origin) for count in tokens for p in products], model.notes


class _Model:
    """A config's fields by one name each. Raises ValueError for one that is needed and missing, or no number."""

    def __init__(self, whole: Config) -> None:
        nested = next((whole[key] for key in _NESTED if isinstance(whole.get(key), dict)), None)
        self._config: Config = whole if nested is None else nested
        self.kind = str(self._config.get("model_type") or whole.get("model_type") or "model")
        self.notes: list[str] = []
        said = [c.get(key) for c in (self._config, whole) for key in ("torch_dtype", "dtype")]
        self.dtype = dtype_word(next((str(word) for word in said if word and word != "auto"), "bf16"))
        quantised = self._config.get("quantization_config") or whole.get("quantization_config")
        if quantised:
            method = quantised.get("quant_method", "quantised") if isinstance(quantised, dict) else "quantised"
            self.notes.append(f"its weights are stored as {method}; products are measured in {self.dtype}.")
        self._refuse_patterns()
        self.hidden = self._need("hidden_size")
        self.layers = self._need("num_hidden_layers")

    def _refuse_patterns(self) -> None:
        """A pattern of layers that is not understood would be miscounted, so it is an error."""
        for key, value in self._config.items():
            pattern = key not in _READ and _PATTERN.search(key)
            if value not in (None, False, []) and (pattern or key in _UNREAD):
                raise ValueError(
                    f"field '{key}' is {json.dumps(value)[:40]}, a pattern of layers that is not understood here, so "
                    "its products would be miscounted; give them with --shapes instead"
                )

    def products(self) -> Iterator[Product]:
        """All products of a pass, with how often each is made."""
        moe_layers = sum(map(self._is_moe, range(self.layers)))
        yield from self._attention()
        if moe_layers < self.layers:
            size = self._get("intermediate_size_mlp") or self._need("intermediate_size")
            yield from self._feed_forward("mlp", "dense", size, self.layers - moe_layers)
        if moe_layers:
            yield from self._moe(moe_layers)
        yield Product("lm_head", "dense", self._need("vocab_size"), self.hidden, 1)

    def _attention(self) -> Iterator[Product]:
        layers = sum(map(self._has_attention, range(self.layers)))
        if layers < self.layers:
            other = f"{self.layers - layers} of {self.layers} layers have another kind of attention"
            self.notes.append(f"{other}, whose products are left out.")
        if not layers:
            return
        heads = self._need("num_attention_heads")
        if self._get("kv_lora_rank"):
            yield from self._latent_attention(heads, layers)
            return
        size = self._get("head_dim") or self.hidden // heads
        queries = heads * (2 if self._config.get("attn_output_gate") else 1)
        rows = (queries + 2 * (self._get("num_key_value_heads") or heads)) * size
        yield Product("qkv", "attention", rows, self.hidden, layers)
        yield Product("o", "attention", self.hidden, heads * size, layers)

    def _latent_attention(self, heads: int, layers: int) -> Iterator[Product]:
        """Keys and values through a narrow latent, as DeepSeek's models have it."""
        latent, rope = self._need("kv_lora_rank"), self._need("qk_rope_head_dim")
        plain, value = self._need("qk_nope_head_dim"), self._need("v_head_dim")
        narrow = self._get("q_lora_rank")
        if narrow:
            yield Product("qkv_a", "attention", narrow + latent + rope, self.hidden, layers)
            yield Product("q_b", "attention", heads * (plain + rope), narrow, layers)
        else:
            yield Product("q", "attention", heads * (plain + rope), self.hidden, layers)
            yield Product("kv_a", "attention", latent + rope, self.hidden, layers)
        yield Product("kv_b", "attention", heads * (plain + value), latent, layers)
        yield Product("o", "attention", self.hidden, heads * value, layers)

    def _moe(self, layers: int) -> Iterator[Product]:
        experts, each = self._need("experts"), self._need("experts_per_token")
        if each > experts:
            raise ValueError(f"it has {experts} experts, and each token goes to {each}")
        size = self._get("moe_intermediate_size") or self._need("intermediate_size")
        yield Product("router", "router", experts, self.hidden, layers)
        self.notes.append(self._said_of_router(each))
        yield from self._feed_forward("expert", "expert", size, layers, (experts, each))
        shared = self._get("shared_size") or self._get("shared_experts") * size
        if self.kind.startswith("llama4"):
            shared = size
        if shared:
            yield from self._feed_forward("shared_expert", "dense", shared, layers)

    def _said_of_router(self, each: int) -> str:
        """What a router's product leaves out: its logits' dtype and bias stand in no config."""
        score = self._config.get("scoring_func")
        said = f"{each} a token by {score}" if isinstance(score, str) else f"{each} a token, by scores it does not name"
        return (
            f"its router is taken as a plain product, {self.dtype} to {self.dtype} without a bias, and its choice of "
            f"experts, where judged, as the best 8 by softmax; the config says {said}. The model itself may compute "
            "logits in fp32 or add a bias."
        )

    def _feed_forward(
        self, name: str, role: str, size: int, calls: int, spread: tuple[int, int] | None = None
    ) -> Iterator[Product]:
        gated = self.kind not in _UNGATED
        first = f"{name}.gate_up" if gated else f"{name}.up"
        yield Product(first, role, size * (2 if gated else 1), self.hidden, calls, spread)
        yield Product(f"{name}.down", role, self.hidden, size, calls, spread)

    def _is_moe(self, layer: int) -> bool:
        """Every model says in its own way which layers have experts."""
        if not self._get("experts"):
            return False
        named = self._config.get("moe_layers")
        if isinstance(named, list) and named:
            return layer in named
        dense = self._config.get("mlp_only_layers") or []
        if not isinstance(dense, list):
            raise ValueError(f"field 'mlp_only_layers' is {json.dumps(dense)[:40]}, which is no list")
        if layer < self._get("first_k_dense_replace") or layer in dense:
            return False
        freq = self._config.get("moe_layer_freq")
        if isinstance(freq, list):
            if len(freq) < self.layers:
                raise ValueError(f"field 'moe_layer_freq' has {len(freq)} entries for {self.layers} layers")
            return bool(freq[layer])
        step = self._get("interleave_moe_layer_step") or self._get("decoder_sparse_step")
        if step:
            return (layer + 1) % step == 0
        return layer % (self._get("moe_layer_freq") or 1) == 0

    def _has_attention(self, layer: int) -> bool:
        """Whether a layer's attention is the usual one and not a linear one or a state space."""
        kinds = self._config.get("layer_types")
        if isinstance(kinds, list) and len(kinds) == self.layers:
            return str(kinds[layer]).endswith("attention") and "linear" not in str(kinds[layer])
        flags = self._config.get("attn_type_list")
        if isinstance(flags, list) and len(flags) == self.layers:
            return bool(flags[layer])
        interval = self._get("full_attention_interval")
        return (layer + 1) % interval == 0 if interval else True

    def _get(self, name: str) -> int:
        """A field's number; 0 where it is missing or null."""
        for key in (name, *_ALIASES.get(name, ())):
            value = self._config.get(key)
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                raise ValueError(f"field '{key}' is {json.dumps(value)[:40]}, which is no number")
            if value and (not math.isfinite(value) or value < 0 or value != int(value)):
                raise ValueError(f"field '{key}' is {value}, which is no whole number of 0 or more")
            if value:
                return int(value)
        return 0

    def _need(self, name: str) -> int:
        value = self._get(name)
        if value < 1:
            also = _ALIASES.get(name, ())
            keys = [key for key in (name, *also) if key not in ("experts", "shared_size", "shared_experts")]
            zero = next((key for key in keys if self._config.get(key) == 0), "")
            if zero:
                raise ValueError(f"field '{zero}' is 0, which is no whole number above 0")
            raise ValueError("it has no field " + " or ".join(f"'{key}'" for key in keys))
        return value
