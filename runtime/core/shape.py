"""Shapes: the sizes of a tensor's dims."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate
from operator import mul
from typing import Final, Self

from ...limits import MAX_RANK
from ..base.error import InvalidArgument, InvalidDim, ShapeMismatch
from .argument import integer, integers

MAX_ELEMENTS: Final = 1 << 56
"""More elements than any machine can store, in any dtype; byte counts of fewer elements do not overflow."""


class Shape(tuple[int, ...]):
    """The sizes of the dims of a tensor, outermost first: a tuple of at most `MAX_RANK` integers, none of them
    negative.

    >>> shape = tl.zeros((2, 3)).shape
    >>> shape == (2, 3), shape.elem_count
    (True, 6)
    """

    __slots__ = ()

    def __new__(cls, dims: Iterable[int] = ()) -> Self:
        """Check and wrap the sizes of the dims; `InvalidArgument` for any that can't be one."""
        if isinstance(dims, cls):
            return dims
        if type(dims) is tuple and len(dims) <= MAX_RANK:
            # Nearly all are such, for which this one look at each size takes less time than the checks below.
            for size in dims:
                if type(size) is not int or not 0 < size < MAX_ELEMENTS:
                    break
            else:
                return tuple.__new__(cls, dims)
        shape = tuple.__new__(cls, integers("shape", "a shape", dims))
        if shape and min(shape) < 0:
            raise InvalidArgument("shape", f"the sizes of dims are 0 or more, not {shape}")
        if len(shape) > MAX_RANK:
            raise InvalidArgument("shape", f"a tensor has at most {MAX_RANK} dims, not {len(shape)}; merge some")
        # A shape with more elements fits no memory, but one without any does.
        if 0 in shape and math.prod(filter(None, shape)) >= MAX_ELEMENTS:
            raise InvalidArgument("shape", f"the sizes of {shape} but for 0 are too large; multiply to less than 2**56")
        return shape

    @classmethod
    def _trusted(cls, dims: Iterable[int]) -> Self:
        """Wrap sizes that come from another shape, which makes checking them again a waste."""
        return tuple.__new__(cls, dims)

    @property
    def rank(self) -> int:
        """The number of dims."""
        return len(self)

    @property
    def elem_count(self) -> int:
        """The number of elements: the product of the sizes, 1 for rank 0."""
        return math.prod(self)

    def contiguous_strides(self) -> tuple[int, ...]:
        """Return how many elements a step along each dim is in row-major order."""
        return tuple(accumulate(self[:0:-1], mul, initial=1))[::-1] if self else ()

    def dim(self, op: str, dim: int, name: str = "dim") -> int:
        """Return `dim` counted from the front, where -1 is the last; `InvalidDim` if there is none."""
        rank = len(self)
        if type(dim) is int and 0 <= dim < rank:
            return dim
        dim = integer(op, name, dim)
        if 0 <= dim < rank:
            return dim
        if -rank <= dim < 0:
            return dim + rank
        if rank == 0:
            raise InvalidDim(op, f"{name} {dim} does not exist: the tensor has rank 0; unsqueeze it first")
        raise InvalidDim(op, f"{name} {dim} does not exist in shape {self}; use one from {-rank} to {rank - 1}")

    @staticmethod
    def broadcast(op: str, lhs: Shape, rhs: Shape) -> Shape:
        """Return the shape that both operands stretch to by NumPy's rules.

        Dims are lined up from the back; a dim that is missing or of size 1 takes the size of the other operand's.
        `ShapeMismatch` where two sizes differ and neither is 1.
        """
        if not (isinstance(lhs, Shape) and isinstance(rhs, Shape)):
            lhs, rhs = Shape(lhs), Shape(rhs)
        try:
            return lhs if lhs == rhs else _broadcast(lhs, rhs)
        except ShapeMismatch as error:
            error.rename(op)
            raise


# Cached because a program repeats its shapes.
@lru_cache(maxsize=4096)
def _broadcast(lhs: Shape, rhs: Shape) -> Shape:
    longer, shorter = (lhs, rhs) if len(lhs) >= len(rhs) else (rhs, lhs)
    extra = len(longer) - len(shorter)
    dims = list(longer)
    for position, size in enumerate(shorter, extra):
        if dims[position] == 1:
            dims[position] = size
        elif size not in (1, dims[position]):
            reason = f"sizes {dims[position]} and {size} do not broadcast, since neither is 1; reshape one"
            raise ShapeMismatch("broadcast", (lhs, rhs), reason)
    return Shape(dims)
