"""The storage of the CPU backend: memory, which methods that work in place write to."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np

from ..array_backend.blocks import QArrayStorage
from ..array_backend.imported import Imported
from ..array_backend.storage import ArrayStorage
from ..dtype import Array, DType
from ..error import InvalidArgument, UnsupportedDType
from ..layout import Layout
from ..host import array

if TYPE_CHECKING:
    from .device import CpuDevice


@final
class CpuStorage(ArrayStorage):
    """A flat NumPy array of one dtype, contiguous and of rank 1, which is always the same one."""

    # What has the memory: an array, or that of a kernel's result, of which nobody has asked for an array yet.
    __slots__ = ("_address", "_memory")

    device: CpuDevice
    library: ClassVar = Imported("cpu", __package__)
    _address: int | None
    _memory: Any

    @property
    def data(self) -> Array:
        """The elements."""
        memory = self._memory
        if type(memory) is not np.ndarray:
            self._memory = memory = np.frombuffer(memory, self.dtype.numpy)
        array: Array = memory
        return array

    @data.setter
    def data(self, array: Array) -> None:
        self._memory = array
        self._address = None

    @property
    def address(self) -> int:
        """Where the elements begin in memory."""
        address = self._address
        if address is None:
            self._address = address = int(self.data.__array_interface__["data"][0])
        return address

    def to_numpy(self) -> Array:
        """A copy of the elements."""
        copy: Array = self.data.copy()
        return copy

    def to_dlpack(self, layout: Layout, **options: Any) -> Any:
        if self.data.dtype.kind not in "iuf":
            reason = "NumPy, which exports the elements, lacks the dtype; convert with to_dtype(DType.F32) first"
            raise UnsupportedDType("dlpack", self.dtype, "cpu", reason)
        if options.get("stream") is not None:
            raise InvalidArgument("dlpack", f"stream is None on cpu, which has no streams, not {options['stream']}")
        return self.array(layout).__dlpack__(**options)

    def array(self, layout: Layout) -> Array:
        """The elements that `layout` reaches, in its shape and without a copy: writing to the array changes them."""
        return self.view(layout).reshape(layout.shape)

    def view(self, layout: Layout) -> Array:
        """The same as an array that has a dim at least: rank 0 has shape (1,)."""
        return array.view(self.data, layout)

    def write(self, layout: Layout, values: Array) -> None:
        target = self.view(layout)
        array.copy(target, values.reshape(target.shape))

    def result(self, values: Array, dtype: DType) -> Self:
        data = array.contiguous(values)
        is_new = data.base is None and data is not self.data
        # Ops of the family may hand on a view of what they were given, and what is repeated cannot be written to.
        if not is_new and (not data.flags.writeable or np.may_share_memory(data, self.data)):
            data = data.copy()
        return type(self)(self.device, dtype, data if data.ndim == 1 else data.reshape(-1))


@final
class QCpuStorage(QArrayStorage):
    """Blocks in memory."""

    device: CpuDevice

    @cached_property
    def address(self) -> int:
        """Where the blocks begin in memory."""
        address: int = self.bytes.__array_interface__["data"][0]
        return address
