"""LLaMA, and Mistral, which has the same layers."""

from functools import partial
from typing import Final

from ..steps import rope_neighbours
from . import dense

TENSORS: Final = dense.TENSORS
LAYER: Final = dense.LAYER
OPTIONAL: Final = dense.OPTIONAL
JOINED: Final = dense.JOINED
DIVIDED: Final = dense.DIVIDED

shapes: Final = dense.shapes
layer: Final = partial(dense.layer, rope_neighbours)
