"""Places of elements, their order, and sets of elements. Positions are i64."""

from __future__ import annotations

import builtins
from typing import Literal, NamedTuple

from ...dtype import DType
from ..base.error import ShapeMismatch
from ..core.argument import boolean
from ..tensor import Tensor
from .creation import full
from .data_types import Scalar, promoted_operands
from .manipulation import Axes, concat


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """Find the position of the largest element along an axis, of all elements with None; the first of equals."""
    return x.argmax(axis, keepdims).to_dtype(DType.I64)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """Find the position of the smallest element along an axis, of all elements with None; the first of equals."""
    return x.argmin(axis, keepdims).to_dtype(DType.I64)


def count_nonzero(x: Tensor, /, *, axis: Axes | None = None, keepdims: builtins.bool = False) -> Tensor:
    """Count the elements that are not 0 along some axes, by default all."""
    return x.count_nonzero(axis, keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Find the elements that are not 0: for each axis, a vector of their positions. Waits for the device."""
    if not x.rank:
        raise ShapeMismatch("nonzero", (x.shape,), "a tensor of rank 0 has no axes; use bool(x)")
    return tuple(x.nonzero().unbind(1))


def searchsorted(
    x1: Tensor, x2: Tensor | Scalar, /, *, side: Literal["left", "right"] = "left", sorter: Tensor | None = None
) -> Tensor:
    """Find where numbers would be inserted into a vector in ascending order, or in the order that `sorter` gives."""
    line, numbers = promoted_operands("searchsorted", x1, x2)
    return (line if sorter is None else line.index_select(sorter, 0)).searchsorted(numbers, side)


def where(condition: Tensor, x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Take elements of `x1` where a condition holds, else of `x2`; all broadcast."""
    if not (isinstance(x1, Tensor) or isinstance(x2, Tensor)):
        x1 = Tensor(x1, device=condition.device)
    return condition.where(*promoted_operands("where", x1, x2))


def sort(x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
    """Put the elements along an axis in order; NaN comes last. The order is always stable."""
    boolean("sort", "stable", stable)
    return x.sort(axis, descending)[0]


def argsort(x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
    """Find the positions of the elements along an axis in order; NaN comes last. The order is always stable."""
    boolean("argsort", "stable", stable)
    return x.argsort(axis, descending).to_dtype(DType.I64)


class UniqueAll(NamedTuple):
    """The results of `unique_all`."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The results of `unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The results of `unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """Return the different elements in ascending order, and of each where it is first and how often it is there.

    `inverse_indices` say for each element of the tensor which of them it is. Each NaN is different from all others. The
    host waits for the number of elements.
    """
    return UniqueAll(*x.unique(return_indices=True, return_inverse=True, return_counts=True))


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return the different elements in ascending order, and how often each is there."""
    return UniqueCounts(*x.unique(return_counts=True))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return the different elements in ascending order, and for each element of the tensor which of them it is."""
    return UniqueInverse(*x.unique(return_inverse=True))


def unique_values(x: Tensor, /) -> Tensor:
    """Return the different elements in ascending order."""
    values = x.unique()
    assert isinstance(values, Tensor)
    return values


def isin(x1: Tensor | Scalar, x2: Tensor | Scalar, /, *, invert: builtins.bool = False) -> Tensor:
    """Tell of each element of `x1` whether it is among those of `x2`; the opposite with `invert`."""
    invert = boolean("isin", "invert", invert)
    elements, among = promoted_operands("isin", x1, x2)
    line = among.flatten()
    if not line.size:
        return full(elements.shape, invert, device=elements.device)
    if line.dtype.is_complex:
        # What has no order has a number by which it is one of the different elements of both.
        numbers = unique_inverse(concat([elements, line], axis=None)).inverse_indices
        elements, line = numbers[: elements.size].reshape(elements.shape), numbers[elements.size :]
    line = sort(line)
    positions = line.searchsorted(elements)
    nearest = line.take_along_dim(positions.minimum(line.size - 1).flatten(), 0).reshape(elements.shape)
    return nearest.ne(elements) if invert else nearest.eq(elements)
