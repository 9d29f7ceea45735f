"""Parts that dense decoders share: their tensors, and a layer or its second half."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ...tensor import Tensor
from ..config import ModelConfig
from ..steps import LayerContext, attention, gated_linear, joined_linear, normed_products, plus, rotated_heads, split

# The tensors around the layers, and those of a layer, by the names that steps have for them.
TENSORS: Final = {
    "embedding": "token_embd.weight",
    "norm": "output_norm.weight",
    "head": "output.weight",
    "head_bias": "output.bias",
    "frequencies": "rope_freqs.weight",
}
_LINEAR: Final = {
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "output": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
LAYER: Final = {
    "attention_norm": "attn_norm.weight",
    "feed_forward_norm": "ffn_norm.weight",
    **{name: f"{tensor}.weight" for name, tensor in _LINEAR.items()},
    **{f"{name}_bias": f"{tensor}.bias" for name, tensor in _LINEAR.items()},
}
# Those that a file may lack, which then are None.
OPTIONAL: Final = frozenset(f"{name}_bias" for name in _LINEAR)
# Those by which the same is multiplied, which a layer has together.
JOINED: Final[tuple[tuple[str, ...], ...]] = (("query", "key", "value"), ("gate", "up"))

# The dims that ranks divide, by the names of weights; each rank has all of the others.
DIVIDED: Final = {
    **dict.fromkeys(("query", "key", "value", "gate", "up", "head"), 0),
    **dict.fromkeys(("query_bias", "key_bias", "value_bias", "gate_bias", "up_bias", "head_bias"), 0),
    **dict.fromkeys(("output", "down"), 1),
}


def shapes(config: ModelConfig, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor in a model of these sizes, by the names that steps have for them."""
    queries, keys = config.heads * config.head_dim, config.key_heads * config.head_dim
    matrices = {
        "query": (queries, config.width),
        "key": (keys, config.width),
        "value": (keys, config.width),
        "output": (config.width, queries),
        "gate": (config.hidden, config.width),
        "up": (config.hidden, config.width),
        "down": (config.width, config.hidden),
        "head": (vocabulary, config.width),
    }
    return {
        "embedding": (vocabulary, config.width),
        "frequencies": (config.head_dim // 2,),
        **dict.fromkeys(("norm", "attention_norm", "feed_forward_norm"), (config.width,)),
        **matrices,
        **{f"{name}_bias": shape[:1] for name, shape in matrices.items()},
    }


def layer(
    rope: Callable[[LayerContext, Tensor], Tensor],
    at: LayerContext,
    weights: Mapping[Any, Any],
    x: Tensor,
    added: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """A layer of the sum of two (n, width), or of x alone, makes two whose sum it is: the next norm adds them.

    Every product may have a bias.
    """
    fused = weights["query", "key", "value"]
    products, x = normed_products(at, x, added, weights["attention_norm"], fused)
    biases = [weights["query_bias"], weights["key_bias"], weights["value_bias"]]
    queries, keys, values = rotated_heads(at, products, fused, biases, rope)
    attended = joined_linear(at, attention(at, queries, keys, values), weights["output"], weights["output_bias"])
    return feed_forward(at, weights, x, attended)


def feed_forward(at: LayerContext, weights: Mapping[Any, Any], x: Tensor, attended: Tensor) -> tuple[Tensor, Tensor]:
    """The second half of a layer, of (n, width) and what attention adds to it: their sum, and what is added to that."""
    fused = weights["gate", "up"]
    products, x = normed_products(at, x, attended, weights["feed_forward_norm"], fused)
    biases = weights["gate_bias"], weights["up_bias"]
    gate, up = (plus(at, *each) for each in zip(split(products, fused), biases, strict=True))
    return x, gated_linear(at, gate, up, weights["down"], weights["down_bias"])
