"""How far predictions are from targets: in f64 where the library has it, else in f32, and rounded once."""

from __future__ import annotations

from typing import Any

from .....dtype import DType
from .....op import BinaryOp, ReduceOp, UnaryOp
from ....core.layout import Layout
from ....numerics.numerics import accumulated
from .. import strided
from . import cast
from .elementwise import computing
from .operand import Operand
from .reduce import reducing


def cross_entropy(x: Operand, targets: Operand, dim: int, ignored: int) -> tuple[Any, Any]:
    """Minus log_softmax at each target along `dim`, and 1 where a target counts."""
    library, compute = x.library, x.dtype.compute
    shape, (rows, is_counted) = tuple(targets.layout.shape), _rows("cross_entropy", x, targets, dim, ignored)
    counts = x.result(library.astype(is_counted, library.DTYPES[compute]), compute)
    if x.layout.elem_count == 0:
        return x.result(library.full(shape, 0, library.DTYPES[compute], x.device.handle), compute), counts
    below, layout = _below_zero(x, dim), Layout.contiguous(x.layout.shape)
    chosen = library.reshape(rows, (*shape[:dim], 1, *shape[dim:]))
    places = chosen * layout.strides[dim] + strided.places(library, layout, chosen.shape, dim, x.device.handle)
    picked = strided.take(library, library.reshape(below, (-1,)), places)
    losses = library.reshape(library.log(_total(library, library.exp(below), dim)) - picked, shape)
    losses = library.where(is_counted, losses, library.constant(0, losses))
    return x.result(library.astype(losses, library.DTYPES[compute]), compute), counts


def cross_entropy_gradient(
    x: Operand, _losses: Operand, gradient: Operand, targets: Operand, dim: int, ignored: int, _overwrites: bool
) -> Any:
    """(softmax(x) - 1) * g at each target along `dim`, softmax(x) * g elsewhere, 0 where a target does not count."""
    library, shape = x.library, x.layout.shape
    rows, is_counted = _rows("cross_entropy_gradient", x, targets, dim, ignored)
    if x.layout.elem_count == 0:
        return x.result(x.array)
    below = _below_zero(x, dim)
    logarithms = below - library.log(_total(library, library.exp(below), dim))
    given = cast.widest(library, gradient.array, gradient.dtype)
    rows, is_counted, given = (
        library.reshape(each, (*shape[:dim], 1, *shape[dim + 1 :])) for each in (rows, is_counted, given)
    )
    classes = library.reshape(library.arange(shape[dim], x.device.handle), (shape[dim], *(1,) * (len(shape) - 1 - dim)))
    made = library.where(rows == classes, library.expm1(logarithms), library.exp(logarithms)) * given
    made = library.where(is_counted, made, library.constant(0, made))
    return x.result(cast.narrow(library, made, x.dtype))


def _rows(op: str, x: Operand, targets: Operand, dim: int, ignored: int) -> tuple[Any, Any]:
    """The class of each target, and whether it counts. A class that is there stands for one that is out of range."""
    library, size = x.library, x.layout.shape[dim]
    rows = library.reshape(library.astype(targets.array, library.DTYPES[DType.I64]), tuple(targets.layout.shape))
    is_counted = rows != ignored
    if targets.dtype.index_mark is not None:
        is_counted = is_counted & (rows != library.constant(targets.dtype.index_form[0], rows))
    if strided.size(rows):
        is_wrong = is_counted & ((rows < 0) | (rows >= size))
        x.device.note(op, library.reshape(targets.array, tuple(targets.layout.shape)), is_wrong, size)
    held = library.minimum(library.maximum(rows, library.constant(0, rows)), library.constant(size - 1, rows))
    return held, is_counted


def ratio_of_sums(x: Operand, divisor: Operand) -> tuple[Any, ...]:
    """The sum of all elements over that of the divisor's, the latter, and 1 over it."""
    library, handle = x.library, x.device.handle

    def _total(operand: Operand) -> Any:
        return reducing(library, handle, ReduceOp.SUM, operand, tuple(range(len(operand.shape))))(operand.storage)

    above, below = (type(x)(_total(each), Layout.contiguous(())) for each in (x, divisor))
    quotient = computing(library, handle, BinaryOp.DIV, [above, below])(above.storage, below.storage)
    return quotient, below.storage, computing(library, handle, UnaryOp.RECIP, [below])(below.storage)


def _below_zero(x: Operand, dim: int) -> Any:
    """The elements less the largest one along `dim`."""
    wide = cast.widest(x.library, x.array, x.dtype)
    return wide - x.library.max(wide, dim)


def _total(library: Any, x: Any, dim: int) -> Any:
    """The sums along `dim`, which is kept."""
    last = len(x.shape) - 1
    order = (*(axis for axis in range(last + 1) if axis != dim), dim)
    moved = library.permute_dims(x, order)
    # As rows that lie one behind the other, which libraries add more exactly.
    rows = accumulated(library, library.sum, library.reshape(moved, (-1, x.shape[dim])))
    sums = library.reshape(rows, (*moved.shape[:-1], 1))
    return library.permute_dims(sums, tuple(order.index(axis) for axis in range(last + 1)))
