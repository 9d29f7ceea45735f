"""Tensors."""

from .joining import cat, stack
from .tensor import Tensor

__all__ = ["Tensor", "cat", "stack"]
