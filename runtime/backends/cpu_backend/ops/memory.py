"""New storages, and waiting: what a device does besides running ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .....dtype import Array, DType
from ....core.shape import Shape
from ....helpers.host_memory import require_memory
from ....host.array import normalised
from ....host.numbers import numbers, sequence
from ...backend import Part
from ..storage import CpuStorage

if TYPE_CHECKING:
    from ..host_device import HostDevice


def zeros(device: HostDevice, shape: Shape, dtype: DType) -> CpuStorage:
    """A storage of zeros."""
    return make(device, lambda count: np.zeros(count, dtype.numpy), shape, dtype)


def empty(device: HostDevice, shape: Shape, dtype: DType) -> CpuStorage:
    """A storage of elements that are not initialised."""
    return make(device, lambda count: device.empty(count, dtype), shape, dtype)


def arange(device: HostDevice, start: float, step: float, shape: Shape, dtype: DType) -> CpuStorage:
    """Return a storage of numbers from `start` on, in steps of `step`."""
    return make(device, lambda count: sequence(count, start, step, dtype), shape, dtype)


def from_numbers(device: HostDevice, data: Sequence[complex], dtype: DType) -> CpuStorage:
    """A storage of the numbers, converted as to_dtype does."""
    return CpuStorage(device, dtype, numbers(data, dtype))


def from_array(device: HostDevice, array: Array) -> CpuStorage:
    """A storage with a copy of the array's elements."""
    dtype = DType.from_numpy(array.dtype)
    copy = device.empty(array.size, dtype)
    np.copyto(copy.reshape(array.shape), array)
    return CpuStorage(device, dtype, normalised(copy), is_known=True)


def from_owned_array(device: HostDevice, array: Array) -> CpuStorage:
    """A storage of the array's own memory, where that is contiguous and can be written."""
    dtype = DType.from_numpy(array.dtype)
    if dtype is DType.BOOL:
        array = normalised(array)
    # The function takes longer than small decompositions.
    array = array if array.flags.carray else np.require(array, dtype.numpy, ["C", "A", "W"])
    return CpuStorage(device, dtype, array if array.ndim == 1 else array.reshape(-1), is_known=True)


# The bytes that are read between two reports of progress.
_READ_BYTES = 1 << 26


def load(
    device: HostDevice, parts: Sequence[Part], progress: Callable[[int], object] | None = None
) -> list[CpuStorage]:
    """Return storages of parts, which are read to their destination."""
    storages = [empty(device, Shape((part.length,)), part.dtype) for part in parts]
    done = 0
    for part, storage in zip(parts, storages, strict=True):
        target = storage.data.view(np.uint8).data
        for begin in range(0, part.nbytes, _READ_BYTES):
            piece = target[begin : begin + _READ_BYTES]
            part.read_into(piece, begin)
            done += piece.nbytes
            if progress is not None:
                progress(done)
        storage.data = normalised(storage.data)
    return storages


def synchronize(device: HostDevice) -> None:
    """Nothing is ever in progress."""


def make(device: HostDevice, array_of: Callable[[int], Array], shape: Shape, dtype: DType) -> CpuStorage:
    """The storage of a new array of as many elements as the shape has."""
    require_memory(dtype, shape)
    return CpuStorage(device, dtype, array_of(shape.elem_count))
