"""New tensors from numbers, or of random ones. The device is the CPU unless stated, the dtype f32."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Never, Self

import numpy as np

from ...device import Device
from ...dtype import DType
from ...storage import Storage
from ..base.error import InvalidArgument, TallowError
from ..core import argument
from ..core.argument import DTypeLike
from ..core.layout import Layout, contiguous_of
from ..core.shape import Shape
from ..storage.calls import live_batches, new
from . import batch
from .base import device_of
from .interop import InteropMethods
from .number import exact_integers, require_range


class CreationMethods(InteropMethods):
    """Constructors. A shape is a sequence of sizes, or one size for a vector; `InvalidArgument` if it is neither.

    What follows the shape goes by keyword, so that no size is taken for a number or a dtype.
    """

    __slots__ = ()

    @classmethod
    def zeros(
        cls,
        shape: int | Iterable[int],
        *more: Never,
        dtype: DTypeLike = DType.F32,
        device: Device | str | None = None,
    ) -> Self:
        """Make a tensor of zeros of a shape, by default of f32 on the CPU.

        >>> tl.zeros((2, 3))
        Tensor([[0., 0., 0.],
                [0., 0., 0.]], dtype=f32)
        >>> tl.zeros(2, dtype="i64")
        Tensor([0, 0], dtype=i64)
        """
        layout = _layout("zeros", shape, more)
        return cls._new(device_of(device).zeros(layout.shape, dtype), layout)

    @classmethod
    def ones(
        cls,
        shape: int | Iterable[int],
        *more: Never,
        dtype: DTypeLike = DType.F32,
        device: Device | str | None = None,
    ) -> Self:
        """Make a tensor of ones of a shape, by default of f32 on the CPU.

        >>> tl.ones((2, 3))
        Tensor([[1., 1., 1.],
                [1., 1., 1.]], dtype=f32)
        """
        return cls._full("ones", _layout("ones", shape, more), 1, dtype, device)

    @classmethod
    def full(
        cls,
        shape: int | Iterable[int],
        value: complex,
        *more: Never,
        dtype: DTypeLike | None = None,
        device: Device | str | None = None,
    ) -> Self:
        """Make a tensor of a shape with one number everywhere.

        Without `dtype`, an int makes it i64, a float f32, a complex number complex64, a bool bool.

        >>> tl.full((2, 2), 7)
        Tensor([[7, 7],
                [7, 7]], dtype=i64)
        >>> tl.full(3, 0.5)
        Tensor([0.5, 0.5, 0.5], dtype=f32)
        """
        layout = _layout("full", shape, more)
        if type(value) is not float:
            if dtype is None and isinstance(value, bool | np.bool_):
                dtype = "bool"
            value = argument.complex_number("full", "value", value)
        if dtype is None:
            pairs = DType.F32.complex if isinstance(value, complex) else None
            dtype = pairs or (DType.I64 if isinstance(value, int) else DType.F32)
        return cls._full("full", layout, value, dtype, device)

    @classmethod
    def _full(cls, op: str, layout: Layout, value: complex, dtype: DTypeLike, device: Device | str | None) -> Self:
        own = dtype if type(dtype) is DType else argument.dtype(op, "dtype", dtype)
        tensor: Self = new(cls._result_class)
        tensor._storage = device_of(device).alloc_uninit(layout.shape, own)
        tensor._layout = layout
        return tensor._filled(op, value, "use a {} dtype")

    def _new_full(self, shape: Iterable[int], value: float = 0, dtype: DTypeLike | None = None) -> Self:
        """A tensor of one number, for each example that this tensor stands for: see `vmap`."""
        dtype = dtype or self.dtype
        if not live_batches:
            if type(value) is int and not value:
                return self.zeros(shape, dtype=dtype, device=self.device)
            return self._full("full", Layout.contiguous(shape), value, dtype, self.device)
        layout = Layout.contiguous(shape)
        storage = batch.new_like(self._storage, layout.shape, partial(self.device.alloc_uninit, dtype=dtype))
        tensor: Self = self._result_class._new(storage, layout)
        return tensor._filled("full", value, "use a {} dtype")

    def zeros_like(self) -> Self:
        """Make a tensor of zeros with the shape, dtype and device of this one.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.zeros_like()
        Tensor([[0, 0, 0],
                [0, 0, 0]], dtype=i64)
        """
        return self._new_full(self.shape)

    def ones_like(self) -> Self:
        """Make a tensor of ones with the shape, dtype and device of this one.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.ones_like()
        Tensor([[1, 1, 1],
                [1, 1, 1]], dtype=i64)
        """
        return self._new_full(self.shape, 1)

    @classmethod
    def arange(
        cls,
        start: float,
        stop: float | None = None,
        step: float = 1,
        dtype: DTypeLike | None = None,
        device: Device | str | None = None,
    ) -> Self:
        """Make a vector of the numbers from `start` up to but not including `stop`, in steps of `step`.

        `arange(n)` counts from 0 to n - 1. Without `dtype`, ints make it i64, floats f32. `InvalidArgument` if the step
        is 0, a number is not finite, or the integer dtype lacks one of the numbers.

        >>> tl.arange(5)
        Tensor([0, 1, 2, 3, 4], dtype=i64)
        >>> tl.arange(1.0, 2.0, 0.25)
        Tensor([1.00, 1.25, 1.50, 1.75], dtype=f32)
        """
        first, step = argument.number("arange", "start", start), argument.number("arange", "step", step)
        first, end = (0, first) if stop is None else (first, argument.number("arange", "stop", stop))
        if step == 0:
            raise InvalidArgument("arange", "the step is not 0; use full for a constant vector")
        if isinstance(first, int) and isinstance(end, int) and isinstance(step, int):
            target = DType.I64 if dtype is None else argument.dtype("arange", "dtype", dtype)
            count = _count_integers(first, end, step, target if target.is_integer else DType.I64)
        else:
            target = DType.F32 if dtype is None else argument.dtype("arange", "dtype", dtype)
            first, step = float(first), float(step)
            count = _count_floats(first, float(end), step, target)
        sizes = Shape((count,))
        return cls._new(device_of(device).arange(first, step, sizes, target), Layout.contiguous(sizes))

    @classmethod
    def rand(
        cls,
        shape: int | Iterable[int],
        *more: Never,
        lo: float = 0.0,
        up: float = 1.0,
        dtype: DTypeLike = DType.F32,
        device: Device | str | None = None,
    ) -> Self:
        """Draw numbers from the uniform distribution on [lo, up); one seed gives the same bits on every backend.

        `UnsupportedDType` for integers; `InvalidArgument` unless lo is below up and the dtype has numbers between.

        >>> tl.Device.cpu().set_seed(0)
        >>> tl.rand((2, 3)).shape
        (2, 3)
        >>> bool(((x := tl.rand(1000)) >= 0).all()), bool((x < 1).all())
        (True, True)
        """
        layout = _layout("rand", shape, more)
        target = device_of(device)
        try:
            if live_batches:
                draw = partial(target.rand_uniform_f64, lo, up, dtype=dtype)
                storage = batch.draw_examples("rand", draw, layout.shape)
            else:
                storage = target.rand_uniform_f64(lo, up, layout.shape, dtype)
        except TallowError as error:
            error.rename("rand")
            raise
        return cls._new(storage, layout)

    @classmethod
    def randn(
        cls,
        shape: int | Iterable[int],
        *more: Never,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: DTypeLike = DType.F32,
        device: Device | str | None = None,
    ) -> Self:
        """Draw numbers from the normal distribution with a mean and a standard deviation.

        `UnsupportedDType` for integers; `InvalidArgument` unless both are finite and `std` is not negative.

        >>> tl.Device.cpu().set_seed(0)
        >>> tl.randn((2, 3)).shape
        (2, 3)
        >>> abs(tl.randn(10000).mean().item()) < 0.05
        True
        """
        layout = _layout("randn", shape, more)
        target = device_of(device)
        try:
            if live_batches:
                draw = partial(target.rand_normal_f64, mean, std, dtype=dtype)
                storage = batch.draw_examples("randn", draw, layout.shape)
            else:
                storage = target.rand_normal_f64(mean, std, layout.shape, dtype)
        except TallowError as error:
            error.rename("randn")
            raise
        return cls._new(storage, layout)

    @classmethod
    def from_storage(cls, storage: Storage, layout: Layout | int | Iterable[int]) -> Self:
        """Make a tensor of elements of an existing storage, which it shares.

        `layout` says which elements; a shape means the first ones, in row-major order. `InvalidLayout` if the storage
        has fewer elements.

        >>> x = tl.arange(6)
        >>> tl.Tensor.from_storage(x.storage, (2, 3))
        Tensor([[0, 1, 2],
                [3, 4, 5]], dtype=i64)
        """
        if not isinstance(storage, Storage):
            reason = f"elements are in a Storage, not a {type(storage).__name__}; wrap a backend's as Storage(inner)"
            raise InvalidArgument("from_storage", reason)
        if not isinstance(layout, Layout):
            layout = Layout.contiguous(_shape("from_storage", layout, ()))
        layout.check("from_storage", storage.length)
        return cls._new(storage, layout)


def _shape(op: str, shape: int | Iterable[int], more: tuple[object, ...]) -> Shape:
    return _layout(op, shape, more).shape


def _layout(op: str, shape: int | Iterable[int], more: tuple[object, ...]) -> Layout:
    """The layout of new elements, once their shape is one."""
    if more:
        reason = "pass the shape as one tuple, such as (2, 3), and what follows it by keyword, such as dtype='f32'"
        raise InvalidArgument(op, reason)
    try:
        if type(shape) is tuple:
            try:
                return contiguous_of(0, *shape)
            except TypeError:
                # One of the sizes has no hash.
                pass
        return Layout.contiguous(shape if isinstance(shape, Iterable) else (shape,))
    except InvalidArgument as error:
        error.rename(op)
        raise


@lru_cache(maxsize=256, typed=True)
def _count_integers(first: int, end: int, step: int, dtype: DType) -> int:
    count = -((first - end) // step)
    if count <= 0:
        return 0
    require_range("arange", (first, first + (count - 1) * step), dtype)
    require_range("arange", (step,), DType.I64)
    return count


@lru_cache(maxsize=256, typed=True)
def _count_floats(first: float, end: float, step: float, dtype: DType) -> int:
    length = (end - first) / step
    if not all(map(math.isfinite, (first, end, step, length))):
        reason = f"start, stop, step and the number of steps are finite, not {first}, {end}, {step} and {length}"
        raise InvalidArgument("arange", reason)
    count = max(math.ceil(length), 0)
    if dtype.is_integer:
        # If the first two are integers, all are, and the others are between the first and the last.
        second = first + step
        last = first + (count - 1) * (second - first)
        exact_integers("arange", np.array([first, second, last][:count]), dtype)
    return count
