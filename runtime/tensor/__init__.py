"""Tensors."""

from .math.contraction import einsum
from .math.logic import where
from .shape.joining import cat, stack
from .shape.rearranging import meshgrid
from .tensor import Gradients, Tensor

__all__ = ["Gradients", "Tensor", "cat", "einsum", "meshgrid", "stack", "where"]
