"""The CPU as a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Self

import numpy as np

from ..backend import BackendDevice
from ..dtype import Array, DType
from ..error import InvalidArgument, OutOfMemory
from ..layout import Layout
from ..random import RandomState
from ..shape import Shape
from . import cast, random
from .storage import CpuStorage

# No machine has the memory for more. NumPy's errors for what even its indexes can't reach are other ones.
_MOST_ELEMENTS: Final = 1 << 56


class CpuDevice(BackendDevice):
    """The CPU: there is one, and it does its work at once."""

    # Of the device, not of an object that stands for it: equal devices draw from one stream.
    _random: ClassVar = RandomState()

    @classmethod
    def open(cls, ordinal: int) -> Self:
        if ordinal != 0:
            raise InvalidArgument("device", f"there is one CPU, number 0, and no number {ordinal}")
        return cls(ordinal)

    @classmethod
    def is_available(cls) -> bool:
        return True

    def set_seed(self, seed: int) -> None:
        self._random.set_seed(seed)

    def get_current_seed(self) -> int:
        return self._random.seed

    def rand_uniform_f64(self, lo: float, up: float, shape: Shape, dtype: DType) -> CpuStorage:
        return self._draw(lambda seed, base, count: random.uniform(seed, base, count, lo, up, dtype), shape, dtype)

    def rand_normal_f64(self, mean: float, std: float, shape: Shape, dtype: DType) -> CpuStorage:
        return self._draw(lambda seed, base, count: random.normal(seed, base, count, mean, std, dtype), shape, dtype)

    def _draw(self, draw: Callable[[int, int, int], Array], shape: Shape, dtype: DType) -> CpuStorage:
        """What `draw` makes of the seed, the first block and the number of elements."""
        reserved = self._random.reserve(shape.elem_count, dtype)
        try:
            return self._make(lambda count: draw(*reserved, count), shape, dtype)
        except BaseException:
            self._random.cancel(reserved, shape.elem_count, dtype)
            raise

    def zeros(self, shape: Shape, dtype: DType) -> CpuStorage:
        return self._make(lambda count: np.zeros(count, dtype.numpy), shape, dtype)

    def alloc_uninit(self, shape: Shape, dtype: DType) -> CpuStorage:
        return self._make(lambda count: np.empty(count, dtype.numpy), shape, dtype)

    def storage_from_slice(self, data: Sequence[float], dtype: DType) -> CpuStorage:
        values = np.asarray(data)
        if values.ndim != 1:
            raise InvalidArgument("storage_from_slice", f"the numbers are in a flat sequence, not {values.ndim} deep")
        if values.dtype.kind in "bi":
            return CpuStorage(self, dtype, cast.convert(values.astype(np.int64), DType.I64, dtype))
        if all(isinstance(number, int | np.integer) for number in data):
            # They are more than i64 has, and NumPy may have made floats of them.
            return CpuStorage(self, dtype, cast.integers(map(int, data), dtype))
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument("storage_from_slice", f"{error}; use integers, or floats in f64's range") from None
        return CpuStorage(self, dtype, cast.convert(values, DType.F64, dtype))

    def storage(self, array: Array) -> CpuStorage:
        dtype = DType.from_numpy(array.dtype)
        return CpuStorage(self, dtype, np.array(array, dtype.numpy, order="C").reshape(-1))

    def storage_owned(self, array: Array) -> CpuStorage:
        dtype = DType.from_numpy(array.dtype)
        return CpuStorage(self, dtype, np.require(array, dtype.numpy, ["C", "A", "W"]).reshape(-1))

    def from_dlpack(self, source: Any) -> tuple[CpuStorage, Layout]:
        array = np.from_dlpack(source)
        if array.dtype == np.bool_:
            array = array.view(np.uint8)
        return self.storage_owned(array), Layout.contiguous(array.shape)

    def synchronize(self) -> None:
        """Nothing is ever under way."""

    def _make(self, array_of: Callable[[int], Array], shape: Shape, dtype: DType) -> CpuStorage:
        """The storage of a new array of as many elements as the shape has; OutOfMemory where there is no room."""
        count = shape.elem_count
        try:
            if count > _MOST_ELEMENTS:
                raise MemoryError
            return CpuStorage(self, dtype, array_of(count))
        except MemoryError:
            raise OutOfMemory("cpu", count * dtype.itemsize) from None
