"""Tensors."""

from .contraction import einsum
from .joining import cat, stack
from .logic import where
from .rearranging import meshgrid
from .tensor import Gradients, Tensor

__all__ = ["Gradients", "Tensor", "cat", "einsum", "meshgrid", "stack", "where"]
