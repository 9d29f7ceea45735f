"""New tensors of given numbers or random ones. The device is the CPU unless stated, the dtype f32."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

import numpy as np

from ..device import Device
from ..dtype import Array, DType
from ..error import InvalidArgument, OutOfMemory
from ..layout import Layout
from ..shape import Shape
from .base import device_of, dtype_of
from .interop import InteropMethods
from .number import python_float, python_number


class CreationMethods(InteropMethods):
    """Constructors. A shape is a sequence of sizes, or one size for a vector; `InvalidArgument` if it is neither."""

    __slots__ = ()

    @classmethod
    def zeros(cls, shape: int | Iterable[int], dtype: DType = DType.F32, device: Device | str | None = None) -> Self:
        """Make a tensor of zeros."""
        sizes = _shape(shape)
        return cls._new(device_of(device).zeros(sizes, dtype_of(dtype)), Layout.contiguous(sizes))

    @classmethod
    def ones(cls, shape: int | Iterable[int], dtype: DType = DType.F32, device: Device | str | None = None) -> Self:
        """Make a tensor of ones."""
        return cls.full(shape, 1, dtype, device)

    @classmethod
    def full(
        cls,
        shape: int | Iterable[int],
        value: float,
        dtype: DType | None = None,
        device: Device | str | None = None,
    ) -> Self:
        """Make a tensor of one number. Without `dtype`, an int makes it i64, a float f32."""
        value = python_number("full", value)
        if dtype is None:
            dtype = DType.I64 if isinstance(value, int) else DType.F32
        sizes = _shape(shape)
        return cls._new(device_of(device).alloc_uninit(sizes, dtype_of(dtype)), Layout.contiguous(sizes)).fill_(value)

    def zeros_like(self) -> Self:
        """Make a tensor of zeros with the shape, dtype and device of this one."""
        return self.zeros(self.shape, self.dtype, self.device)

    def ones_like(self) -> Self:
        """Make a tensor of ones with the shape, dtype and device of this one."""
        return self.ones(self.shape, self.dtype, self.device)

    @classmethod
    def arange(
        cls,
        start: float,
        stop: float | None = None,
        step: float = 1,
        dtype: DType | None = None,
        device: Device | str | None = None,
    ) -> Self:
        """Make the vector start, start + step, .. that ends before `stop`; of one number, count up to it from 0.

        Without `dtype`, ints make it i64, floats f32. `InvalidArgument` if a step is 0, a number is not finite, or an
        int is one that i64 lacks.
        """
        first, end = (0, start) if stop is None else (start, stop)
        first, end, step = (python_number("arange", number) for number in (first, end, step))
        if step == 0:
            raise InvalidArgument("arange", "the step is not 0; use full for a constant vector")
        if isinstance(first, int) and isinstance(end, int) and isinstance(step, int):
            array = _integers(first, end, step)
        else:
            array = _floats(*(python_float("arange", number) for number in (first, end, step)))
        if dtype is None:
            dtype = DType.I64 if array.dtype.kind == "i" else DType.F32
        return cls.from_numpy(array).to_dtype(dtype).to(device_of(device))

    @classmethod
    def rand(
        cls,
        shape: int | Iterable[int],
        lo: float = 0.0,
        up: float = 1.0,
        dtype: DType = DType.F32,
        device: Device | str | None = None,
    ) -> Self:
        """Draw numbers uniformly from [lo, up); one seed gives the same bits on every backend.

        `UnsupportedDType` for integers; `InvalidArgument` unless lo is below up and the dtype has numbers between.
        """
        sizes = _shape(shape)
        storage = device_of(device).rand_uniform_f64(lo, up, sizes, dtype_of(dtype))
        return cls._new(storage, Layout.contiguous(sizes))

    @classmethod
    def randn(
        cls,
        shape: int | Iterable[int],
        mean: float = 0.0,
        std: float = 1.0,
        dtype: DType = DType.F32,
        device: Device | str | None = None,
    ) -> Self:
        """Draw numbers from the normal distribution with a mean and a standard deviation.

        `UnsupportedDType` for integers; `InvalidArgument` unless the mean is finite and std finite and 0 or more.
        """
        sizes = _shape(shape)
        storage = device_of(device).rand_normal_f64(mean, std, sizes, dtype_of(dtype))
        return cls._new(storage, Layout.contiguous(sizes))


def _shape(shape: int | Iterable[int]) -> Shape:
    return Shape(shape if isinstance(shape, Iterable) else (shape,))


def _integers(first: int, end: int, step: int) -> Array:
    count = max(-((first - end) // step), 0)
    limits = np.iinfo(np.int64)
    numbers = (first, first + (count - 1) * step, step) if count else ()
    if not all(limits.min <= number <= limits.max for number in numbers):
        raise InvalidArgument("arange", "not all of the numbers are in the range of i64; use floats")
    with _room(count):
        array = np.arange(count, dtype=np.int64)
    # A product beyond i64 wraps, and the sum wraps back.
    array *= step
    array += first
    return array


def _floats(first: float, end: float, step: float) -> Array:
    length = (end - first) / step
    if not all(map(math.isfinite, (first, end, step, length))):
        reason = f"start, stop, step and the number of steps are finite, not {first}, {end}, {step} and {length}"
        raise InvalidArgument("arange", reason)
    with _room(max(math.ceil(length), 0)):
        return np.arange(first, end, step)


@contextmanager
def _room(count: int) -> Iterator[None]:
    try:
        yield
    except (MemoryError, ValueError, OverflowError):
        # The latter two where not even NumPy's indexes reach so far.
        raise OutOfMemory("cpu", count * DType.I64.itemsize) from None
