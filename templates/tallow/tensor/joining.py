"""Several tensors made one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Never, TypeVar

from ..check import require_alike_but
from ..error import DeviceMismatch, DTypeMismatch, InvalidArgument, ShapeMismatch
from ..layout import Layout
from ..shape import Shape
from .base import named, refuse_keywords, require_tensors
from .views import ViewMethods

T = TypeVar("T", bound=ViewMethods)


def cat(tensors: Iterable[T], dim: int = 0, **unknown: Never) -> T:
    """Join tensors along a dim that they have.

    They have one dtype, one device and, in every dim but `dim`, one size; `DTypeMismatch`, `DeviceMismatch` or
    `ShapeMismatch` otherwise. The result is a contiguous copy.
    """
    refuse_keywords("cat", unknown)
    tensors = _alike("cat", tensors)
    first = tensors[0]
    shape = first.shape
    dim = shape.dim("cat", dim)
    for tensor in tensors:
        require_alike_but("cat", dim, shape, tensor.shape)
    joined = Shape((*shape[:dim], sum(tensor.shape[dim] for tensor in tensors), *shape[dim + 1 :]))
    others = tensors[1:]
    storages, layouts = tuple([tensor.storage for tensor in others]), tuple([tensor.layout for tensor in others])
    return first._new(first.storage.cat(first.layout, storages, layouts, dim), Layout.contiguous(joined))


@named
def stack(tensors: Iterable[T], dim: int = 0, **unknown: Never) -> T:
    """Join tensors of one shape along a new dim that becomes dim `dim` of the result; -1 puts it last."""
    refuse_keywords("stack", unknown)
    first, *others = _alike("stack", tensors)
    for tensor in others:
        if tensor.shape != first.shape:
            raise ShapeMismatch("stack", (first.shape, tensor.shape), "the shapes must be equal; or join them with cat")
    return cat([tensor.unsqueeze(dim) for tensor in (first, *others)], dim)


def _alike(op: str, tensors: Iterable[T]) -> list[T]:
    """Return the tensors, at least one of them, once they have shown to be of one dtype and on one device."""
    try:
        tensors = list(tensors)
    except TypeError:  # of what is no sequence, and of an array of rank 0, which has the methods of one
        reason = f"the tensors to join are in a sequence, not a {type(tensors).__name__}"
        raise InvalidArgument(op, reason) from None
    if not tensors:
        raise InvalidArgument(op, "there are no tensors to join; give at least one")
    for position, tensor in enumerate(tensors):
        require_tensors(op, **{f"tensors[{position}]": tensor})
    first = tensors[0]
    for tensor in tensors:
        if tensor.dtype is not first.dtype:
            raise DTypeMismatch(op, (first.dtype, tensor.dtype))
        if tensor.device != first.device:
            raise DeviceMismatch(op, (first.device.label, tensor.device.label))
    return tensors
