"""What dense decoders have in common: their tensors, and a layer or its second half."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ...tensor import Tensor
from ..config import ModelConfig
from ..steps import Place, attention, gated_linear, joined_linear, normed_products, rotated_heads, split

# The tensors around the layers, and those of a layer, by the names that steps have for them.
TENSORS: Final = {
    "embedding": "token_embd.weight",
    "norm": "output_norm.weight",
    "head": "output.weight",
}
LAYER: Final = {
    "attention_norm": "attn_norm.weight",
    "query": "attn_q.weight",
    "key": "attn_k.weight",
    "value": "attn_v.weight",
    "output": "attn_output.weight",
    "feed_forward_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
}
# Those by which the same is multiplied, which a layer has together.
JOINED: Final[tuple[tuple[str, ...], ...]] = (("query", "key", "value"), ("gate", "up"))

# The dims that ranks divide, by the names of weights; each rank has all of the others.
DIVIDED: Final = {
    **dict.fromkeys(("query", "key", "value", "query_bias", "key_bias", "value_bias", "gate", "up", "head"), 0),
    **dict.fromkeys(("output", "down"), 1),
}


def shapes(config: ModelConfig, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor in a model of these sizes, by the names that steps have for them."""
    queries, keys = config.heads * config.head_dim, config.key_heads * config.head_dim
    return {
        "embedding": (vocabulary, config.width),
        "norm": (config.width,),
        "head": (vocabulary, config.width),
        "attention_norm": (config.width,),
        "query": (queries, config.width),
        "key": (keys, config.width),
        "value": (keys, config.width),
        "output": (config.width, queries),
        "feed_forward_norm": (config.width,),
        "gate": (config.hidden, config.width),
        "up": (config.hidden, config.width),
        "down": (config.width, config.hidden),
    }


def biases(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of what is added to queries, keys and values, where a model has it."""
    queries, keys = config.heads * config.head_dim, config.key_heads * config.head_dim
    return {"query_bias": (queries,), "key_bias": (keys,), "value_bias": (keys,)}


def layer(
    rope: Callable[[Place, Tensor], Tensor], at: Place, weights: Mapping[Any, Any], x: Tensor, added: Tensor | None
) -> tuple[Tensor, Tensor]:
    """A layer of the sum of two (n, width), or of x alone, makes two whose sum it is: the next norm adds them.

    Queries, keys and values may have biases, and what attention makes too.
    """
    joined = weights["query", "key", "value"]
    products, x = normed_products(at, x, added, weights["attention_norm"], joined)
    biases = [weights["query_bias"], weights["key_bias"], weights["value_bias"]]
    queries, keys, values = rotated_heads(at, products, joined, biases, rope)
    attended = joined_linear(at, attention(at, queries, keys, values), weights["output"], weights.get("output_bias"))
    return feed_forward(at, weights, x, attended)


def feed_forward(at: Place, weights: Mapping[Any, Any], x: Tensor, attended: Tensor) -> tuple[Tensor, Tensor]:
    """The second half of a layer, of (n, width) and what attention adds to it: their sum, and what is added to that."""
    joined = weights["gate", "up"]
    products, x = normed_products(at, x, attended, weights["feed_forward_norm"], joined)
    gate, up = split(products, joined)
    return x, gated_linear(at, gate, up, weights["down"])
