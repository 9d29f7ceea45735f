"""The gradient of a storage, summed up from those of the views that were used."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from ...device import Device
from ..base.bounded_cache import BoundedCache
from ..core.layout import Layout
from ..core.shape import Shape
from ..tensor import Tensor
from ..tensor.batch import new_like
from .recording import mode


class _Placement(NamedTuple):
    """How the gradient of what a layout shows becomes a part of that of the storage."""

    is_plain: bool
    """Whether it is that: the layout shows all elements once, in the order of the storage."""

    repeated: tuple[int, ...]
    """Dims along which the layout repeats elements."""
    order: tuple[int, ...] | None
    """The dims in the order of the storage, where the layout shows all of it; none where they are in it already."""
    layout: Layout
    """The layout without repetitions."""
    overlaps: bool


# By the number of the layout and the length of the storage.
placements: Final[BoundedCache[tuple[int, int], _Placement]] = BoundedCache(1 << 12)


def _placement(layout: Layout, length: int) -> _Placement:
    repeated = layout.repeated_dims
    sizes = [1 if i in repeated else size for i, size in enumerate(layout.shape)]
    once = Layout(sizes, layout.strides, layout.start_offset)
    order = sorted(range(len(sizes)), key=lambda i: (-once.strides[i], sizes[i] != 1, i))
    is_complete = math.prod(sizes) == length and layout.start_offset == 0 and once.permute(order).is_contiguous
    permuted = () if order == sorted(order) else tuple(order)
    is_plain = is_complete and permuted == () and not repeated
    return _Placement(is_plain, repeated, permuted if is_complete else None, once, once.overlaps_itself)


def _placement_of(layout: Layout, length: int) -> _Placement:
    key = layout.number, length
    return placements.get(key) or placements.put(key, _placement(layout, length))


def alone(gradient: Tensor, layout: Layout, length: int) -> Tensor | None:
    """Return the gradient of a storage of `length` elements that has one use, with a layout; None where it has none."""
    total = Sum(length)
    total.add(gradient, layout)
    return total.total


class Sum:
    """The gradient of a storage so far: as many elements, in the same order, in a tensor of any shape."""

    __slots__ = ("_is_own", "_length", "_parts", "_total")

    def __init__(self, length: int) -> None:
        self._length = length
        self._is_own = False
        """Whether the total is a storage of this sum's own, in row-major order."""
        self._total: Tensor | None = None
        self._parts: list[tuple[Tensor, _Placement]] = []
        """The gradients of what layouts show of a part of the storage."""

    @property
    def total(self) -> Tensor | None:
        """The sum; None of nothing."""
        if self._parts:
            self._add_parts()
        return self._total

    def add(self, gradient: Tensor, layout: Layout) -> None:
        """Add the gradient of what a layout shows, in its shape or with size 1 where it repeats elements."""
        placement = _placement_of(layout, self._length)
        if placement.repeated:
            repeated = [dim for dim in placement.repeated if gradient.shape[dim] > 1]
            gradient = gradient.sum(repeated, keepdim=True) if repeated else gradient
        if placement.order is not None:
            self._add_complete(gradient.permute(placement.order) if placement.order else gradient)
        else:
            self._parts.append((gradient, placement))

    def join(self, add: Callable[[Tensor | None], Tensor], layout: Layout) -> None:
        """Add a gradient by a function, which adds it to what is there already; of nothing it gives the gradient."""
        so_far = None
        if self._total is not None and layout.is_contiguous and layout.elem_count == self._length:
            # What is recorded is added by an op of its own.
            so_far = None if mode().keeps_graph else self._total.reshape(layout.shape)
        if so_far is None:
            self.add(add(None), layout)
        else:
            self._total, self._is_own = add(so_far), True

    def _add_complete(self, gradient: Tensor) -> None:
        total = self._total
        if total is None:
            self._total = gradient
        elif self._is_own:
            total.add_(gradient.reshape(total.shape))
        else:
            self._total = total + gradient.reshape(total.shape)
            self._is_own = True

    def _add_parts(self) -> None:
        parts, self._parts = self._parts, []
        first = parts[0][0]
        if self._total is None and _are_all(tuple([placement.layout for _, placement in parts]), self._length):
            allocate = partial(first.device.alloc_uninit, dtype=first.dtype)
            storage = new_like(first._storage, Shape._trusted((self._length,)), allocate)
            for gradient, placement in parts:
                Tensor._new(storage, placement.layout).copy_(gradient)
            self._add_complete(Tensor._new(storage, flat(self._length)))
            return
        if self._total is None:
            self._total = first._new_full((self._length,))
        elif not self._is_own:
            self._total = self._total.copy()
        self._is_own = True
        for gradient, placement in parts:
            self._add_part(self._total, gradient, placement)

    def _add_part(self, total: Tensor, gradient: Tensor, placement: _Placement) -> None:
        if not gradient.elem_count:
            return
        if placement.overlaps:
            positions = _positions(placement.layout, gradient.device)
            self._total = total.reshape(-1).index_add(positions, gradient.reshape(-1), 0)
        else:
            Tensor._new(total._storage, placement.layout).add_(gradient)


# By the numbers of the layouts and the length of the storage.
_complete: Final[BoundedCache[tuple[int, ...], bool]] = BoundedCache(1 << 12)


def _are_all(layouts: tuple[Layout, ...], length: int) -> bool:
    """Whether layouts show all elements of a storage together, each once."""
    if sum([layout.elem_count for layout in layouts]) != length:
        return False
    key = (length, *[layout.number for layout in layouts])
    is_full = _complete.get(key)
    if is_full is None:
        counts = np.zeros(length, np.uint8)
        for layout in layouts:
            part = np.lib.stride_tricks.as_strided(counts[layout.start_offset :], layout.shape, layout.strides)
            part += 1
        is_full = _complete.put(key, bool(counts.all()))
    return is_full


# By the numbers of two layouts.
_shared: Final[BoundedCache[tuple[int, int], bool]] = BoundedCache(1 << 12)


def share_elements(first: Layout, second: Layout) -> bool:
    """Tell whether two layouts show an element of a storage both."""
    key = first.number, second.number
    is_shared = _shared.get(key)
    if is_shared is None:
        elements = np.empty(max(first.end, second.end), np.uint8)
        one, other = [
            np.lib.stride_tricks.as_strided(elements[layout.start_offset :], layout.shape, layout.strides)
            for layout in (first, second)
        ]
        is_shared = _shared.put(key, np.shares_memory(one, other))
    return is_shared


def _positions(layout: Layout, device: Device) -> Tensor:
    """Return the position in the storage of each element of a layout, computed on a device so that graphs can."""
    positions = Tensor.full(1, layout.start_offset, device=device)
    for size, step in zip(layout.shape, layout.strides, strict=True):
        if size > 1:
            positions = (positions.unsqueeze(-1) + Tensor.arange(0, size * step, step, device=device)).reshape(-1)
    return positions


def flat(length: int) -> Layout:
    """The layout that shows all elements of a storage."""
    return Layout.contiguous(Shape._trusted((length,)))
