"""Qwen 2 and 2.5."""

from collections.abc import Mapping
from typing import Any, Final

from ...tensor import Tensor
from ..config import ModelConfig
from ..steps import (
    Place,
    attention,
    heads,
    key_heads,
    linear,
    linears,
    plus,
    rms_norm,
    rope_halves,
    silu_mul,
)

# The tensors around the layers, and those of a layer, by the names that steps have for them.
TENSORS: Final = {
    "embedding": "token_embd.weight",
    "norm": "output_norm.weight",
    "head": "output.weight",
}
LAYER: Final = {
    "attention_norm": "attn_norm.weight",
    "query": "attn_q.weight",
    "query_bias": "attn_q.bias",
    "key": "attn_k.weight",
    "key_bias": "attn_k.bias",
    "value": "attn_v.weight",
    "value_bias": "attn_v.bias",
    "output": "attn_output.weight",
    "feed_forward_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
}
# Those that a file may lack, which then are None.
OPTIONAL: Final = frozenset[str]()
# Those by which the same is multiplied, which a layer has together.
JOINED: Final[tuple[tuple[str, ...], ...]] = (("query", "key", "value"), ("gate", "up"))


def shapes(config: ModelConfig, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor in a model of these sizes, by the names that steps have for them."""
    return {
        "embedding": (vocabulary, config.width),
        "norm": (config.width,),
        "head": (vocabulary, config.width),
        "attention_norm": (config.width,),
        "query": (config.heads * config.head_dim, config.width),
        "query_bias": (config.heads * config.head_dim,),
        "key": (config.key_heads * config.head_dim, config.width),
        "key_bias": (config.key_heads * config.head_dim,),
        "value": (config.key_heads * config.head_dim, config.width),
        "value_bias": (config.key_heads * config.head_dim,),
        "output": (config.width, config.heads * config.head_dim),
        "feed_forward_norm": (config.width,),
        "gate": (config.hidden, config.width),
        "up": (config.hidden, config.width),
        "down": (config.width, config.hidden),
    }


def layer(at: Place, weights: Mapping[Any, Any], x: Tensor) -> Tensor:
    """What a layer makes of (n, width): the same shape."""
    normed = rms_norm(at, x, weights["attention_norm"])
    query, key, value = linears(at, normed, weights["query", "key", "value"])
    queries = rope_halves(at, heads(at, plus(at, query, weights["query_bias"])))
    keys = rope_halves(at, key_heads(at, plus(at, key, weights["key_bias"])))
    values = key_heads(at, plus(at, value, weights["value_bias"]))
    x = x + linear(at, attention(at, queries, keys, values), weights["output"])
    normed = rms_norm(at, x, weights["feed_forward_norm"])
    gate, up = linears(at, normed, weights["gate", "up"])
    return x + linear(at, silu_mul(at, gate, up), weights["down"])
