"""New storages, and waiting: what a device does besides running ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ...dtype import Array, DType
from ...error import InvalidArgument, OutOfMemory
from ...shape import Shape
from . import cast

if TYPE_CHECKING:
    from ..device import CpuDevice
    from ..storage import CpuStorage

# No machine has the memory for more. NumPy's errors for what even its indexes can't reach are other ones.
_MOST_ELEMENTS: Final = 1 << 56


def zeros(device: CpuDevice, shape: Shape, dtype: DType) -> CpuStorage:
    """A storage of zeros."""
    return make(device, lambda count: np.zeros(count, dtype.numpy), shape, dtype)


def empty(device: CpuDevice, shape: Shape, dtype: DType) -> CpuStorage:
    """A storage of elements that are not initialised."""
    return make(device, lambda count: np.empty(count, dtype.numpy), shape, dtype)


def from_numbers(device: CpuDevice, data: Sequence[float], dtype: DType) -> CpuStorage:
    """A storage of the numbers, converted as to_dtype does."""
    return device.storage_class(device, dtype, numbers(data, dtype))


def numbers(data: Sequence[float], dtype: DType) -> Array:
    """A flat array of the numbers, converted as to_dtype does."""
    values = np.asarray(data)
    if values.ndim != 1:
        raise InvalidArgument("storage_from_slice", f"the numbers are in a flat sequence, not {values.ndim} deep")
    if values.dtype.kind in "bi":
        return cast.convert(values.astype(np.int64), DType.I64, dtype)
    if all(isinstance(number, int | np.integer) for number in data):
        # They are more than i64 has, and NumPy may have made floats of them.
        return cast.integers(map(int, data), dtype)
    try:
        values = values.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument("storage_from_slice", f"{error}; use integers, or floats in f64's range") from None
    return cast.convert(values, DType.F64, dtype)


def from_array(device: CpuDevice, array: Array) -> CpuStorage:
    """A storage with a copy of the array's elements."""
    dtype = DType.from_numpy(array.dtype)
    return device.storage_class(device, dtype, np.array(array, dtype.numpy, order="C").reshape(-1))


def from_owned_array(device: CpuDevice, array: Array) -> CpuStorage:
    """A storage of the array's own memory, where that is contiguous and can be written."""
    dtype = DType.from_numpy(array.dtype)
    return device.storage_class(device, dtype, np.require(array, dtype.numpy, ["C", "A", "W"]).reshape(-1))


def synchronize(device: CpuDevice) -> None:
    """Nothing is ever under way."""


def make(device: CpuDevice, array_of: Callable[[int], Array], shape: Shape, dtype: DType) -> CpuStorage:
    """The storage of a new array of as many elements as the shape has; OutOfMemory where there is no room."""
    count = shape.elem_count
    try:
        if count > _MOST_ELEMENTS:
            raise MemoryError
        return device.storage_class(device, dtype, array_of(count))
    except MemoryError:
        raise OutOfMemory("cpu", count * dtype.itemsize) from None
