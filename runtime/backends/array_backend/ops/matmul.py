"""Matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .....dtype import DType
from ....program.builder import ProgramBuilder
from ....program.program import HostCall
from .. import strided
from . import cast
from .operand import Operand

if TYPE_CHECKING:
    from ..storage import ArrayStorage


def matmul(build: ProgramBuilder, lhs: Operand, rhs: Operand, _bmnk: tuple[int, int, int, int]) -> HostCall:
    """The products of matrices (.., m, k) and (.., k, n): (.., m, n), accumulated in the compute dtype."""
    library, dtype, lhs_layout, rhs_layout = build.facts.library, lhs.dtype, lhs.layout, rhs.layout

    def multiplied(lhs: ArrayStorage, rhs: ArrayStorage) -> ArrayStorage:
        x, y = cast.widen(library, lhs.view(lhs_layout), dtype), cast.widen(library, rhs.view(rhs_layout), dtype)
        return lhs.result(rounded(library, multiply(library, x, y), dtype), dtype)

    return build.host(multiplied, lhs.storage, rhs.storage)


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
    for k in range(depth):
        column = lhs[(*(slice(None),) * (rank - 1), slice(k, k + 1))]
        row = rhs[(*(slice(None),) * (rank - 2), slice(k, k + 1), slice(None))]
        total = total + column * row
    return total


def rounded(library: Any, x: Any, dtype: DType) -> Any:
    """Round from the compute dtype to the dtype itself."""
    return cast.narrow(library, x, dtype) if dtype.is_float else cast.wrap(library, x, dtype)
