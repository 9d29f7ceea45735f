"""LLaMA, and Mistral, which has the same layers."""

from functools import partial
from typing import Final

from ..config import ModelConfig
from ..steps import rope_neighbours
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


layer: Final = partial(dense.layer, rope_neighbours)
