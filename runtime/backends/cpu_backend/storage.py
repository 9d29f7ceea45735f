"""The storage of the CPU backend: memory, which methods that work in place write to."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np

from ....dtype import Array, DType
from ....ggml_dtype import GgmlDType
from ...base.error import InvalidArgument, describe
from ...core.layout import Layout
from ...host import array, dlpack
from ..array_backend.blocks import QArrayStorage
from ..array_backend.imported import Imported
from ..array_backend.storage import ArrayStorage
from ..plan import kind_of
from .host_device import HostDevice


def _flat(array: Any, dtype: np.dtype[Any], length: int | None, *, writable: bool = True) -> Array:
    """Return an array whose address kernels may take; InvalidArgument for any other."""
    if isinstance(array, np.ndarray) and array.dtype == dtype and array.shape == (array.size,):
        flags = array.flags
        if (length is None or length == array.size) and (flags.carray if writable else flags.c_contiguous):
            return array if type(array) is np.ndarray else array.view(np.ndarray)
    size = "any length" if length is None else f"{length} elements"
    kind = f"a {'writable, ' if writable else ''}contiguous NumPy array of rank 1, {size} and dtype {dtype}"
    raise InvalidArgument("storage", f"data is {kind}, not {_described(array)}; Device.storage copies any array")


def _described(array: Any) -> str:
    if not isinstance(array, np.ndarray):
        return describe(array)
    flags = array.flags
    lacks = {"read-only": flags.writeable, "strided": flags.c_contiguous, "misaligned": flags.aligned}
    facts = [fact for fact, is_right in lacks.items() if not is_right]
    return f"one of {', '.join([*facts, f'shape {array.shape}', f'dtype {array.dtype.str}'])}"


@final
class CpuStorage(ArrayStorage):
    """A flat NumPy array of one dtype, contiguous and of rank 1, which is always the same one.

    `data` is used without a copy. It is writable and in the byte order of the machine, and has as many elements as the
    storage; any other raises InvalidArgument.
    """

    # The owner of the memory: an array, or that of a kernel's result, for which no array was requested yet.
    __slots__ = ("_address", "_memory")

    device: HostDevice
    library: ClassVar = Imported("cpu", "....cpu_backend.library", __package__)
    _address: int | None
    _memory: Any

    def __init__(self, device: HostDevice, dtype: DType, data: Array, *, is_known: bool = False) -> None:
        """`is_known` says that the array is one that the class takes."""
        self.device = device
        self.dtype = dtype
        self._memory = array = data if is_known else _flat(data, dtype.numpy, None)
        self._address = None
        self.length = length = array.size
        self.kind = kind_of(dtype, length)

    @property
    def dynamic_form(self) -> int:
        return self.NUMBER if self.length == 1 else 0

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
        self._memory = _flat(array, self.dtype.numpy, self.length)
        self._address = None

    @property
    def address(self) -> int:
        """Where the elements begin in memory."""
        address = self._address
        if address is None:
            self._address = address = int(self.data.__array_interface__["data"][0])
        return address

    def take(self, other: CpuStorage) -> None:
        """Have the memory of another storage of as many elements of the dtype."""
        self._memory, self._address = other._memory, other._address

    def to_numpy(self) -> Array:
        """A copy of the elements."""
        copy: Array = self.data.copy()
        return copy

    def to_dlpack(self, layout: Layout, **options: Any) -> Any:
        if options.get("stream") is not None:
            raise InvalidArgument("dlpack", f"stream is None on cpu, which has no streams, not {options['stream']}")
        return dlpack.exported(self.array(layout), self.dtype, **options)

    def array(self, layout: Layout) -> Array:
        """The elements that `layout` reaches, in its shape and without a copy: writing to the array changes them."""
        return self.view(layout).reshape(layout.shape)

    def view(self, layout: Layout) -> Array:
        """The elements as an array of at least one dim: rank 0 has shape (1,)."""
        return array.view(self.data, layout)

    on_host = view

    def write(self, layout: Layout, values: Array) -> None:
        target = self.view(layout)
        array.copy(target, values.reshape(target.shape))

    def result(self, values: Array, dtype: DType) -> Self:
        data = array.contiguous(values)
        is_new = data.base is None and data is not self.data
        # Ops of the family may return a view of their operands, and repeated elements cannot be written to.
        if not is_new and (not data.flags.writeable or np.may_share_memory(data, self.data)):
            data = data.copy()
        return type(self)(self.device, dtype, data if data.ndim == 1 else data.reshape(-1))


@final
class QCpuStorage(QArrayStorage):
    """Blocks in memory."""

    device: HostDevice

    def __init__(self, device: HostDevice, dtype: GgmlDType, data: Array) -> None:
        super().__init__(device, dtype, _flat(data, np.dtype(np.uint8), None, writable=False))

    @cached_property
    def address(self) -> int:
        """Where the blocks begin in memory."""
        address: int = self.bytes.__array_interface__["data"][0]
        return address
