"""Qwen 2 and 2.5."""

from collections.abc import Mapping
from typing import Any, Final

from ...tensor import Tensor
from ..config import ModelConfig
from ..steps import Place, attention, heads, joined_linear, key_heads, linears, plus, rms_norm, rope_halves
from . import dense

TENSORS: Final = dense.TENSORS
LAYER: Final = {
    **dense.LAYER,
    "query_bias": "attn_q.bias",
    "key_bias": "attn_k.bias",
    "value_bias": "attn_v.bias",
}
# Those that a file may lack, which then are None.
OPTIONAL: Final = frozenset[str]()
JOINED: Final = dense.JOINED
DIVIDED: Final = dense.DIVIDED


def shapes(config: ModelConfig, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor in a model of these sizes, by the names that steps have for them."""
    return {**dense.shapes(config, vocabulary), **dense.biases(config)}


def layer(at: Place, weights: Mapping[Any, Any], x: Tensor) -> Tensor:
    """What a layer makes of (n, width): the same shape."""
    normed = rms_norm(at, x, weights["attention_norm"])
    query, key, value = linears(at, normed, weights["query", "key", "value"])
    queries = rope_halves(at, heads(at, plus(at, query, weights["query_bias"])))
    keys = rope_halves(at, key_heads(at, plus(at, key, weights["key_bias"])))
    values = key_heads(at, plus(at, value, weights["value_bias"]))
    attended = joined_linear(at, attention(at, queries, keys, values), weights["output"])
    return dense.feed_forward(at, weights, x, attended)
