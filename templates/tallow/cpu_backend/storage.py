"""The storage of the CPU backend: data, on which the functions of `ops` work."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, final

from ..backend import BackendStorage, HostBlocks, kind_of
from ..dtype import Array, DType
from ..error import InvalidArgument, UnsupportedDType
from ..layout import Layout
from .ops import array

if TYPE_CHECKING:
    from .device import CpuDevice


@final
class CpuStorage(BackendStorage):
    """A flat NumPy array of one dtype."""

    device: CpuDevice

    def __init__(self, device: CpuDevice, dtype: DType, data: Array) -> None:
        """Hold `data`, contiguous and of rank 1, without a copy."""
        self.device = device
        self.dtype = dtype
        self.data = data
        self.length = data.size
        self.kind = kind_of(dtype, data.size)

    @cached_property
    def address(self) -> int:
        """Where the elements begin in memory."""
        address: int = self.data.__array_interface__["data"][0]
        return address

    def to_numpy(self) -> Array:
        """A copy of the elements."""
        return self.data.copy()

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


@final
class QCpuStorage(HostBlocks):
    """Blocks that NumPy decodes."""

    device: CpuDevice
    weights: Array | None

    @property
    def data(self) -> Array:
        """The bytes of all blocks, which nobody may write to."""
        view = self.bytes.view()
        view.flags.writeable = False
        return view
