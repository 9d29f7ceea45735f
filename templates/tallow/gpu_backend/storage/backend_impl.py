"""The storage of a GPU backend: data, on which the functions of `ops` work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...backend import BackendStorage
from ...dtype import Array, DType
from ...layout import Layout

if TYPE_CHECKING:
    from ..device import GpuDevice


class Memory(Protocol):
    """Device memory, for as long as somebody holds this."""

    @property
    def address(self) -> int:
        """Where its first byte is."""

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""


class GpuStorage(BackendStorage):
    """Elements in device memory. Functions enqueue work on them and return; only `to_numpy` waits for it."""

    device: GpuDevice

    def __init__(self, device: GpuDevice, dtype: DType, length: int, memory: Memory) -> None:
        """Hold `memory`, whose first `length` elements of `dtype` are those of the storage."""
        self.device = device
        self.dtype = dtype
        self.length = length
        self.memory = memory

    def to_numpy(self) -> Array:
        array = np.empty(self.length, self.dtype.numpy)
        self.device.read(array, self.memory.address)
        return array

    def to_dlpack(self, layout: Layout, *, stream: int | None = None, copy: bool | None = None, **_: Any) -> object:
        from ..dlpack import export

        return export(self, layout, stream, bool(copy))
