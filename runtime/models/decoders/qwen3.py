"""Qwen 3, which normalises queries and keys."""

from collections.abc import Mapping
from typing import Any, Final

from ...tensor import Tensor
from ..config import ModelConfig
from ..steps import Place, attention, heads, key_heads, linear, linears, rms_norm, rope_halves, silu_mul

# The tensors around the layers, and those of a layer, by the names that steps have for them.
TENSORS: Final = {
    "embedding": "token_embd.weight",
    "norm": "output_norm.weight",
    "head": "output.weight",
}
LAYER: Final = {
    "attention_norm": "attn_norm.weight",
    "query": "attn_q.weight",
    "query_norm": "attn_q_norm.weight",
    "key": "attn_k.weight",
    "key_norm": "attn_k_norm.weight",
    "value": "attn_v.weight",
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
        "query_norm": (config.head_dim,),
        "key": (config.key_heads * config.head_dim, config.width),
        "key_norm": (config.head_dim,),
        "value": (config.key_heads * config.head_dim, config.width),
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
    queries = rope_halves(at, rms_norm(at, heads(at, query), weights["query_norm"]))
    keys = rope_halves(at, rms_norm(at, key_heads(at, key), weights["key_norm"]))
    values = key_heads(at, value)
    x = x + linear(at, attention(at, queries, keys, values), weights["output"])
    normed = rms_norm(at, x, weights["feed_forward_norm"])
    gate, up = linears(at, normed, weights["gate", "up"])
    return x + linear(at, silu_mul(at, gate, up), weights["down"])
