"""Creation of tensors. The device is the CPU unless stated, or that of a tensor argument or of the namespace."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np

from ...device import Device
from ...dtype import DType
from ..base.error import GradientError
from ..core.argument import boolean, integer
from ..core.argument import dtype as as_dtype
from ..tensor import Tensor, stack
from ..tensor import meshgrid as _meshgrid
from ..tensor.base import device_of
from .data_types import Scalar, result_type
from .linear_algebra import diagonal

Shape = int | tuple[int, ...]
Number: TypeAlias = "Scalar | Tensor"
"""A Python number, or a tensor of rank 0, which the host waits for."""


def asarray(
    obj: Any, /, *, dtype: DType | None = None, device: Device | None = None, copy: builtins.bool | None = None
) -> Tensor:
    """Make a tensor of a tensor, an array, a Python number or nested sequences of numbers.

    With `copy` None or False a tensor that has the dtype and is on the device already is returned itself, and the
    memory of an array is shared; ValueError with False if it must be copied.
    """
    copy = None if copy is None else boolean("asarray", "copy", copy)
    if isinstance(obj, Tensor):
        result = obj.to(device=device, dtype=dtype) if device is not None or dtype is not None else obj
    elif hasattr(obj, "__dlpack__") and copy is not True:
        imported = Tensor.from_dlpack(obj)
        result = imported if dtype is None and device is None else imported.to(device=device, dtype=dtype)
    else:
        if copy is False:
            raise ValueError("asarray: a tensor of Python numbers is always a copy; leave out copy=False")
        inner = list(_tensors(obj))
        if inner:
            dtype = dtype or result_type(*inner)
            device = inner[0].device if device is None else device
            if any(tensor.is_recorded for tensor in inner):
                return _stacked(obj, dtype, device)
            obj = _plain(obj)
        return Tensor(obj, dtype=dtype, device=device)
    if copy is False and isinstance(obj, Tensor) and result is not obj:
        raise ValueError("asarray: another dtype or device needs a copy; leave out copy=False")
    return result.copy() if copy and result is obj else result


def _tensors(obj: Any) -> Iterator[Tensor]:
    """Find the tensors in nested sequences."""
    if isinstance(obj, Tensor):
        yield obj
    elif isinstance(obj, list | tuple):
        for item in obj:
            yield from _tensors(item)


def _stacked(obj: Any, dtype: DType, device: Device | None) -> Tensor:
    """Join what nested sequences have by calls that are recorded."""
    if isinstance(obj, list | tuple):
        return stack([_stacked(item, dtype, device) for item in obj])
    return asarray(obj, dtype=dtype, device=device)


def _plain(obj: Any) -> Any:
    """Return nested sequences with Python numbers instead of tensors."""
    if isinstance(obj, list | tuple):
        return [_plain(item) for item in obj]
    return obj.tolist() if isinstance(obj, Tensor) else obj


def arange(
    start: Number,
    /,
    stop: Number | None = None,
    step: Number = 1,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """Make the vector start, start + step, .. that ends before `stop`; of one number, count up to it from 0."""
    dtype = None if dtype is None else as_dtype("arange", "dtype", dtype)
    if dtype is not None and dtype.is_complex:
        return arange(start, stop, step, dtype=dtype.real, device=device).to_dtype(dtype)
    last = None if stop is None else _number("arange", stop)
    return Tensor.arange(_number("arange", start), last, _number("arange", step), dtype=dtype, device=device)


def _number(op: str, value: Number) -> Any:
    """Return a Python number, which is that of a tensor of rank 0; GradientError for one that is recorded."""
    if not isinstance(value, Tensor):
        return value
    if value.is_recorded:
        reason = "the host reads the number, which has no gradient; detach it, or add and multiply tensors"
        raise GradientError(op, reason)
    return value.item()


def empty(shape: Shape, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """Make a tensor of a shape; its elements are zeros, since uninitialised memory may hold other programs' data."""
    return zeros(shape, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """Make a tensor of the shape of another; its elements are zeros."""
    return zeros_like(x, dtype=dtype, device=device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """Make a matrix with 1 on diagonal `k` and 0 elsewhere: 0 is the main diagonal, 1 that above it."""
    matrix = zeros((n_rows, n_rows if n_cols is None else n_cols), dtype=dtype, device=device)
    diagonal(matrix, offset=k).fill_(1)
    return matrix


def from_dlpack(x: Any, /, *, device: Device | None = None, copy: builtins.bool | None = None) -> Tensor:
    """Import the tensor of another library by DLPack, as `Tensor.from_dlpack` does, and move it to `device`."""
    copy = None if copy is None else boolean("from_dlpack", "copy", copy)
    result = Tensor.from_dlpack(x)
    moved = result if device is None else result.to(device)
    if copy is False and moved is not result:
        raise ValueError("from_dlpack: another device needs a copy; leave out copy=False")
    return moved.copy() if copy and moved is result else moved


def full(
    shape: Shape, fill_value: Scalar | Tensor, *, dtype: DType | None = None, device: Device | None = None
) -> Tensor:
    """Make a tensor of one number, which may be a tensor of rank 0."""
    dtype = result_type(fill_value) if dtype is None else dtype
    if isinstance(fill_value, Tensor) and fill_value.is_recorded:
        number = fill_value.reshape(())
        return number.to(device=device_of(device), dtype=dtype).broadcast_as(shape).copy()
    return Tensor.full(shape, _number("full", fill_value), dtype=dtype, device=device)


def full_like(
    x: Tensor, /, fill_value: Scalar | Tensor, *, dtype: DType | None = None, device: Device | None = None
) -> Tensor:
    """Make a tensor of one number, in the shape of another."""
    return full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype, device=device or x.device)


def linspace(
    start: Number,
    stop: Number,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    endpoint: builtins.bool = True,
) -> Tensor:
    """Make a vector of `num` numbers at equal distances from `start` to `stop`, without `stop` if not `endpoint`."""
    num, endpoint = integer("linspace", "num", num), boolean("linspace", "endpoint", endpoint)
    first, last = _number("linspace", start), _number("linspace", stop)
    is_complex = isinstance(first, complex) or isinstance(last, complex)
    default = DType.COMPLEX64 if is_complex else DType.F32
    dtype = default if dtype is None else as_dtype("linspace", "dtype", dtype)
    if dtype.is_complex or is_complex:
        return Tensor(np.linspace(first, last, num, endpoint=endpoint), dtype=dtype, device=device)
    count = num if endpoint else num + 1
    line = Tensor.linspace(first, last, count, dtype=dtype, device=device)
    return line if endpoint else line[:num].copy()


def meshgrid(*arrays: Tensor, indexing: Literal["xy", "ij"] = "xy") -> tuple[Tensor, ...]:
    """View each vector as coordinates of the points of the grid that the vectors span."""
    return tuple(_meshgrid(*arrays, indexing=indexing))


def ones(shape: Shape, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """Make a tensor of ones."""
    return Tensor.ones(shape, dtype=DType.F32 if dtype is None else dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """Make a tensor of ones, in the shape of another."""
    return ones(x.shape, dtype=x.dtype if dtype is None else dtype, device=device or x.device)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Copy matrices, with 0 above diagonal `k`."""
    return x.tril(k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Copy matrices, with 0 below diagonal `k`."""
    return x.triu(k)


def zeros(shape: Shape, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """Make a tensor of zeros."""
    return Tensor.zeros(shape, dtype=DType.F32 if dtype is None else dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """Make a tensor of zeros, in the shape of another."""
    return zeros(x.shape, dtype=x.dtype if dtype is None else dtype, device=device or x.device)
