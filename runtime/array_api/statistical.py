"""Reductions and running sums. An axis may be several; None means all of them."""

from __future__ import annotations

import builtins
from collections.abc import Callable

from ...dtype import DType
from ..core.argument import boolean
from ..tensor import Tensor, cat
from .manipulation import Axes

# In what the standard sums integers if no dtype is stated; sums of the other kinds have the dtype of the elements.
_SUMMED_IN = {"bool": DType.I64, "signed": DType.I64, "unsigned": DType.U64}


def _accumulated(x: Tensor, dtype: DType | None, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """Sum or multiply elements in a dtype that is stated, or in that of the standard."""
    target = dtype or _SUMMED_IN.get(x.dtype.kind, x.dtype)
    return compute(x if dtype is None else x.to_dtype(dtype)).to_dtype(target)


def sum(
    x: Tensor, /, *, axis: Axes | None = None, dtype: DType | None = None, keepdims: builtins.bool = False
) -> Tensor:
    """Sum of the elements, of integers in i64 or u64, unless `dtype` states in what."""
    return _accumulated(x, dtype, lambda x: x.sum(axis, keepdims))


def prod(
    x: Tensor, /, *, axis: Axes | None = None, dtype: DType | None = None, keepdims: builtins.bool = False
) -> Tensor:
    """Product of the elements, of integers in i64 or u64, unless `dtype` states in what."""
    return _accumulated(x, dtype, lambda x: x.prod(axis, keepdims))


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: builtins.bool = False
) -> Tensor:
    """Return the cumulative sums along an axis; `include_initial` puts the empty sum, 0, in front."""
    return _cumulative(x, axis, dtype, include_initial, Tensor.cumsum, 0)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: builtins.bool = False
) -> Tensor:
    """Return the cumulative products along an axis; `include_initial` puts 1, the empty one, in front."""
    return _cumulative(x, axis, dtype, include_initial, Tensor.cumprod, 1)


def _cumulative(
    x: Tensor,
    axis: int | None,
    dtype: DType | None,
    include_initial: builtins.bool,
    compute: Callable[[Tensor, int], Tensor],
    initial: int,
) -> Tensor:
    along = 0 if axis is None else axis
    result = _accumulated(x, dtype, lambda x: compute(x, along))
    if not boolean(compute.__name__, "include_initial", include_initial):
        return result
    shape = [*x.shape]
    shape[along] = 1
    return cat([Tensor.full(shape, initial, dtype=result.dtype, device=x.device), result], along)


def max(x: Tensor, /, *, axis: Axes | None = None, keepdims: builtins.bool = False) -> Tensor:
    """Largest of the elements; NaN wins."""
    return x.max(axis, keepdims)


def min(x: Tensor, /, *, axis: Axes | None = None, keepdims: builtins.bool = False) -> Tensor:
    """Smallest of the elements; NaN wins."""
    return x.min(axis, keepdims)


def mean(x: Tensor, /, *, axis: Axes | None = None, keepdims: builtins.bool = False) -> Tensor:
    """Mean of the elements."""
    return x.mean(axis, keepdims)


def std(
    x: Tensor, /, *, axis: Axes | None = None, correction: int | float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    """Standard deviation: the square root of `var`."""
    return x.std(axis, keepdims, correction)


def var(
    x: Tensor, /, *, axis: Axes | None = None, correction: int | float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    """Variance: the sum of the squares of distances from the mean, divided by the number of elements - correction."""
    return x.var(axis, keepdims, correction)


def all(x: Tensor, /, *, axis: Axes | None = None, keepdims: builtins.bool = False) -> Tensor:
    """Tell whether all elements are true: not 0."""
    return x.all(axis, keepdims)


def any(x: Tensor, /, *, axis: Axes | None = None, keepdims: builtins.bool = False) -> Tensor:
    """Tell whether one of the elements is true: not 0."""
    return x.any(axis, keepdims)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Return differences of neighbours along an axis, taken `n` times; `prepend` and `append` extend it first."""
    return x.diff(n, axis, prepend, append)
