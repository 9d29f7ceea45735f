"""Qwen 2 and 2.5, whose queries, keys and values have biases."""

from functools import partial
from typing import Final

from ..steps import rope_halves
from . import dense

TENSORS: Final = dense.TENSORS
LAYER: Final = dense.LAYER
OPTIONAL: Final = dense.OPTIONAL - {"query_bias", "key_bias", "value_bias"}
JOINED: Final = dense.JOINED
DIVIDED: Final = dense.DIVIDED

shapes: Final = dense.shapes
layer: Final = partial(dense.layer, rope_halves)
