"""What every part of a tensor stands on: a storage, a layout, and the ways to call an op of the storage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Self

import numpy as np

from ..device import Device
from ..dtype import DType
from ..error import InvalidArgument
from ..layout import Layout
from ..op import BinaryOp, CmpOp, ReduceOp, UnaryOp
from ..shape import Shape
from ..storage import Storage

_SCALAR = Layout.contiguous(())


class TensorBase:
    """Elements in a storage, and the layout that says where in it they are."""

    __slots__ = ("__weakref__", "_layout", "_storage")

    _layout: Layout
    _storage: Storage

    # With this, NumPy leaves `array_scalar * tensor` to the tensor instead of taking the tensor apart.
    __array_ufunc__ = None

    @classmethod
    def _new(cls, storage: Storage, layout: Layout) -> Self:
        tensor = object.__new__(cls)
        tensor._storage = storage
        tensor._layout = layout
        return tensor

    def _like(self, storage: Storage) -> Self:
        return self._new(storage, Layout.contiguous(self._layout.shape))

    @property
    def storage(self) -> Storage:
        """The storage that holds the elements; views share it."""
        return self._storage

    @property
    def layout(self) -> Layout:
        """Where in the storage the elements are."""
        return self._layout

    @property
    def shape(self) -> Shape:
        """The sizes of the dims."""
        return self._layout.shape

    @property
    def rank(self) -> int:
        """The number of dims."""
        return len(self._layout.shape)

    @property
    def elem_count(self) -> int:
        """The number of elements."""
        return self._layout.shape.elem_count

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return self._storage.dtype

    @property
    def device(self) -> Device:
        """The device that holds the elements."""
        return self._storage.device

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements follow each other in row-major order in the storage."""
        return self._layout.is_contiguous

    def _unary(self, op: UnaryOp) -> Self:
        return self._like(self._storage.unary_impl(op, self._layout))

    def _binary(self, op: BinaryOp, other: Self | float) -> Self:
        if not isinstance(other, TensorBase):
            number = _number(op.value, other)
            factors = _as_affine(op, number, self.dtype)
            if factors is not None:
                return self._like(self._storage.affine(self._layout, *factors))
            other = self._scalar(op.value, number)
        lhs, rhs = _broadcast(op.value, self._layout, other._layout)
        return self._new(self._storage.binary_impl(op, other._storage, lhs, rhs), Layout.contiguous(lhs.shape))

    def _cmp(self, op: CmpOp, other: Self | float) -> Self:
        if not isinstance(other, TensorBase):
            other = self._scalar(op.value, _number(op.value, other))
        lhs, rhs = _broadcast(op.value, self._layout, other._layout)
        return self._new(self._storage.cmp(op, other._storage, lhs, rhs), Layout.contiguous(lhs.shape))

    def _reduce(self, op: ReduceOp, dim: int | Sequence[int] | None, keepdim: bool) -> Self:
        dims = self._reduced_dims(op.value, dim)
        storage = self._storage.reduce_op(op, self._layout, dims)
        sizes = [1 if i in dims else size for i, size in enumerate(self.shape) if keepdim or i not in dims]
        return self._new(storage, Layout.contiguous(Shape.trusted(sizes)))

    def _reduced_dims(self, op: str, dim: int | Sequence[int] | None) -> tuple[int, ...]:
        shape = self.shape
        if dim is None:
            return tuple(range(len(shape)))
        return tuple([shape.dim(op, item) for item in (dim if isinstance(dim, Sequence) else (dim,))])

    def _scalar(self, op: str, number: float) -> Self:
        """Make a tensor of rank 0 of this tensor's dtype, on its device, of a number that the dtype can hold."""
        dtype = self.dtype
        if dtype.is_integer:
            # As an array, because the way through a float would round the largest of them.
            storage = self.device.storage_owned(np.array([_integer(op, number, dtype)], dtype.numpy))
        else:
            storage = self.device.storage_from_slice([number], dtype)
        return self._new(storage, _SCALAR)


def device_of(device: Device | str | None) -> Device:
    """Return the device that an argument means: a `Device`, its label such as "rocm:0", or None for the CPU."""
    if device is None:
        return Device.cpu()
    return Device.parse(device) if isinstance(device, str) else device


def _number(op: str, value: object) -> float:
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, int | float):
        reason = f"an operand is a Tensor or a Python number, not a {type(value).__name__}; make it a Tensor first"
        raise InvalidArgument(op, reason)
    return value


def _integer(op: str, number: float, dtype: DType) -> int:
    if number != number or number in (float("inf"), float("-inf")) or number != int(number):
        reason = f"{number} is not an integer, but the tensor's dtype is {dtype.value}"
        raise InvalidArgument(op, f"{reason}; convert the tensor to a floating-point dtype with to_dtype first")
    limits = np.iinfo(dtype.numpy)
    if not limits.min <= number <= limits.max:
        reason = f"{number} is outside the range of {dtype.value}, {limits.min} to {limits.max}"
        raise InvalidArgument(op, f"{reason}; convert the tensor to a wider dtype with to_dtype first")
    return int(number)


def _broadcast(op: str, lhs: Layout, rhs: Layout) -> tuple[Layout, Layout]:
    if lhs.shape == rhs.shape:
        return lhs, rhs
    shape = Shape.broadcast(op, lhs.shape, rhs.shape)
    return lhs.broadcast_as(shape), rhs.broadcast_as(shape)


def _as_affine(op: BinaryOp, number: float, dtype: DType) -> tuple[float, float] | None:
    """Return (mul, add) such that x * mul + add, rounded once, has the bits of `op` of x and the number; None if none.

    An affine op takes its numbers along, where a second operand would have to be brought to the device first. Adding
    -0.0 changes nothing, not even the sign of a zero. The number must be rounded to the dtype, as an operand is.
    """
    if not dtype.is_float:
        return None
    if op is BinaryOp.MUL:
        return _rounded(number, dtype), -0.0
    if op is BinaryOp.ADD:
        return 1.0, _rounded(number, dtype)
    return (1.0, -_rounded(number, dtype)) if op is BinaryOp.SUB else None


def _rounded(number: float, dtype: DType) -> float:
    # The cache can't tell the two zeros from each other.
    return float(number) if number == 0 or dtype is DType.F64 else _rounded_nonzero(number, dtype)


@lru_cache(maxsize=256)
def _rounded_nonzero(number: float, dtype: DType) -> float:
    return float(Device.cpu().storage_from_slice([number], dtype).to_numpy()[0])
