"""Tensors."""

from .files import save_safetensors
from .joining import cat, stack
from .stored import load_safetensors, open_safetensors
from .tensor import Tensor

__all__ = ["Tensor", "cat", "load_safetensors", "open_safetensors", "save_safetensors", "stack"]
