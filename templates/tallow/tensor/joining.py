"""Several tensors made one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Never, TypeVar

from ..argument import integer
from ..check import require_alike_but
from ..error import InvalidArgument, ShapeMismatch
from ..kept import Kept
from ..layout import Layout
from ..shape import Shape
from .base import TensorBase, named, refuse_keywords, require_tensors
from .views import ViewMethods

T = TypeVar("T", bound=ViewMethods)

# Which dim layouts were joined along, and the layout of the result, by the numbers of the layouts.
_joins: Final[Kept[tuple[int, ...], tuple[int, Layout]]] = Kept(1 << 12)


def cat(tensors: Iterable[T], dim: int = 0, **unknown: Never) -> T:
    """Join tensors along a dim that they have.

    They have one dtype, one device and, in every dim but `dim`, one size; `DTypeMismatch`, `DeviceMismatch` or
    `ShapeMismatch` otherwise. The result is a contiguous copy.
    """
    if unknown:
        refuse_keywords("cat", unknown)
    if type(tensors) is not list:
        tensors = _listed("cat", tensors)
    try:
        first, *others = tensors
        layout = first._layout
        numbers = [dim if type(dim) is int else integer("cat", "dim", dim), layout.number]
        storages, layouts = [], []
        for tensor in others:
            other = tensor._layout
            numbers.append(other.number)
            layouts.append(other)
            storages.append(tensor._storage)
    except (AttributeError, ValueError):
        _listed("cat", tensors)
        raise
    key = tuple(numbers)
    found = _joins.get(key)
    if found is None:
        found = _joins.keep(key, _join(numbers[0], [layout.shape, *(other.shape for other in layouts)]))
    dim, joined = found
    return first._new(first._storage.cat(layout, tuple(storages), tuple(layouts), dim), joined)


def _join(dim: int, shapes: Sequence[Shape]) -> tuple[int, Layout]:
    """The dim along which shapes are joined, counted from the first, and the layout of the result."""
    shape = shapes[0]
    dim = shape.dim("cat", dim)
    for other in shapes:
        require_alike_but("cat", dim, shape, other)
    return dim, Layout.contiguous((*shape[:dim], sum(each[dim] for each in shapes), *shape[dim + 1 :]))


@named
def stack(tensors: Iterable[T], dim: int = 0, **unknown: Never) -> T:
    """Join tensors of one shape along a new dim that becomes dim `dim` of the result; -1 puts it last."""
    refuse_keywords("stack", unknown)
    first, *others = _listed("stack", tensors)
    for tensor in others:
        if tensor.shape != first.shape:
            raise ShapeMismatch("stack", (first.shape, tensor.shape), "the shapes must be equal; or join them with cat")
    return cat([tensor.unsqueeze(dim) for tensor in (first, *others)], dim)


def _listed(op: str, tensors: Iterable[T]) -> list[T]:
    """Return the tensors, at least one of them."""
    try:
        tensors = list(tensors)
    except TypeError:  # of what is no sequence, and of an array of rank 0, which has the methods of one
        reason = f"the tensors to join are in a sequence, not a {type(tensors).__name__}"
        raise InvalidArgument(op, reason) from None
    if not tensors:
        raise InvalidArgument(op, "there are no tensors to join; give at least one")
    for position, tensor in enumerate(tensors):
        if not isinstance(tensor, TensorBase):
            require_tensors(op, **{f"tensors[{position}]": tensor})
    return tensors
