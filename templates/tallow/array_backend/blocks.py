"""Weights in blocks on backends of array libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backend import BackendBlocks, kind_of
from ..dtype import Array
from ..ggml_dtype import GgmlDType

if TYPE_CHECKING:
    from .device import ArrayDevice


class QArrayStorage(BackendBlocks):
    """Blocks in a NumPy array of their bytes, which NumPy decodes, and what it made of them on the device."""

    device: ArrayDevice
    weights: Any = None
    """The weights in f32, an array of the library, where they were decoded to be kept."""

    def __init__(self, device: ArrayDevice, dtype: GgmlDType, data: Array) -> None:
        """Hold `data`, contiguous, of rank 1 and of u8."""
        self.device = device
        self.dtype = dtype
        self.bytes = data
        self.length = data.size // dtype.type_size * dtype.block_size
        self.kind = kind_of(dtype, self.length)

    @property
    def data(self) -> Array:
        return self.bytes.copy()
