"""How far predictions are from targets: in f64 where the library has it, else in f32, and rounded once."""

from __future__ import annotations

from typing import Any

from .....dtype import DType
from ....core.layout import Layout
from .. import strided
from ..errors import tells_errors
from .operand import Operand
from .softmax import below_zero, total


@tells_errors
def cross_entropy(x: Operand, targets: Operand, dim: int, ignored: int) -> tuple[Any, Any]:
    """Minus log_softmax at each target along `dim`, and 1 where a target counts."""
    library, compute = x.library, x.dtype.compute
    shape, size = tuple(targets.layout.shape), x.layout.shape[dim]
    rows = library.reshape(library.astype(targets.array, library.DTYPES[DType.I64]), shape)
    is_counted = rows != ignored
    if targets.dtype.index_mark is not None:
        is_counted = is_counted & (rows != library.constant(targets.dtype.index_form[0], rows))
    if strided.size(rows):
        is_wrong = is_counted & ((rows < 0) | (rows >= size))
        x.device.note("cross_entropy", library.reshape(targets.array, shape), is_wrong, size)
    counts = x.result(library.astype(is_counted, library.DTYPES[compute]), compute)
    if x.layout.elem_count == 0:
        return x.result(library.full(shape, 0, library.DTYPES[compute], x.device.handle), compute), counts
    below = below_zero(x, dim)
    held = library.minimum(library.maximum(rows, library.constant(0, rows)), library.constant(size - 1, rows))
    chosen, layout = library.reshape(held, (*shape[:dim], 1, *shape[dim:])), Layout.contiguous(x.layout.shape)
    places = chosen * layout.strides[dim] + strided.places(library, layout, chosen.shape, dim, x.device.handle)
    picked = strided.take(library, library.reshape(below, (-1,)), places)
    losses = library.reshape(library.log(total(library, library.exp(below), dim)) - picked, shape)
    losses = library.where(is_counted, losses, library.constant(0, losses))
    return x.result(library.astype(losses, library.DTYPES[compute]), compute), counts
