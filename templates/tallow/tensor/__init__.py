"""Tensors."""

from .files import load_safetensors, save_safetensors
from .joining import cat, stack
from .tensor import Tensor

__all__ = ["Tensor", "cat", "load_safetensors", "save_safetensors", "stack"]
