"""What the layers of networks compute, in f64 and rounded once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...dtype import Array
from ...error import InvalidIndex
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


@tells_lack_of_memory
def layer_norm(
    x: Operand, weight: Operand | None, bias: Operand | None, residual: Operand | None, eps: float
) -> tuple[CpuStorage, ...]:
    """(x - mean) / sqrt(variance + eps) * weight + bias, and the sum of x and the residual where there is one."""
    with np.errstate(all="ignore"):
        wide, *sums = _sum(x, residual)
        wide -= _mean(wide)
        return x.result(_scaled(wide, weight, bias, eps, x)), *sums


@tells_lack_of_memory
def rms_norm(x: Operand, weight: Operand | None, residual: Operand | None, eps: float) -> tuple[CpuStorage, ...]:
    """x / sqrt(mean of squares + eps) * weight, and the sum of x and the residual where there is one."""
    with np.errstate(all="ignore"):
        wide, *sums = _sum(x, residual)
        return x.result(_scaled(wide, weight, None, eps, x)), *sums


@tells_lack_of_memory
def rope(x: Operand, cos: Operand, sin: Operand, positions: Operand, interleaved: bool) -> CpuStorage:
    """Each pair (x, y) as (x cos - y sin, x sin + y cos), with the rows of the tables from the positions on."""
    wide = cast.widen(x.array, x.dtype).astype(np.float64)
    tokens, size = wide.shape[-2:]
    begins = positions.array.astype(np.int64).reshape(-1)
    count = cos.layout.shape[0] - tokens + 1
    wrong = (begins < 0) | (begins >= count)
    if wrong.any():
        raise InvalidIndex("rope", int(begins[wrong][0]), count)
    rows = begins[:, None] + np.arange(tokens)
    before = (len(begins), *(1,) * (wide.ndim - 3)) if wide.ndim > 2 else ()
    cosines, sines = (table.array[rows].reshape(*before, tokens, size // 2) for table in (cos, sin))
    first, second = (
        (np.s_[..., ::2], np.s_[..., 1::2]) if interleaved else (np.s_[..., : size // 2], np.s_[..., size // 2 :])
    )
    result = np.empty(wide.shape)
    with np.errstate(all="ignore"):
        result[first] = wide[first] * cosines - wide[second] * sines
        result[second] = wide[first] * sines + wide[second] * cosines
    return x.result(cast.narrow(result, x.dtype))


@tells_lack_of_memory
def cross_entropy(x: Operand, targets: Operand, dim: int, ignored: int) -> tuple[CpuStorage, CpuStorage]:
    """Minus log_softmax at each target along `dim`, and 1 where a target counts."""
    size, rows = x.layout.shape[dim], targets.array.astype(np.int64).reshape(targets.layout.shape)
    counts = (rows != ignored) & (rows != targets.dtype.index_mark)
    wrong = counts & ((rows < 0) | (rows >= size))
    if wrong.any():
        raise InvalidIndex("cross_entropy", int(rows[wrong][0]), size)
    losses = np.zeros(rows.shape)
    with np.errstate(all="ignore"):
        below = np.moveaxis(_below_zero(x, dim), dim, -1)[counts]
        losses[counts] = np.log(np.exp(below).sum(axis=-1)) - below[np.arange(len(below)), rows[counts]]
    compute = x.dtype.compute
    return x.result(cast.narrow(losses, x.dtype)), x.result(counts.astype(compute.numpy), compute)


def _sum(x: Operand, residual: Operand | None) -> tuple[Array, *tuple[CpuStorage, ...]]:
    """A fresh f64 array of the elements, and with a residual their sums, rounded, of which that array then is."""
    wide = cast.widen(x.array, x.dtype)
    if residual is None:
        return (wide.astype(np.float64, order="C"),)
    sums = cast.narrow(wide + cast.widen(residual.array, x.dtype), x.dtype)
    return cast.widen(sums, x.dtype).astype(np.float64, order="C"), x.result(sums)


def _scaled(wide: Array, weight: Operand | None, bias: Operand | None, eps: float, x: Operand) -> Array:
    """The rows over the root of their mean square, times the weight, plus the bias, rounded."""
    wide /= np.sqrt(_mean(np.square(wide)) + eps)
    if weight is not None:
        wide *= cast.widen(weight.array, x.dtype)
    if bias is not None:
        wide += cast.widen(bias.array, x.dtype)
    return cast.narrow(wide, x.dtype)


def _mean(x: Array) -> Array:
    """The mean of each row; 0 of nothing."""
    result: Array = x.sum(axis=-1, keepdims=True) / max(x.shape[-1], 1)
    return result


def _below_zero(x: Operand, dim: int) -> Array:
    """A fresh array of the elements less the largest one along `dim`."""
    result = cast.widen(x.array, x.dtype).astype(np.float64, order="C")
    if result.size:
        result -= result.max(axis=dim, keepdims=True)
    return result
