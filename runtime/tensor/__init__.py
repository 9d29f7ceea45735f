"""Tensors."""

from ... import composed
from ..core.extensions import extensions
from .math.contraction import einsum
from .math.logic import where
from .network.recurrent import gru, gru_cell, lstm, lstm_cell
from .shape.joining import cat, stack
from .shape.rearranging import meshgrid
from .tensor import Gradients, Tensor

__all__ = ["Gradients", "Tensor", "cat", "einsum", "gru", "gru_cell", "lstm", "lstm_cell", "meshgrid", "stack", "where"]

extensions.provide(composed=composed)
