"""Running sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import cast
from .operand import Operand


def cumsum(operand: Operand, dim: int) -> Any:
    """Element i along `dim` is the sum of the elements 0 to i, rounded once; integers wrap."""
    # It starts at 0.0, so that no sum is -0.0.
    return _scanned(operand, operand.library.cumsum, dim, 0)


def cumprod(operand: Operand, dim: int) -> Any:
    """Element i along `dim` is the product of the elements 0 to i, rounded once; integers wrap."""
    return _scanned(operand, operand.library.cumprod, dim, None)


def _scanned(operand: Operand, scan: Callable[..., Any], dim: int, start: int | None) -> Any:
    library, dtype, x = operand.library, operand.dtype, operand.array
    if not dtype.is_inexact:
        return operand.result(cast.wrap(library, scan(x, dim, x.dtype), dtype))
    wide = cast.widen(library, x, dtype)
    joined = scan(wide, dim, cast.accumulating(library, dtype) or wide.dtype)
    if start is not None:
        joined = joined + library.constant(start, joined)
    return operand.result(cast.narrow(library, joined, dtype))
