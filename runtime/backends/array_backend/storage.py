"""The storages of backends on array libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from ....dtype import Array, DType
from ...base.error import UnsupportedDType
from ...core.layout import Layout
from ...program.values import Buffer, Memory
from ..backend import BackendStorage
from ..plan import kind_of
from . import strided, transfer
from .library_device import LibraryDevice
from .memory_limit import require_memory

if TYPE_CHECKING:
    from ....array_library import Library


class ArrayStorage(BackendStorage):
    """A flat array of a library, which is never changed: a method that works in place puts another one there."""

    __slots__ = ("device", "dtype", "kind", "length")

    device: LibraryDevice
    library: ClassVar[Library]
    data: Any

    def __init__(self, device: LibraryDevice, dtype: DType, data: Any) -> None:
        self.device = device
        self.dtype = dtype
        self.data = data
        self.length = data.shape[0]
        self.kind = kind_of(dtype, self.length)

    def buffer(self, position: int) -> Buffer:
        dtype, length = self.dtype, self.length
        return Buffer(dtype, length, Memory(length * dtype.itemsize, position))

    def to_numpy(self) -> Array:
        """A copy of the elements; raises what was recorded of indexes."""
        with self.device.translating():
            self.device.raise_errors()
            return transfer.to_numpy(self.library, self.data, self.dtype)

    def view(self, layout: Layout) -> Any:
        """The elements that `layout` reaches, in its shape; that of rank 0 is (1,)."""
        return strided.view(self.library, self.data, layout, self.device.handle)

    def on_host(self, layout: Layout) -> Array:
        """Return the elements as a read-only NumPy array. Their dtype must be one that NumPy has."""
        array: Array = np.asarray(self.library.to_numpy(self.view(layout)))
        return array

    def write(self, layout: Layout, values: Any) -> None:
        """Put `values`, as many as `layout` reaches, where it does."""
        self.data = strided.write(self.library, self.data, layout, values, self.device.handle)
        if self.library.start is not None:
            self.library.start(self.data)

    def result(self, values: Any, dtype: DType) -> Self:
        """A new storage of `values` on the same device."""
        library = self.library
        if dtype in library.LACKING:
            raise transfer.refusal(library, dtype)
        require_memory(self.device, values.shape, dtype)
        data = values if len(values.shape) == 1 else library.reshape(values, (-1,))
        if library.start is not None:
            library.start(data)
        return type(self)(self.device, dtype, data)

    def to_dlpack(self, layout: Layout, **options: Any) -> Any:
        if self.dtype is not DType.U8 and self.library.DTYPES[self.dtype] == self.library.DTYPES[DType.U8]:
            raise UnsupportedDType("dlpack", self.dtype, self.device.backend, "its elements are stored as their bits")
        with self.device.translating():
            self.device.raise_errors()
            return self.library.reshape(self.view(layout), layout.shape).__dlpack__(**options)
