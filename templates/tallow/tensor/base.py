"""What every part of a tensor stands on: a storage, a layout, and the ways to call an op of the storage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Never, Self

import numpy as np

from .. import argument
from ..argument import DTypeLike
from ..backend import BackendDevice
from ..device import Device
from ..dtype import DType
from ..error import InvalidArgument, ShapeMismatch, shown
from ..layout import Layout
from ..op import BinaryOp, CmpOp, ReduceOp, UnaryOp
from ..shape import Shape
from ..storage import Storage
from .number import as_affine, as_number

# By NumPy's names of parameters, those of tensors.
_NAMES_HERE = {"axis": "dim", "keepdims": "keepdim"}


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

    def _binary(self, op: BinaryOp, other: Self | float, *, reflected: bool = False) -> Self:
        if not isinstance(other, TensorBase):
            dtype = self.dtype
            factors = as_affine(op, as_number(op.value, other, dtype), dtype, reflected=reflected)
            if factors is not None:
                return self._like(self._storage.affine(self._layout, *factors))
        left, right = self, self._operand(op.value, other)
        if reflected:
            left, right = right, left
        lhs, rhs = _broadcast(op.value, left._layout, right._layout)
        storage = left._storage.binary_impl(op, right._storage, lhs, rhs)
        return self._new(storage, Layout.contiguous(lhs.shape))

    def _joined(self, op: str, method: Callable[..., Storage], /, *others: object, **operands: Self | float) -> Self:
        """The method `op` of this tensor's storage, with further operands by name and the other arguments."""
        tensors = [self._operand(op, operand, name) for name, operand in operands.items()]
        shape = self.shape
        for tensor in tensors:
            shape = Shape.broadcast(op, shape, tensor.shape)
        rest = [part for tensor in tensors for part in (tensor._storage, tensor._layout.broadcast_as(shape))]
        return self._new(method(self._layout.broadcast_as(shape), *rest, *others), Layout.contiguous(shape))

    def _cmp(self, op: CmpOp, other: Self | float) -> Self:
        left, right = self, self._operand(op.value, other)
        if left.dtype is not right.dtype:
            common = _common_integer(left.dtype, right.dtype)
            if common is not None:
                left, right = left.to_dtype(common), right.to_dtype(common)
        lhs, rhs = _broadcast(op.value, left._layout, right._layout)
        return self._new(left._storage.cmp(op, right._storage, lhs, rhs), Layout.contiguous(lhs.shape))

    def to_dtype(self, dtype: DTypeLike) -> Self:
        """Convert the elements; the tensor itself if they have the dtype already.

        Float to integer truncates and saturates, NaN gives 0; integer to integer wraps; to a float rounds once to
        nearest even, and f8e4m3 saturates at 448.
        """
        target = argument.dtype("to_dtype", "dtype", dtype)
        return self if target is self.dtype else self._like(self._storage.to_dtype(self._layout, target))

    def _reduce(
        self, op: ReduceOp, dim: int | Sequence[int] | None, keepdim: bool, unknown: Mapping[str, Never]
    ) -> Self:
        refuse_keywords(op.value, unknown)
        dims, keepdim = self._reduced_dims(op.value, dim), argument.boolean(op.value, "keepdim", keepdim)
        storage = self._storage.reduce_op(op, self._layout, dims)
        sizes = [1 if i in dims else size for i, size in enumerate(self.shape) if keepdim or i not in dims]
        return self._new(storage, Layout.contiguous(Shape._trusted(sizes)))

    def _reduced_dims(self, op: str, dim: int | Sequence[int] | None) -> tuple[int, ...]:
        shape = self.shape
        if dim is None:
            return tuple(range(len(shape)))
        return tuple([shape.dim(op, item) for item in (dim if isinstance(dim, Sequence) else (dim,))])

    def _operand(self, op: str, other: Self | float, name: str = "other") -> Self:
        """Return a tensor as it is, and a number as a tensor of rank 0 of this tensor's dtype, on its device."""
        if isinstance(other, TensorBase):
            return other
        dtype = self.dtype
        number = as_number(op, other, dtype, name=name)
        # The cache can't tell the two zeros from each other.
        scalar = _scalar if number else _scalar.__wrapped__
        return self._new(scalar(self._storage.inner.device, number, dtype), Layout.contiguous(()))


@lru_cache(maxsize=256, typed=True)
def _scalar(device: BackendDevice, number: float, dtype: DType) -> Storage:
    """A storage of one number, which nothing writes to since no tensor that anybody sees has it."""
    return Device(device).storage_from_slice([number], dtype)  # type: ignore[arg-type] # of the backend's own class


def device_of(device: Device | str | None) -> Device:
    """Return the device that an argument means: a `Device`, its label as in `Device.parse`, or None for the CPU."""
    if device is None:
        return Device.cpu()
    if isinstance(device, str):
        return Device.parse(device)
    if not isinstance(device, Device):
        raise InvalidArgument("device", f"{shown(device)} is no device; use Device.parse or a label such as 'cpu'")
    return device


def refuse_keywords(op: str, unknown: Mapping[str, object]) -> None:
    """Raise `InvalidArgument` if a method was given keywords that it lacks; it says what NumPy's are called here."""
    for name in unknown:
        mend = f"write {_NAMES_HERE[name]}= instead" if name in _NAMES_HERE else "leave it out"
        raise InvalidArgument(op, f"there is no argument '{name}'; {mend}")


def require_alike_but(op: str, dim: int, shape: Shape, other: Shape) -> None:
    """Raise `ShapeMismatch` unless two shapes are equal in every dim but one."""
    if len(other) != len(shape) or other[:dim] != shape[:dim] or other[dim + 1 :] != shape[dim + 1 :]:
        reason = f"the shapes must be equal in every dim but {dim}; reshape or narrow one of the tensors"
        raise ShapeMismatch(op, (shape, other), reason)


def require_tensors(op: str, **operands: object) -> None:
    """Raise `InvalidArgument` if an operand, given by its name, is anything else, such as a list or an array."""
    for name, operand in operands.items():
        if not isinstance(operand, TensorBase):
            raise InvalidArgument(op, f"{name} must be a Tensor, not of type {type(operand).__name__}")


@cache
def _common_integer(first: DType, second: DType) -> DType | None:
    """Return the smallest integer dtype that has all numbers of two integer dtypes; None if there is none."""
    if not (first.is_integer and second.is_integer):
        return None
    limits = {dtype: np.iinfo(dtype.numpy) for dtype in DType if dtype.is_integer}
    least = min(limits[first].min, limits[second].min)
    most = max(limits[first].max, limits[second].max)
    fitting = [dtype for dtype, limit in limits.items() if limit.min <= least and most <= limit.max]
    return min(fitting, key=lambda dtype: dtype.itemsize, default=None)


def _broadcast(op: str, lhs: Layout, rhs: Layout) -> tuple[Layout, Layout]:
    left, right = lhs.shape, rhs.shape
    if left == right:
        return lhs, rhs
    shape = Shape.broadcast(op, left, right)
    return lhs if left == shape else lhs.broadcast_as(shape), rhs if right == shape else rhs.broadcast_as(shape)
