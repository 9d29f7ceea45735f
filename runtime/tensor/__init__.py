"""Tensors."""

from .contraction import einsum
from .joining import cat, stack
from .logic import where
from .rearranging import meshgrid
from .tensor import Tensor

__all__ = ["Tensor", "cat", "einsum", "meshgrid", "stack", "where"]
