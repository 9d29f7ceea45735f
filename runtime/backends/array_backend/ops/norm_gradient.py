"""The gradients of what norms compute of: in f64 where the library has it, else in f32, and rounded once."""

from __future__ import annotations

from typing import Any

from ....numerics.numerics import accumulated
from .. import strided
from . import cast
from .network import mean
from .operand import Operand


def layer_norm_gradient(
    x: Operand,
    gradient: Operand,
    weight: Operand | None,
    residual: Operand | None,
    of_weight: bool,
    of_bias: bool,
    eps: float,
) -> Any:
    """The gradients of x and, as they are asked for, of the weight and of the bias."""
    wide = cast.widest(x.library, x.array, x.dtype)
    return _gradients(
        x, wide - mean(x.library, wide), gradient, weight, residual, of_weight, of_bias, eps, is_centered=True
    )


def rms_norm_gradient(
    x: Operand, gradient: Operand, weight: Operand | None, residual: Operand | None, of_weight: bool, eps: float
) -> Any:
    """The gradients of x and, if it is asked for, of the weight."""
    wide = cast.widest(x.library, x.array, x.dtype)
    return _gradients(x, wide, gradient, weight, residual, of_weight, False, eps, is_centered=False)


def _gradients(
    x: Operand,
    wide: Any,
    gradient: Operand,
    weight: Operand | None,
    residual: Operand | None,
    of_weight: bool,
    of_bias: bool,
    eps: float,
    *,
    is_centered: bool,
) -> tuple[Any, ...]:
    """Those of elements that are centred, or not, and sums over rows."""
    library, given = x.library, cast.widest(x.library, gradient.array, x.dtype)
    root = library.sqrt(mean(library, wide * wide) + library.constant(eps, wide))
    normal, part = wide / root, given
    if weight is not None:
        part = part * cast.widest(library, weight.array, x.dtype)
    own = part - normal * mean(library, part * normal)
    if is_centered:
        own = own - mean(library, part)
    of_x = own / root
    if residual is not None:
        of_x = of_x + cast.widest(library, residual.array, x.dtype)
    columns = [_sum_of_rows(library, each) for each in (*[given * normal] * of_weight, *[given] * of_bias)]
    return tuple([x.result(cast.narrow(library, each, x.dtype)) for each in (of_x, *columns)])


def _sum_of_rows(library: Any, x: Any) -> Any:
    """The sum of each column, of all rows; 0 of nothing."""
    size = x.shape[-1]
    if strided.size(x) == 0:
        return library.broadcast_to(library.reshape(library.constant(0, x), (1,)), (size,))
    columns = library.permute_dims(library.reshape(x, (-1, size)), (1, 0))
    return library.reshape(accumulated(library, library.sum, columns), (size,))
