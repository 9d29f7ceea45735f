"""Pooling and its gradients, a dim at a time where that is possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .....dtype import DType
from ....core.pool import ParamsPool, PoolParams, Window, pool_of
from . import cast
from .operand import Operand

Pair = tuple[int, int]


def avg_pool(x: Operand, window: PoolParams, stride: Pair | None = None) -> Any:
    """The mean of each window, rounded once."""
    params = pool_of(x.shape, window, stride)
    if params.is_empty:
        return _zeros(x, params.out_dims)
    library = x.library
    sums = cast.widest(library, x.array, x.dtype)
    for axis, windows in enumerate(params.windows, 2):
        sums = _summed(library, sums, axis, _positions(windows))
    return x.result(cast.narrow(library, sums / _divisors(library, params, sums), x.dtype))


def avg_pool_gradient(g: Operand, params: ParamsPool) -> Any:
    """The gradient of the input of `avg_pool`."""
    if params.is_empty:
        return _zeros(g, params.input_dims)
    library = g.library
    wide = cast.widest(library, g.array, g.dtype)
    shares = wide / _divisors(library, params, wide)
    for axis, windows in enumerate(params.windows, 2):
        shares = _summed(library, shares, axis, _covering(windows, params.input_dims[axis]))
    return g.result(cast.narrow(library, shares, g.dtype))


def max_pool(x: Operand, window: PoolParams, stride: Pair | None = None) -> Any:
    """The largest element of each window; NaN wins."""
    params = pool_of(x.shape, window, stride)
    if params.is_empty:
        return _zeros(x, params.out_dims)
    library = x.library
    largest = cast.widen(library, x.array, x.dtype)
    for axis, windows in enumerate(params.windows, 2):
        taken = _taken(library, largest, axis, _positions(windows), _lowest(x.dtype))
        largest = library.reshape(library.max(taken, axis + 1), (*taken.shape[: axis + 1], *taken.shape[axis + 2 :]))
    return x.result(cast.narrow(library, largest, x.dtype) if x.dtype.is_float else largest)


def max_pool_tangent(x: Operand, tangent: Operand, params: ParamsPool) -> Any:
    """The mean of the tangents of the largest elements of each window; 0 where a window has no elements."""
    if params.is_empty:
        return _zeros(x, params.out_dims)
    library = x.library
    values = _windowed(library, cast.widest(library, tangent.array, tangent.dtype), params, 0)
    elements = _elements(x, params)
    chosen, count = _largest(x, params, elements, _over_windows(library.max, elements), values)
    zero = library.constant(0, values)
    total = _over_windows(library.sum, library.where(chosen, values, zero), values.dtype)
    return x.result(cast.narrow(library, library.reshape(total / count, params.out_dims), x.dtype))


def max_pool_gradient(x: Operand, pooled: Operand, g: Operand, params: ParamsPool) -> Any:
    """Compute the gradient of the input of `max_pool` from the input, the result and its gradient."""
    if params.is_empty:
        return _zeros(x, params.input_dims)
    library = x.library
    shape = (*g.shape[:2], *[size for count in params.result_sizes for size in (count, 1)])
    shares = library.reshape(cast.widest(library, g.array, g.dtype), shape)
    largest = library.reshape(cast.widen(library, pooled.array, pooled.dtype), shape)
    chosen, count = _largest(x, params, _elements(x, params), largest, shares)
    shares = library.where(chosen, shares / count, library.constant(0, shares))
    for axis, (windows, size) in enumerate(zip(params.windows, params.sizes, strict=True), 2):
        before, (number, length), after = shares.shape[:axis], shares.shape[axis : axis + 2], shares.shape[axis + 2 :]
        shares = library.reshape(shares, (*before, number * length, *after))
        shares = _summed(library, shares, axis, _covering(windows, size, length))
    return x.result(cast.narrow(library, shares, x.dtype))


def _zeros(operand: Operand, shape: tuple[int, ...]) -> Any:
    library = operand.library
    return operand.result(library.full(shape, 0, library.DTYPES[operand.dtype], operand.device.handle))


def _divisors(library: Any, params: ParamsPool, x: Any) -> Any:
    """By how many each average is divided, for (b, c, ..)."""
    divisors = np.ones((), np.int64)
    for windows in params.windows:
        divisors = divisors[..., None] * np.array([window.divisor for window in windows], np.int64)
    shape = (1, 1, *params.result_sizes)
    return library.astype(library.reshape(library.from_numpy(divisors.ravel(), library.device_of(x)), shape), x.dtype)


def _lowest(dtype: DType) -> float:
    return int(np.iinfo(dtype.numpy).min) if dtype.is_integer else -np.inf


def _positions(windows: tuple[Window, ...]) -> list[Sequence[int]]:
    return [window.positions for window in windows]


def _covering(windows: tuple[Window, ...], size: int, length: int = 1) -> list[Sequence[int]]:
    """Return for each position of a dim the windows that cover it, or with a length its indexes in all of them."""
    covering: list[list[int]] = [[] for _ in range(size)]
    for number, window in enumerate(windows):
        for index, position in enumerate(window.positions):
            covering[position].append(number * length + (index if length > 1 else 0))
    return list(covering)


def _taken(library: Any, x: Any, axis: int, lists: list[Sequence[int]], fill: float) -> Any:
    """The elements at lists of positions along an axis, which becomes two; `fill` where a list is shorter."""
    length = max(*map(len, lists), 1)
    positions = np.zeros((len(lists), length), np.int64)
    is_short = np.ones(positions.shape, bool)
    for row, shorter, each in zip(positions, is_short, lists, strict=True):
        row[: len(each)] = each
        shorter[: len(each)] = False
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    device = library.device_of(x)
    taken = library.take(x, library.from_numpy(positions.ravel(), device), axis)
    taken = library.reshape(taken, (*before, *positions.shape, *after))
    if is_short.any():
        mask = library.reshape(library.from_numpy(is_short.ravel(), device), (*positions.shape, *[1] * len(after)))
        taken = library.where(mask, library.constant(fill, x), taken)
    return taken


def _summed(library: Any, x: Any, axis: int, lists: list[Sequence[int]]) -> Any:
    """The sums of the elements at lists of positions along an axis."""
    taken = _taken(library, x, axis, lists, 0)
    return library.reshape(
        library.sum(taken, axis + 1, taken.dtype), (*x.shape[:axis], len(lists), *x.shape[axis + 1 :])
    )


def _windowed(library: Any, x: Any, params: ParamsPool, fill: float) -> Any:
    """The elements of all windows: (b, c, windows, elements of one, windows, ..)."""
    for axis, windows in enumerate(params.windows):
        x = _taken(library, x, 2 + 2 * axis, _positions(windows), fill)
    return x


def _elements(x: Operand, params: ParamsPool) -> Any:
    """The elements of all windows of floats, with -inf where a window has fewer."""
    return _windowed(x.library, cast.widen(x.library, x.array, x.dtype), params, -np.inf)


def _largest(x: Operand, params: ParamsPool, elements: Any, largest: Any, like: Any) -> tuple[Any, Any]:
    """Which elements of each window are its largest, and how many they are, as numbers like others; at least 1."""
    library = x.library
    one = library.constant(1, elements)
    is_element = _windowed(library, library.broadcast_to(one, x.layout.shape), params, 0) == one
    chosen = ((elements == largest) | library.isnan(elements)) & is_element
    count = _over_windows(library.sum, library.astype(chosen, like.dtype), like.dtype)
    return chosen, library.maximum(count, library.constant(1, like))


def _over_windows(join: Callable[..., Any], x: Any, *dtype: Any) -> Any:
    """Reduce the elements of each window to one."""
    for axis in range(3, len(x.shape), 2):
        x = join(x, axis, *dtype)
    return x
