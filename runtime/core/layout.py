"""Layouts: where in a storage the elements of a tensor are.

Every op makes and checks a few layouts, so they are cheap to make: what can be worked out later is, once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from operator import mul
from typing import Final

from ..base.bounded_cache import BoundedCache
from ..base.error import InvalidArgument, InvalidDim, InvalidLayout, ShapeMismatch
from .argument import integer, integers
from .shape import MAX_ELEMENTS, Shape


@dataclass(init=False, slots=True, unsafe_hash=True)
class Layout:
    """A shape, the step in elements along each of its dims, and where the first element is.

    Layouts are shared and never change. They are a plain class and not a frozen one because freezing makes their
    construction five times slower; `Final` lets the type checker guard them instead.

    >>> tl.Layout.contiguous((2, 3))
    Layout(shape=(2, 3), strides=(3, 1), start_offset=0)
    >>> tl.Layout((2, 3), (1, 2)).is_contiguous
    False
    """

    shape: Final[Shape]
    """The sizes of the dims."""
    strides: Final[tuple[int, ...]]
    """The step along each dim, in elements."""
    start_offset: Final[int]
    """The position of the first element in its storage."""
    number: int = field(repr=False, compare=False)
    """An id that only equal layouts share, so that caches are keyed by it quickly."""
    _end: int | None = field(repr=False, compare=False)
    _is_contiguous: bool | None = field(repr=False, compare=False)
    _dense: Layout | None = field(repr=False, compare=False)
    _ordered: Layout | None = field(repr=False, compare=False)
    _preserved: Layout | None = field(repr=False, compare=False)
    _repeated: Layout | None = field(repr=False, compare=False)

    def __init__(self, shape: Iterable[int], strides: Iterable[int], start_offset: int = 0) -> None:
        shape, strides = Shape(shape), integers("layout", "strides", strides)
        if len(strides) != len(shape):
            raise InvalidArgument("layout", f"shape {shape} needs {len(shape)} strides, not {strides}")
        if strides and min(strides) < 0:
            raise InvalidArgument("layout", f"strides are 0 or more, not {strides}")
        if strides and max(strides) >= MAX_ELEMENTS:
            # Nothing steps along a dim of size 1, but kernels and NumPy count its stride; `check` refuses the others.
            strides = tuple([step if size > 1 else 0 for size, step in zip(shape, strides, strict=True)])
        self.shape = shape
        self.strides = strides
        self.start_offset = integer("layout", "start_offset", start_offset)
        # A class with `__getattr__`, which could do this later, has all its attributes read more slowly.
        self.number = _number(shape, strides, self.start_offset)
        self._end = None
        self._is_contiguous = None
        self._dense = None
        self._ordered = None
        self._preserved = None
        self._repeated = None

    @staticmethod
    def _trusted(shape: Shape, strides: tuple[int, ...], start_offset: int) -> Layout:
        """Put together what comes from another layout, which makes checking it again a waste."""
        layout = object.__new__(Layout)
        layout.shape = shape  # type: ignore[misc]
        layout.strides = strides  # type: ignore[misc]
        layout.start_offset = start_offset  # type: ignore[misc]
        layout.number = _number(shape, strides, start_offset)
        layout._end = None
        layout._is_contiguous = None
        layout._dense = None
        layout._ordered = None
        layout._preserved = None
        layout._repeated = None
        return layout

    @staticmethod
    def contiguous(shape: Iterable[int], start_offset: int = 0) -> Layout:
        """Lay out elements that follow each other in row-major order."""
        if type(start_offset) is not int:
            start_offset = integer("layout", "start_offset", start_offset)
        if type(shape) is tuple:
            try:
                return contiguous_of(start_offset, *shape)
            except TypeError:
                # One of the sizes has no hash.
                pass
        return _contiguous(shape if isinstance(shape, Shape) else Shape(shape), start_offset)

    @property
    def dense(self) -> Layout:
        """The layout of the same shape whose elements follow each other from the first of a storage on."""
        if self._dense is None:
            self._dense = Layout.contiguous(self.shape)
        return self._dense

    @property
    def ordered(self) -> Layout:
        """The dims in the order of memory if the elements fill a range of it, each once; else the layout itself.

        An elementwise op on this layout reads and writes memory in order.
        """
        if self._ordered is None:
            self._ordered, self._preserved = self._in_memory_order()
        return self._ordered

    @property
    def preserved(self) -> Layout:
        """The layout of an elementwise result of the same shape: in memory in the order of these elements."""
        if self._preserved is None:
            self._ordered, self._preserved = self._in_memory_order()
        return self._preserved

    def _in_memory_order(self) -> tuple[Layout, Layout]:
        if self.is_contiguous:
            return self, self.dense
        order = self.memory_order()
        if not order:
            return self, self.dense
        ordered = self._permuted(order)
        return ordered, ordered.dense._permuted(inverse(order))

    def memory_order(self) -> tuple[int, ...]:
        """The dims from the longest stride to the shortest; none if the elements do not fill a range of memory."""
        if self.is_contiguous:
            return tuple(range(self.rank))
        shape, strides = self.shape, self.strides
        order = sorted(range(len(shape)), key=strides.__getitem__, reverse=True)
        step = 1
        for dim in reversed(order):
            if strides[dim] != step and shape[dim] != 1:
                return ()
            step *= shape[dim]
        return tuple(order)

    @property
    def is_channels_last(self) -> bool:
        """Whether the channels of (b, c, ..), of 1 to 3 spatial dims, are innermost in memory, and those are in order.

        The strides of dims of size 1 say nothing, so that no layout is both this and contiguous.
        """
        if not 3 <= self.rank <= 5 or self.is_contiguous:
            return False
        last = self.permute(channels_last_order(self.rank))
        steps = [stride for size, stride in zip(last.shape, last.strides, strict=True) if size > 1]
        return self.strides[1] == 1 and self.shape[1] > 1 and steps == sorted(steps, reverse=True)

    @property
    def repeated(self) -> Layout:
        """The layout of the same shape that shows the first element of a storage everywhere."""
        if self._repeated is None:
            self._repeated = Layout.contiguous(()).broadcast_as(self.shape)
        return self._repeated

    @property
    def distinct(self) -> Layout:
        """The layout of the same elements, of which each that a stride of 0 repeats is shown once."""
        shape = Shape(size if stride else 1 for size, stride in zip(self.shape, self.strides, strict=True))
        return Layout(shape, self.strides, self.start_offset)

    @property
    def repeated_dims(self) -> tuple[int, ...]:
        """The dims along which all elements are one: those of size above 1 with a stride of 0."""
        steps = enumerate(zip(self.shape, self.strides, strict=True))
        return tuple([dim for dim, (size, stride) in steps if size > 1 and stride == 0])

    @property
    def dims(self) -> tuple[int, ...]:
        """The sizes of the dims."""
        return self.shape

    @property
    def rank(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def elem_count(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements follow each other in row-major order, wherever they start.

        The strides of dims of size 1 do not matter, and no elements are contiguous.
        """
        if self._is_contiguous is None:
            self._is_contiguous = self._step_like_rows() or 0 in self.shape
        return self._is_contiguous

    def _step_like_rows(self) -> bool:
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if stride != step and size != 1:
                return False
            step *= size
        return True

    @property
    def end(self) -> int:
        """One past the last element of the storage that is reached; 0 if none is."""
        if self._end is None:
            shape, strides = self.shape, self.strides
            self._end = 0 if 0 in shape else self.start_offset + sum(map(mul, shape, strides)) - sum(strides) + 1
        return self._end

    @property
    def overlaps_itself(self) -> bool:
        """Return True if several positions share an element, such as in a broadcast view.

        Strides that are not multiples of each other count as overlapping wherever a dim reaches beyond a step of
        another one: no view of a contiguous tensor has such.
        """
        reach = 0
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size > 1 and stride <= reach:
                return 0 not in self.shape
            reach += (size - 1) * stride
        return False

    def check(self, op: str, length: int) -> None:
        """Raise `InvalidLayout` if an element is outside a storage of `length` elements, or there are 2**56 or more."""
        if type(length) is not int:
            length = integer(op, "length", length)
        # Only repeated elements reach MAX_ELEMENTS; neither loops nor byte counts can handle them.
        if self.end > length or self.start_offset < 0 or prod(self.shape) >= MAX_ELEMENTS:
            raise InvalidLayout(op, self, length)

    def transpose(self, dim1: int, dim2: int) -> Layout:
        """Return the layout with two dims swapped."""
        shape, strides = self.shape, self.strides
        first, second = shape.dim("transpose", dim1, "dim1"), shape.dim("transpose", dim2, "dim2")
        sizes, steps = list(shape), list(strides)
        sizes[first], sizes[second] = sizes[second], sizes[first]
        steps[first], steps[second] = steps[second], steps[first]
        return Layout._trusted(Shape._trusted(sizes), tuple(steps), self.start_offset)

    def permute(self, dims: Sequence[int]) -> Layout:
        """Return the layout whose dim i is dim `dims[i]` of this one; `dims` names every dim once."""
        shape = self.shape
        dims = integers("permute", "dims", dims)
        order = [shape.dim("permute", dim) for dim in dims]
        if len(order) != len(shape) or len(set(order)) != len(shape):
            raise InvalidArgument("permute", f"dims {dims} do not name each of the {len(shape)} dims once")
        return self._permuted(order)

    def _permuted(self, order: Iterable[int]) -> Layout:
        """The layout whose dim i is dim `order[i]` of this one; `order` is not checked."""
        shape, strides = self.shape, self.strides
        sizes, steps = [shape[dim] for dim in order], [strides[dim] for dim in order]
        return Layout._trusted(Shape._trusted(sizes), tuple(steps), self.start_offset)

    def narrow(self, dim: int, start: int, length: int, step: int = 1) -> Layout:
        """Return the layout of `length` positions along `dim`: start, start + step, start + 2 * step and so on."""
        shape, strides = self.shape, self.strides
        dim = shape.dim("narrow", dim)
        start, length = integer("narrow", "start", start), integer("narrow", "length", length)
        step = integer("narrow", "step", step)
        size = shape[dim]
        last = start + (length - 1) * step if length else start - 1
        if start < 0 or length < 0 or step < 1 or last >= size:
            reason = f"{length} positions from {start} in steps of {step} are not in dim {dim} of shape {shape}"
            raise InvalidArgument("narrow", f"{reason}; {_mend_of_narrow(start, length, step, size)}")
        sizes, steps = list(shape), list(strides)
        sizes[dim] = length
        if length > 1:  # a single position has no stride
            steps[dim] *= step
        # Only with no elements may the other sizes be too large for a shape.
        narrowed = Shape._trusted(sizes) if length else Shape(sizes)
        return Layout._trusted(narrowed, tuple(steps), self.start_offset + start * strides[dim])

    def broadcast_as(self, shape: Iterable[int]) -> Layout:
        """Stretch to `shape` by NumPy's rules: stride 0 along each dim that is new or was of size 1."""
        target = shape if isinstance(shape, Shape) else Shape(shape)
        return self if target == self.shape else _broadcast(self.shape, self.strides, self.start_offset, target)

    def squeeze(self, dim: int) -> Layout:
        """Drop `dim`, which must be of size 1."""
        shape, strides = self.shape, self.strides
        dim = shape.dim("squeeze", dim)
        if shape[dim] != 1:
            raise InvalidArgument("squeeze", f"dim {dim} of shape {shape} is not of size 1; index or reduce it instead")
        after = slice(dim + 1, None)
        sizes = Shape._trusted(shape[:dim] + shape[after])
        return Layout._trusted(sizes, strides[:dim] + strides[after], self.start_offset)

    def unsqueeze(self, dim: int) -> Layout:
        """Insert a new dim of size 1 that becomes dim `dim`; -1 puts it last."""
        shape, strides = self.shape, self.strides
        rank, dim = len(shape), integer("unsqueeze", "dim", dim)
        if not -rank - 1 <= dim <= rank:
            raise InvalidDim("unsqueeze", f"a new dim of shape {shape} goes from {-rank - 1} to {rank}, not {dim}")
        dim %= rank + 1
        sizes = (*shape[:dim], 1, *shape[dim:])
        step = strides[dim] * shape[dim] if dim < rank else 1
        return Layout._trusted(Shape(sizes), (*strides[:dim], step, *strides[dim:]), self.start_offset)

    def reshape(self, shape: Iterable[int]) -> Layout | None:
        """Lay out the same elements, in row-major order, in another shape; None where that takes a copy."""
        target = Shape(shape)
        if target.elem_count != self.elem_count:
            reason = f"{self.elem_count} elements do not fill {target.elem_count} positions; keep their number"
            raise ShapeMismatch("reshape", (self.shape, target), reason)
        if self.is_contiguous:
            return Layout.contiguous(target, self.start_offset)
        # Merged dims are the runs in which any split keeps the order, so new dims must fill each of them exactly.
        sizes, steps = self.collapsed()
        strides = [1] * len(target)
        position = len(target)
        for size, step in zip(reversed(sizes), reversed(steps), strict=True):
            filled = 1
            while filled < size:
                position -= 1
                strides[position] = step * filled
                filled *= target[position]
            if filled != size:
                return None
        return Layout._trusted(target, tuple(strides), self.start_offset)

    def collapsed(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the fewest dims and strides that reach the same elements in the same order; see `collapse`."""
        dims, (strides,) = collapse(self.shape, (self.strides,))
        return dims, strides


def channels_last_order(rank: int) -> tuple[int, ...]:
    """The dims of (b, c, ..) in the order of memory where channels are last."""
    return (0, *range(2, rank), 1)


def layout_of(shape: Iterable[int], channels_last: bool) -> Layout:
    """Lay out (b, c, ..) in row-major order, or with channels innermost in memory."""
    if not channels_last:
        return Layout.contiguous(shape)
    dims = tuple(shape)
    order = channels_last_order(len(dims))
    return Layout.contiguous([dims[dim] for dim in order]).permute(inverse(order))


def reordering(layouts: Iterable[Layout]) -> tuple[int, ...]:
    """The order of dims of the first layout that fills a range of memory; empty if that is row-major or none does."""
    order = next(filter(None, (layout.memory_order() for layout in layouts)), ())
    return () if order == tuple(range(len(order))) else order


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes one."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def distinct(layouts: Iterable[Layout]) -> Iterable[Layout]:
    """The layouts, each of those that are equal once, in the order in which they come."""
    return {layout.number: layout for layout in layouts}.values()


def _mend_of_narrow(start: int, length: int, step: int, size: int) -> str:
    if length < 0 or step < 1:
        return "a length is 0 or more, a step 1 or more"
    if start < 0:
        return f"count from the front: start at {size + start}" if start >= -size else "start at 0 or more"
    return f"stay below {size}"


_numbers: BoundedCache[tuple[Shape, tuple[int, ...], int], int] = BoundedCache(1 << 16)
_next_number: Final = itertools.count()


def _number(*layout: *tuple[Shape, tuple[int, ...], int]) -> int:
    number = _numbers.get(layout)
    # Ids are never reused: a layout that is met again after it left the cache has a new one, and new plans.
    return _numbers.put(layout, next(_next_number)) if number is None else number


@lru_cache(maxsize=4096)
def _contiguous(shape: Shape, start_offset: int) -> Layout:
    layout = Layout._trusted(shape, shape.contiguous_strides(), start_offset)
    layout._is_contiguous = True
    return layout


# By the types too: True and 1.0 are equal to 1, but no sizes.
@lru_cache(maxsize=4096, typed=True)
def contiguous_of(start_offset: int, *sizes: int) -> Layout:
    """The layout of elements that follow each other in row-major order, with these sizes; TypeError without a hash."""
    return _contiguous(Shape(sizes), start_offset)


# Cached for the same reason as `collapse`.
@lru_cache(maxsize=4096)
def _broadcast(source: Shape, strides: tuple[int, ...], start_offset: int, target: Shape) -> Layout:
    extra = len(target) - len(source)
    if extra < 0 or any(old not in (1, size) for old, size in zip(source, target[extra:], strict=True)):
        reason = "the first does not broadcast to the second: only dims of size 1 stretch, and new ones go in front"
        raise ShapeMismatch("broadcast_as", (source, target), reason)
    stretched = zip(source, strides, target[extra:], strict=True)
    steps = [*[0] * extra, *[stride if old == size else 0 for old, stride, size in stretched]]
    return Layout._trusted(target, tuple(steps), start_offset)


# Cached because a program repeats its shapes, and working one out takes longer than a launch.
@lru_cache(maxsize=4096)
def collapse(
    shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Return the fewest dims, and strides for each operand, that reach the same elements in the same order.

    The operands have one shape, and `strides` each. Dims of size 1 go, and neighbours merge where every operand steps
    through both of them as through one. One element gives no dims at all, and no elements give the one dim 0.
    """
    if 0 in shape:
        return (0,), ((1,),) * len(strides)
    dims: list[int] = []
    steps: list[tuple[int, ...]] = []
    for size, inner in zip(shape, zip(*strides, strict=True), strict=True):
        if size == 1:
            continue
        if dims and steps[-1] == tuple(size * step for step in inner):
            dims[-1] *= size
            steps[-1] = inner
        else:
            dims.append(size)
            steps.append(inner)
    return tuple(dims), tuple(zip(*steps, strict=True)) if steps else ((),) * len(strides)
