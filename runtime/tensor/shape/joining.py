"""Concatenation and stacking: several tensors become one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from ...backends.plan import Key
from ...base.bounded_cache import BoundedCache
from ...base.error import DTypeMismatch, InvalidArgument, ShapeMismatch, TallowError, type_name
from ...core.argument import FIRST, dim_of, integer
from ...core.check import require_alike_but
from ...core.layout import Layout, distinct
from ...core.result_shapes import concatenated
from ...storage.calls import MAX_JOINED, RECORDED, TRACED, new
from ..base import TensorBase, require_tensors
from ..promotion import promote
from .views import ViewMethods

T = TypeVar("T", bound=ViewMethods)


class _Join(NamedTuple):
    """The arguments of `Storage.cat` other than storages, and the layout of the result."""

    dim: int
    first: Layout
    others: tuple[Layout, ...]
    result: Layout

    def key(self, kinds: Sequence[int]) -> Key:
        """The key of plans of `Storage.cat` for storages of these kinds."""
        first, *others = kinds
        pairs = zip([layout.number for layout in self.others], others, strict=True)
        return "cat", self.first.number, self.dim, first, tuple(itertools.chain.from_iterable(pairs))


# More elements of a tensor take longer to copy twice, as groups do, than a call without a plan.
_MAX_GROUPED_ELEMENTS: Final = 1 << 13

# By the op, the dim, the number of each layout and the kind of each storage: also the key of the plan.
_joins: Final[BoundedCache[tuple[object, ...], tuple[_Join, Key]]] = BoundedCache(1 << 12)


def cat(tensors: Iterable[T], dim: int = FIRST, axis: int | None = None) -> T:
    """Concatenate tensors along an existing dim.

    They have the same device and, in every dim but `dim`, the same size; `DeviceMismatch` or `ShapeMismatch` otherwise.
    They are promoted to one dtype. The result is a contiguous copy.

    >>> tl.cat([tl.zeros((1, 2)), tl.ones((2, 2))])
    Tensor([[0., 0.],
            [1., 1.],
            [1., 1.]], dtype=f32)
    """
    return _join_along("cat", _along, tensors, dim, axis)


def stack(tensors: Iterable[T], dim: int = FIRST, axis: int | None = None) -> T:
    """Join tensors of one shape along a new dim, which is dim `dim` of the result; -1 puts it last.

    >>> tl.stack([tl.Tensor([1, 2]), tl.Tensor([3, 4])])
    Tensor([[1, 2],
            [3, 4]], dtype=i64)
    >>> tl.stack([tl.Tensor([1, 2]), tl.Tensor([3, 4])], dim=1)
    Tensor([[1, 3],
            [2, 4]], dtype=i64)
    """
    return _join_along("stack", _along_a_new_dim, tensors, dim, axis)


def _join_along(
    op: str,
    arrange: Callable[[list[Layout], int], _Join],
    tensors: Iterable[T],
    dim: int,
    axis: int | None,
) -> T:
    if axis is not None:
        dim = dim_of(op, dim, axis)
    if type(tensors) is not list:
        tensors = _listed(op, tensors)
    try:
        if type(dim) is not int:
            dim = 0 if dim is FIRST else _integer_dim(op, dim)
        numbers: list[object] = [op, dim]
        inners = []
        first = tensors[0]._storage
        # What a trace computes has no device; its method says so of an operand in its words.
        device = None if first.inner.kind == TRACED else first.inner.device
        # Looking at each operand once takes half of the time that the method and its caller would.
        for tensor in tensors:
            inner = tensor._storage.inner
            kind = inner.kind
            if kind == TRACED or inner.device is not device:
                device = None
            numbers.append(tensor._layout.number)
            numbers.append(kind)
            inners.append(inner)
    except (AttributeError, IndexError):
        _listed(op, tensors)
        raise
    try:
        if len(inners) > MAX_JOINED:
            grouped: T | None = _join_groups(op, arrange, tensors, dim)
            if grouped is not None:
                return grouped
            join = arrange([tensor._layout for tensor in tensors], dim)
        else:
            known = _joins.get(own := tuple(numbers))
            if known is None:
                join = arrange([tensor._layout for tensor in tensors], dim)
                known = _joins.put(own, (join, join.key([inner.kind for inner in inners])))
            join, key = known
            plan = None if device is None else device.plans.get(key)
            if plan is not None:
                storage = new(type(first))
                storage.inner = plan(*inners)
                storage.written = None
                joined = new(type(tensors[0]))
                joined._storage = storage
                joined._layout = join.result
                return joined
        storage = first.cat(join.first, tuple([tensor._storage for tensor in tensors[1:]]), join.others, join.dim)
    except TallowError as error:
        error.rename(op)
        if not isinstance(error, DTypeMismatch):
            raise
        tensors = promote(error, *tensors)
    else:
        return tensors[0]._new(storage, join.result)
    return _join_along(op, arrange, tensors, dim, None)


def _join_groups(op: str, arrange: Callable[[list[Layout], int], _Join], tensors: list[T], dim: int) -> T | None:
    """Join groups of tensors, whose calls have plans, and then their results; None where that takes longer."""
    layouts = {tensor._layout.number: tensor._layout for tensor in tensors}
    if max(layout.elem_count for layout in layouts.values()) > _MAX_GROUPED_ELEMENTS:
        return None
    kinds = {tensor._storage.inner.kind for tensor in tensors}
    if (len(kinds) > 1 or RECORDED in kinds) and len({tensor.dtype for tensor in tensors}) > 1:
        return None
    # An error names these shapes rather than those of the groups.
    join = arrange(list(layouts.values()), dim)
    groups = [tensors[begin : begin + MAX_JOINED] for begin in range(0, len(tensors), MAX_JOINED)]
    return _join_along("cat", _along, [_join_along(op, arrange, group, dim, None) for group in groups], join.dim, None)


def _integer_dim(op: str, dim: object) -> int:
    if isinstance(dim, TensorBase) and dim.rank:
        reason = f"dim must be an integer, not a {type_name(dim)}; pass the tensors as one list: {op}([x, y], dim)"
        raise InvalidArgument(op, reason)
    return integer(op, "dim", dim)


def _along(layouts: Sequence[Layout], dim: int) -> _Join:
    first, *others = layouts
    shape = first.shape
    dim = shape.dim("cat", dim)
    for other in distinct(others):
        require_alike_but("cat", dim, shape, other.shape)
    return _Join(dim, first, tuple(others), Layout.contiguous(concatenated(first, others, dim)))


def _along_a_new_dim(layouts: Sequence[Layout], dim: int) -> _Join:
    shape = layouts[0].shape
    expanded = {}
    for layout in distinct(layouts):
        if layout.shape != shape:
            raise ShapeMismatch("stack", (shape, layout.shape), "the shapes must be equal; or join them with cat")
        expanded[layout.number] = layout.unsqueeze(dim)
    return _along([expanded[layout.number] for layout in layouts], dim)


def _listed(op: str, tensors: Iterable[T]) -> list[T]:
    """Return the tensors, at least one of them."""
    try:
        tensors = list(tensors)
    except TypeError:  # of what is no sequence, and of an array of rank 0, which has the methods of one
        reason = f"the tensors to join are in a sequence, not a {type_name(tensors)}"
        raise InvalidArgument(op, reason) from None
    if not tensors:
        raise InvalidArgument(op, "there are no tensors to join; give at least one")
    for position, tensor in enumerate(tensors):
        if not isinstance(tensor, TensorBase):
            require_tensors(op, **{f"tensors[{position}]": tensor})
    return tensors
