"""Qwen 3, which normalises queries and keys."""

from collections.abc import Mapping
from typing import Any, Final

from ...tensor import Tensor
from ..config import ModelConfig
from ..steps import (
    LayerContext,
    attention,
    heads,
    joined_linear,
    key_heads,
    normed_products,
    plus,
    rms_norm,
    rope_halves,
    split,
)
from . import dense

TENSORS: Final = dense.TENSORS
LAYER: Final = {**dense.LAYER, "query_norm": "attn_q_norm.weight", "key_norm": "attn_k_norm.weight"}
OPTIONAL: Final = dense.OPTIONAL
JOINED: Final = dense.JOINED
DIVIDED: Final = dense.DIVIDED


def shapes(config: ModelConfig, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor in a model of these sizes, by the names that steps have for them."""
    own = {"query_norm": (config.head_dim,), "key_norm": (config.head_dim,)}
    return {**dense.shapes(config, vocabulary), **own}


def layer(at: LayerContext, weights: Mapping[Any, Any], x: Tensor, added: Tensor | None) -> tuple[Tensor, Tensor]:
    """A layer of the sum of two (n, width), or of x alone, makes two whose sum it is: the next norm adds them."""
    fused = weights["query", "key", "value"]
    products, x = normed_products(at, x, added, weights["attention_norm"], fused)
    biases = weights["query_bias"], weights["key_bias"], weights["value_bias"]
    query, key, value = (plus(at, *each) for each in zip(split(products, fused), biases, strict=True))
    queries = rope_halves(at, rms_norm(at, heads(at, query), weights["query_norm"]))
    keys = rope_halves(at, rms_norm(at, key_heads(at, key), weights["key_norm"]))
    values = key_heads(at, value)
    attended = joined_linear(at, attention(at, queries, keys, values), weights["output"], weights["output_bias"])
    return dense.feed_forward(at, weights, x, attended)
