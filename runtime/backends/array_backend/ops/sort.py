"""Elements in order."""

from __future__ import annotations

import math
from typing import Any

from ..... import results
from .....dtype import DType
from ....core.layout import Layout
from . import cast, index
from .operand import Operand


def argsort(operand: Operand, descending: bool, count: int) -> Any:
    """The positions of the first elements in order along the last dim, as u32; NaN comes last."""
    library, dtype, x = operand.library, operand.dtype, operand.array
    x = cast.widen(library, x, dtype)
    if descending:
        # Only ascending order is stable.
        x = -x if dtype.is_float else ~x
    if dtype.is_float:
        # Equal, so that they stay in their order, as some libraries look at the sign of zeros.
        x = x + library.constant(0, x)
    return operand.result(library.astype(library.argsort(x)[..., :count], library.DTYPES[DType.U32]), DType.U32)


def sort(operand: Operand, descending: bool, count: int) -> tuple[Any, ...]:
    """The first elements in order along the last dim, and their positions."""
    line, shape = operand.with_a_dim, results.sort(operand, count)[1].shape
    positions = argsort(line, descending, count)
    return index.gather(line, Operand(positions, Layout.contiguous(shape)), len(shape) - 1), positions


def searchsorted(x: Operand, values: Operand, right: bool) -> Any:
    """Return the insertion points of values in sorted lines, as i64."""
    library, shape, length = x.library, values.layout.shape, x.layout.shape[-1]
    line, wanted = (library.reshape(cast.widen(library, each.array, x.dtype), (-1,)) for each in (x, values))
    every = library.arange(shape.elem_count, x.device.handle)
    if shape.elem_count == 0 or length == 0:
        return x.result(every * 0, DType.I64)
    lines = math.prod(x.layout.shape[:-1])
    starts = library.reshape(library.arange(lines, x.device.handle) * length, (-1, 1))
    starts = library.reshape(library.broadcast_to(starts, (lines, shape.elem_count // lines)), (-1,))
    last = library.constant(length - 1, every)
    position = every * 0
    # A position is computed digit by digit, from the highest on.
    for digit in reversed(range(length.bit_length())):
        candidate = position + (1 << digit)
        one, other = library.take(line, starts + library.minimum(candidate - 1, last), 0), wanted
        is_before = ~_is_below(library, other, one, x.dtype) if right else _is_below(library, one, other, x.dtype)
        position = library.where((candidate <= length) & is_before, candidate, position)
    return x.result(position, DType.I64)


def _is_below(library: Any, x: Any, y: Any, dtype: DType) -> Any:
    """Whether x comes before y in order: NaN comes last."""
    return (x < y) | (library.isnan(y) & ~library.isnan(x)) if dtype.is_float else x < y
