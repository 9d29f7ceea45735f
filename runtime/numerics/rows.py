"""The types of functors: functions of elements, reductions of the last axis of a 2-d array, and scans."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ...dtype import DType
from ...op import ReduceOp


class Function(NamedTuple):
    """A function of elements: of operands, and then of parameters as arrays of one element."""

    is_one_step: bool
    """Whether it is one pass over the operands."""
    compute: Callable[..., Any]
    takes_dtype: bool = False
    """Whether its second argument is the DType of the operands, to which the result is rounded."""

    def of(self, dtype: DType) -> Callable[..., Any]:
        """The function of elements of a dtype, which are passed in its compute dtype."""
        return partial(self.compute, dtype=dtype) if self.takes_dtype else self.compute


class Monoid(NamedTuple):
    """A reduction that combines what the elements contribute."""

    combine: Callable[[Any, int, Any], Any]
    """The word that reduces the elements along an axis in a dtype of the library, and keeps the axis."""
    identity: float | None
    """The result of nothing, before `finish`; None where there is none."""
    element: Callable[..., Any] | None
    """Computes the contribution of an element, which may depend on the result of `inner`."""
    accumulate: DType | None
    """The dtype in which floats are accumulated, where the library has it; None for their own."""
    result: DType | None
    """The dtype of the result, where it is not that of the elements."""
    finish: Callable[..., Any] | None
    """Computes the result from the combined contributions, their unit, and parameters."""
    inner: "Monoid | None"
    reads_unit: bool
    """Whether the elements of each row are divided by a number, the unit, of about their largest magnitude."""


class Position(NamedTuple):
    """A reduction that says where another one finds its element: the first of equals, or the first NaN."""

    of: ReduceOp
    find: Callable[[Any, int], Any] | None
    """The word that finds it along an axis, and keeps the axis; None where the library has none."""


class RowFunction(NamedTuple):
    """A function of rows along the last axis: of operands, parameters, the count and the positions of elements."""

    results: int
    """How many results it has."""
    compute: Callable[..., tuple[Any, ...]]


class Scan(NamedTuple):
    """A scan, which combines what the elements up to each contribute."""

    word: Callable[[Any, int, Any], Any] | None
    """The word that scans along an axis in a dtype of the library; None where the library has none."""
    combine: Callable[[Any, Any], Any]
    """Combines two arrays of contributions."""
    identity: float | None
    """The result of zero elements; None where they have none."""
    element: Callable[[Any], Any] | None
    """Computes the contribution of an element."""
    accumulate: DType | None
    """The dtype in which floats are accumulated, where the library has it; None for their own."""
    result: DType | None
    """The dtype of the result, where it is not that of the elements."""
    finish: Callable[[Any, Any, Any], Any] | None = None
    """Computes each result from the accumulated value, the element itself and the number of elements."""


def in_own_dtype(word: Callable[[Any, int], Any] | None) -> Callable[[Any, int, Any], Any] | None:
    """Add the argument dtype, which is ignored, to a word without one; None where there is none."""
    return None if word is None else lambda x, axis, _: word(x, axis)
