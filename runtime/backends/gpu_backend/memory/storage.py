"""The storages of a GPU backend: data, on which the functions of `ops` work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import numpy as np

from .....dtype import Array, DType
from .....ggml_dtype import GgmlDType
from .....kernels.constants import ACCESS_BYTES
from ....core.layout import Layout
from ....host.array import normalised
from ....program import values
from ....program.values import Buffer
from ...backend import BackendBlocks, BackendStorage
from ...plan import kind_of
from ..driver import capture, slow_path
from .allocator import Slice

if TYPE_CHECKING:
    from ..driver.capture import Capture
    from ..gpu_base import GpuBase

# The form of a storage in memory of tallow's own. It is above 0 in that of others, by how this is aligned.
_OWN: Final = 0


class Memory(Protocol):
    """Device memory, for the lifetime of this object."""

    @property
    def address(self) -> int:
        """Where its first byte is."""

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""


class GpuStorage(BackendStorage):
    """Elements in device memory. Functions enqueue work on them and return; only `to_numpy` waits for it."""

    device: GpuBase
    number: int | None = None
    """The bits of the one element of a storage that has no memory so far: kernels can take it along."""
    bits: int
    """The bits of the number, also when it is in memory: another thread may be running a plan for numbers."""
    _captured: Capture | None = None
    """The capture during which a number was created."""
    _is_shared = False
    """Whether another object has the storage or its memory; a number is then in memory, for captures too."""

    def __init__(self, device: GpuBase, dtype: DType, length: int, memory: Memory) -> None:
        """Hold `memory`, whose first `length` elements of `dtype` are those of the storage."""
        self.device = device
        self.dtype = dtype
        self.length = length
        self.memory = memory
        form = _OWN if isinstance(memory, Slice) else 1 + memory.address % ACCESS_BYTES
        self.kind = kind_of(dtype, length, form)

    @classmethod
    def of_number(cls, device: GpuBase, dtype: DType, number: int) -> Self:
        """A storage of one element, from its bits, which is written to memory where something asks for that."""
        storage = cls.__new__(cls)
        storage.device = device
        storage.dtype = dtype
        storage.length = 1
        storage.number = storage.bits = number
        storage.kind = kind_of(dtype, 1, cls.NUMBER)
        if slow_path.required:
            storage._captured = capture.of(device.driver)
        return storage

    def __getattr__(self, name: str) -> Memory:
        # Called for what is missing: the memory of a number.
        if name != "memory" or self.number is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        if slow_path.required and (self._is_shared or capture.of(self.device.driver) is not self._captured):
            # A number of before the capture is in memory from now on, and not from the first replay on.
            with capture.suspended():
                return self._written()
        return self._written()

    @property
    def dynamic_form(self) -> int | None:
        if self.number is not None:
            return self.NUMBER
        return _OWN if isinstance(self.memory, Slice) else None

    def buffer(self, position: int) -> Buffer:
        dtype = self.dtype
        if self.number is not None:
            return Buffer(dtype, 1, values.Memory(dtype.itemsize, position), values.Scalar(position))
        memory = self.memory
        if isinstance(memory, Slice):
            described = values.Memory(memory.nbytes, position)
        else:
            described = values.Memory(memory.nbytes, position, skew=memory.address % ACCESS_BYTES, is_foreign=True)
        return Buffer(dtype, self.length, described)

    def owns_memory(self) -> bool:
        memory = self.__dict__.get("memory")
        return isinstance(memory, Slice) and not self._is_shared

    def share(self) -> None:
        self._is_shared = True
        self._captured = None

    def _written(self) -> Memory:
        """The memory of a number, with the number."""
        from ..ops.copy import fill_with

        assert self.number is not None
        written = type(self)(self.device, self.dtype, 1, self.device.allocate(self.dtype.itemsize))
        self.device.run(fill_with, values.Operand(written, Layout.contiguous(())), self.number)
        # In this order, so that another thread finds one of the two.
        self.memory = written.memory
        self.kind = written.kind
        self.number = None
        return self.memory

    def to_numpy(self) -> Array:
        array = np.empty(self.length, self.dtype.numpy)
        self.device.read(array, self.memory.address)
        # What files and other libraries have for True was left as it is.
        return normalised(array)

    def address(self, layout: Layout) -> int:
        """Where the first element that `layout` reaches is on the device."""
        return self.memory.address + layout.start_offset * self.dtype.itemsize

    def to_dlpack(self, layout: Layout, *, stream: int | None = None, copy: bool | None = None, **_: Any) -> object:
        return self.device.export(self, layout, stream, copy=bool(copy))


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
