"""LLaMA, and Mistral, which has the same layers."""

from collections.abc import Mapping
from typing import Any, Final

from ...tensor import Tensor
from ..config import ModelConfig
from ..steps import Place, added_rms_norm, attention, joined_linear, rope_neighbours, rotated_heads
from . import dense

TENSORS: Final = {**dense.TENSORS, "frequencies": "rope_freqs.weight"}
LAYER: Final = {
    **dense.LAYER,
    "query_bias": "attn_q.bias",
    "key_bias": "attn_k.bias",
    "value_bias": "attn_v.bias",
    "output_bias": "attn_output.bias",
}
# Those that a file may lack, which then are None.
OPTIONAL: Final = frozenset({"query_bias", "key_bias", "value_bias", "output_bias"})
JOINED: Final = dense.JOINED
DIVIDED: Final = dense.DIVIDED


def shapes(config: ModelConfig, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor in a model of these sizes, by the names that steps have for them."""
    own = {"frequencies": (config.head_dim // 2,), "output_bias": (config.width,)}
    return {**dense.shapes(config, vocabulary), **dense.biases(config), **own}


def layer(at: Place, weights: Mapping[Any, Any], x: Tensor, added: Tensor | None) -> tuple[Tensor, Tensor]:
    """A layer of the sum of two (n, width), or of x alone, makes two whose sum it is: the next norm adds them."""
    normed, x = added_rms_norm(at, x, added, weights["attention_norm"])
    biases = [weights["query_bias"], weights["key_bias"], weights["value_bias"]]
    queries, keys, values = rotated_heads(at, normed, weights["query", "key", "value"], biases, rope_neighbours)
    attended = joined_linear(at, attention(at, queries, keys, values), weights["output"], weights["output_bias"])
    return dense.feed_forward(at, weights, x, attended)
