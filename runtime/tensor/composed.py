"""Operands and results of storage methods that are composed of tensor methods."""

from __future__ import annotations

from ...storage import Storage
from ..base.error import ShapeMismatch
from ..core.layout import Layout
from ..core.tensor_type import TensorType
from .tensor import Tensor


def operand(storage: Storage, layout: Layout) -> Tensor:
    """Return an operand as a tensor."""
    return Tensor._new(storage, layout)


def stored(op: str, result: Tensor, expected: TensorType) -> Storage:
    """The storage of a result, converted to the dtype of the expected one; `ShapeMismatch` if it has another shape."""
    if result.shape != expected.shape:
        reason = f"the operands do not fit: the result would not be {tuple(expected.shape)}"
        raise ShapeMismatch(op, (result.shape,), reason)
    result = result.to_dtype(expected.dtype)
    layout, storage = result._layout, result._storage
    # A view of the elements of other tensors is copied.
    is_own = layout.dense is layout and storage.inner.length == layout.elem_count
    return storage if is_own else result.copy()._storage
