"""The layouts of operands and results: of one shape, in the order of memory, and with dims reduced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from ..base.bounded_cache import BoundedCache
from ..core import argument
from ..core.layout import Layout, inverse, reordering
from ..core.result_shapes import padded, reduced
from ..core.shape import Shape

Reduction: TypeAlias = tuple[tuple[int, ...], Layout]

reductions: Final[BoundedCache[tuple[int, int | Sequence[int] | None, bool], Reduction]] = BoundedCache(1 << 12)
"""Results of `reduction`, by the number of the layout, the dims and `keepdim`."""


def reduction(op: str, shape: Shape, dim: int | Sequence[int] | None, keepdim: bool) -> Reduction:
    """The dims of `shape` that are reduced, by default all, and the layout of the result."""
    named = range(len(shape)) if dim is None else (dim,) if isinstance(dim, int) else dim
    dims = argument.Checked([shape.dim(op, item) for item in named])
    sizes = reduced(shape, dims) if keepdim else [size for i, size in enumerate(shape) if i not in dims]
    return dims, Layout.contiguous(Shape._trusted(sizes))


class Padding(NamedTuple):
    """The arguments of `Storage.pad`, and the layout of its result."""

    border: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    layout: Layout


Ends: TypeAlias = Iterable[tuple[int, int, int]]
"""Dims, and how many elements are added before and after those of each: see `Storage.pad`."""

paddings: Final[BoundedCache[tuple[Any, ...], Padding]] = BoundedCache(1 << 12)
"""Results of `padding`, by the function that arranges it, the number of the layout and what the function takes."""


def padding(shape: Shape, border: str, ends: Ends) -> Padding:
    """Have some dims padded; what is said of a dim several times adds up."""
    before, after = [0] * len(shape), [0] * len(shape)
    for dim, front, back in ends:
        before[dim] += front
        after[dim] += back
    layout = Layout.contiguous(padded(shape, before, after))
    return Padding(border, argument.Checked(before), argument.Checked(after), layout)


_number_of: Final = attrgetter("number")

# By the numbers of the layouts.
_broadcasts: Final[BoundedCache[tuple[int, ...], tuple[Layout, ...]]] = BoundedCache(1 << 12)


def broadcast(op: str, *layouts: Layout) -> tuple[Layout, ...]:
    """Stretch layouts to one shape by NumPy's rules; `ShapeMismatch` where there is none."""
    key = tuple(map(_number_of, layouts))
    stretched = _broadcasts.get(key)
    return _broadcasts.put(key, _stretched(op, layouts)) if stretched is None else stretched


def _stretched(op: str, layouts: Sequence[Layout]) -> tuple[Layout, ...]:
    shape = layouts[0].shape
    for layout in layouts[1:]:
        shape = Shape.broadcast(op, shape, layout.shape)
    return tuple([layout.broadcast_as(shape) for layout in layouts])


aligned_layouts: Final[BoundedCache[tuple[int, ...], tuple[Layout, ...]]] = BoundedCache(1 << 12)
"""Results of `aligned`, by the numbers of the layouts."""


def aligned(op: str, *layouts: Layout) -> tuple[Layout, ...]:
    """Stretch the layouts of an elementwise op to one shape, with dims in the order of memory, and add its result's.

    The first operand that fills a range of memory decides on the order. `ShapeMismatch` where there is no one shape.
    """
    key = tuple(map(_number_of, layouts))
    result = aligned_layouts.get(key)
    if result is None:
        stretched = _stretched(op, layouts)
        order = reordering(stretched)
        if order:
            stretched = tuple([layout._permuted(order) for layout in stretched])
            preserved = stretched[0].dense._permuted(inverse(order))
        else:
            preserved = stretched[0].dense
        result = aligned_layouts.put(key, (*stretched, preserved))
    return result
