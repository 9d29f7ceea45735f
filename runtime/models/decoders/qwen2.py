"""Qwen 2 and 2.5."""

from functools import partial
from typing import Final

from ..config import ModelConfig
from ..steps import rope_halves
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


layer: Final = partial(dense.layer, rope_halves)
