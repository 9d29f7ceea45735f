"""What the layers of networks compute, in f64 and rounded once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...dtype import Array
from ...host_memory import tells_lack_of_memory
from . import cast
from .operand import Operand

if TYPE_CHECKING:
    from ..storage import CpuStorage


@tells_lack_of_memory
def softmax(x: Operand, dim: int) -> CpuStorage:
    """e**(x - m) / sum(e**(x - m)) along `dim`, where m is the largest element."""
    with np.errstate(all="ignore"):
        result = np.exp(_below_zero(x, dim))
        result /= result.sum(axis=dim, keepdims=True)
    return x.result(cast.narrow(result, x.dtype))


@tells_lack_of_memory
def log_softmax(x: Operand, dim: int) -> CpuStorage:
    """x - m - log(sum(e**(x - m))) along `dim`, where m is the largest element."""
    with np.errstate(all="ignore"):
        result = _below_zero(x, dim)
        result -= np.log(np.exp(result).sum(axis=dim, keepdims=True))
    return x.result(cast.narrow(result, x.dtype))


def _below_zero(x: Operand, dim: int) -> Array:
    """A fresh array of the elements less the largest one along `dim`."""
    result = cast.widen(x.array, x.dtype).astype(np.float64, order="C")
    if result.size:
        result -= result.max(axis=dim, keepdims=True)
    return result
