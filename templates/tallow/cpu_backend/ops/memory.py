"""New storages, and waiting: what a device does besides running ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...backend import Part
from ...dtype import Array, DType
from ...error import InvalidArgument
from ...host_memory import require_room, tells_lack_of_memory
from ...shape import Shape
from . import cast

if TYPE_CHECKING:
    from ..device import CpuDevice
    from ..storage import CpuStorage


@tells_lack_of_memory
def zeros(device: CpuDevice, shape: Shape, dtype: DType) -> CpuStorage:
    """A storage of zeros."""
    return make(device, lambda count: np.zeros(count, dtype.numpy), shape, dtype)


@tells_lack_of_memory
def empty(device: CpuDevice, shape: Shape, dtype: DType) -> CpuStorage:
    """A storage of elements that are not initialised."""
    return make(device, lambda count: np.empty(count, dtype.numpy), shape, dtype)


@tells_lack_of_memory
def arange(device: CpuDevice, start: float, step: float, shape: Shape, dtype: DType) -> CpuStorage:
    """A storage of numbers from `start` on, `step` apart."""
    return make(device, lambda count: sequence(count, start, step, dtype), shape, dtype)


def sequence(count: int, start: float, step: float, dtype: DType) -> Array:
    """The first of the numbers from `start` on, `step` apart."""
    if isinstance(start, int) and isinstance(step, int):
        return _integers(count, start, step, dtype)
    return _floats(count, start, step, dtype)


def _integers(count: int, start: int, step: int, dtype: DType) -> Array:
    array = np.arange(count, dtype=np.uint64)
    array *= np.uint64(step % 2**64)
    array += np.uint64(start % 2**64)
    return _converted(array.view(np.int64), DType.I64, dtype)


def _floats(count: int, start: float, step: float, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        start, second = np.float64(start), np.float64(start) + step
        array = np.arange(count, dtype=np.float64)
        array *= second - start
        array += start
    array[:2] = (start, second)[:count]
    return _converted(array, DType.F64, dtype)


def _converted(array: Array, source: DType, dtype: DType) -> Array:
    return array if source is dtype else cast.convert(array, source, dtype)


def from_numbers(device: CpuDevice, data: Sequence[float], dtype: DType) -> CpuStorage:
    """A storage of the numbers, converted as to_dtype does."""
    return device.storage_class(device, dtype, numbers(data, dtype))


@tells_lack_of_memory
def numbers(data: Sequence[float], dtype: DType) -> Array:
    """A flat array of the numbers, converted as to_dtype does."""
    try:
        values = np.asarray(data)
    except ValueError as error:
        raise InvalidArgument("storage_from_slice", f"data must be a flat sequence of numbers ({error})") from None
    if values.ndim != 1 or values.dtype.kind in "cMmSU":
        reason = f"data must be a flat sequence, not one of {values.ndim} dims and NumPy's type {values.dtype}"
        raise InvalidArgument("storage_from_slice", f"{reason}; use integers, or floats in f64's range")
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


@tells_lack_of_memory
def from_array(device: CpuDevice, array: Array) -> CpuStorage:
    """A storage with a copy of the array's elements."""
    dtype = DType.from_numpy(array.dtype)
    return device.storage_class(device, dtype, np.array(array, dtype.numpy, order="C").reshape(-1))


@tells_lack_of_memory
def from_owned_array(device: CpuDevice, array: Array) -> CpuStorage:
    """A storage of the array's own memory, where that is contiguous and can be written."""
    dtype = DType.from_numpy(array.dtype)
    return device.storage_class(device, dtype, np.require(array, dtype.numpy, ["C", "A", "W"]).reshape(-1))


# So much is read between two calls that tell how far it is.
_READ_BYTES = 1 << 26


@tells_lack_of_memory
def load(device: CpuDevice, parts: Sequence[Part], progress: Callable[[int], object] | None = None) -> list[CpuStorage]:
    """Storages of parts, which are read to their place."""
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
    return storages


def synchronize(device: CpuDevice) -> None:
    """Nothing is ever under way."""


def make(device: CpuDevice, array_of: Callable[[int], Array], shape: Shape, dtype: DType) -> CpuStorage:
    """The storage of a new array of as many elements as the shape has."""
    require_room(shape, dtype)
    return device.storage_class(device, dtype, array_of(shape.elem_count))
