"""Weights in blocks in the memory of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .....dtype import Array
from .....ggml_dtype import GgmlDType
from ...backend import BackendBlocks
from ...plan import kind_of

if TYPE_CHECKING:
    from ..gpu_base import GpuBase
    from .storage import Memory


class QGpuStorage(BackendBlocks):
    """Blocks in device memory, as files have them."""

    device: GpuBase

    def __init__(self, device: GpuBase, dtype: GgmlDType, length: int, memory: Memory) -> None:
        """Hold `memory`, which begins with the blocks of `length` weights."""
        self.device = device
        self.dtype = dtype
        self.length = length
        self.memory = memory
        self.kind = kind_of(dtype, length)

    @property
    def data(self) -> Array:
        array = np.empty(self.size_in_bytes, np.uint8)
        self.device.read(array, self.memory.address)
        return array
