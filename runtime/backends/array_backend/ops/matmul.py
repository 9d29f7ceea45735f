"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....dtype import DType
from .. import strided
from ..errors import tells_errors
from . import cast
from .operand import Operand


@tells_errors
def matmul(lhs: Operand, rhs: Operand, _bmnk: tuple[int, int, int, int]) -> Any:
    """The products of matrices (.., m, k) and (.., k, n): (.., m, n), accumulated in the compute dtype."""
    return _prepared(lhs, rhs)(lhs.storage, rhs.storage)


def plan(arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """What does as `matmul` with other storages, and finds out nothing anew."""
    return tells_errors(_prepared(*arguments[:2]))


def _prepared(lhs: Operand, rhs: Operand) -> Callable[..., Any]:
    """The function that multiplies what the operands' layouts reach in two storages."""
    library, dtype = lhs.library, lhs.dtype
    lhs_layout, rhs_layout = lhs.layout, rhs.layout

    def run(lhs: Any, rhs: Any) -> Any:
        x, y = cast.widen(library, lhs.view(lhs_layout), dtype), cast.widen(library, rhs.view(rhs_layout), dtype)
        return lhs.result(rounded(library, multiply(library, x, y), dtype), dtype)

    return run


@tells_errors
def linear(x: Operand, weight: Operand, bias: Operand | None) -> Any:
    """(m, k) by the transpose of (n, k), plus a bias (n) in each row: (m, n), rounded once."""
    library, dtype = x.library, x.dtype
    transposed = library.permute_dims(cast.widen(library, weight.array, dtype), (1, 0))
    result = multiply(library, cast.widen(library, x.array, dtype), transposed)
    if bias is not None:
        result = result + cast.widen(library, bias.array, dtype)
    return x.result(cast.narrow(library, result, dtype))


def multiply(library: Any, lhs: Any, rhs: Any) -> Any:
    """Products of matrices of one compute dtype, with as many dims before them; integers wrap."""
    rank, depth = len(lhs.shape), lhs.shape[-1]
    if depth == 0 or strided.size(lhs) == 0 or strided.size(rhs) == 0:
        return library.broadcast_to(library.constant(0, lhs), (*lhs.shape[:-1], rhs.shape[-1]))
    if not library.is_integer(lhs):
        return library.matmul(lhs, rhs)
    # Libraries multiply no integers on GPUs, and not all on CPUs: a column by a row at a time.
    total = 0
    for place in range(depth):
        column = lhs[(*(slice(None),) * (rank - 1), slice(place, place + 1))]
        row = rhs[(*(slice(None),) * (rank - 2), slice(place, place + 1), slice(None))]
        total = total + column * row
    return total


def rounded(library: Any, x: Any, dtype: DType) -> Any:
    """What was computed in the compute dtype in the dtype itself."""
    return cast.narrow(library, x, dtype) if dtype.is_float else cast.wrap(library, x, dtype)
