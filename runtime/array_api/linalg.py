"""Linear algebra: decompositions by cuSOLVER or hipSOLVER where they are, else on the host, by NumPy's LAPACK.

eig and eigvals are always computed on the host. Matrices are the last two axes. Only f32, f64, complex64 and complex128
have decompositions. All results of a matrix with a NaN or an infinity are NaN; its rank is `InvalidArgument`.
"""

from __future__ import annotations

import builtins
import math
from typing import Literal, NamedTuple

import numpy as np

from ... import results
from ..base.error import InvalidArgument, ShapeMismatch, describe
from ..core import check
from ..core.argument import boolean, integer, real
from ..core.layout import Layout
from ..tensor import Tensor
from .data_types import promoted_operands
from .elementwise import abs as _abs
from .elementwise import conj
from .linear_algebra import cross, diagonal, matmul, matrix_transpose, outer, tensordot, trace, vecdot
from .manipulation import Axes, broadcast_shapes
from .result_layouts import result_layouts

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]

Order = int | float | Literal["fro", "nuc"] | None


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and an eigenvector in each column."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """Eigenvalues, and an eigenvector in each column."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """An orthonormal matrix and an upper triangular one, whose product is the matrix."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """Left singular vectors, singular values in descending order, and right singular vectors in rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def cholesky(x: Tensor, /, *, upper: builtins.bool = False) -> Tensor:
    """Find the lower triangular L with L L^H = x for positive definite matrices; with `upper`, U with U^H U = x."""
    upper = boolean("cholesky", "upper", upper)
    # The upper triangle has the conjugates of the lower one.
    lower = _conjugate_transpose(x) if upper and x.rank >= 2 else x
    factor = Tensor._new(lower.storage.cholesky(lower.layout), x.layout.dense)
    return _conjugate_transpose(factor) if upper else factor


def _conjugate_transpose(x: Tensor) -> Tensor:
    return conj(x.mT) if x.dtype.is_complex else x.mT


def det(x: Tensor, /) -> Tensor:
    """Determinants of square matrices."""
    return Tensor._new(x.storage.det(x.layout), *result_layouts(results.det, x))


def eigh(x: Tensor, /) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric, or Hermitian, matrices."""
    return EighResult(*map(Tensor._new, x.storage.eigh(x.layout, True), result_layouts(results.eigh, x, True)))


def eigvalsh(x: Tensor, /) -> Tensor:
    """Eigenvalues of symmetric, or Hermitian, matrices, in ascending order."""
    (values,) = map(Tensor._new, x.storage.eigh(x.layout, False), result_layouts(results.eigh, x, False))
    return values


def eig(x: Tensor, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices, as complex numbers."""
    return EigResult(*map(Tensor._new, x.storage.eig(x.layout, True), result_layouts(results.eig, x, True)))


def eigvals(x: Tensor, /) -> Tensor:
    """Eigenvalues of square matrices, as complex numbers."""
    (values,) = map(Tensor._new, x.storage.eig(x.layout, False), result_layouts(results.eig, x, False))
    return values


def inv(x: Tensor, /) -> Tensor:
    """Inverses of square matrices."""
    check.square("inv", x.layout)
    size = x.shape[-1]
    ones = Tensor.eye(size, dtype=x.dtype, device=x.device)
    if x.rank > 2:
        ones = ones.broadcast_as((*x.shape[:-2], size, size))
    return Tensor._new(x.storage.solve(x.layout, ones.storage, ones.layout), x.layout.dense)


def matrix_norm(x: Tensor, /, *, keepdims: builtins.bool = False, ord: Order = "fro") -> Tensor:
    """Norms of matrices: "fro", "nuc", and 1, 2, inf and their opposites, of columns, singular values and rows."""
    keepdims = boolean("matrix_norm", "keepdims", keepdims)
    if ord in ("fro", None):
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in (1, -1, np.inf, -np.inf):
        sums = _abs(x).sum(-2 if ord in (1, -1) else -1, keepdims)
        reduced = -2 if keepdims and ord in (np.inf, -np.inf) else -1
        return sums.max(reduced, keepdims) if ord > 0 else sums.min(reduced, keepdims)
    values = svdvals(x)
    reduced_values = {
        "nuc": lambda: values.sum(-1),
        2: lambda: values.max(-1),
        -2: lambda: values.min(-1),
    }
    if not isinstance(ord, str | int | float) or ord not in reduced_values:
        raise InvalidArgument("matrix_norm", f"there is no order {ord!r}; use 'fro', 'nuc', 1, 2, inf, -1, -2 or -inf")
    result = reduced_values[ord]()
    return result.unsqueeze(-1).unsqueeze(-1) if keepdims else result


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Multiply square matrices `n` times with themselves; their inverses if `n` is negative."""
    n = integer("matrix_power", "n", n)
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeMismatch("matrix_power", (x.shape,), "the matrices are square")
    # Products of products are rounded once.
    base = inv(x) if n < 0 else x.to_dtype(x.dtype.compute)
    result = Tensor.eye(x.shape[-1], dtype=base.dtype, device=x.device).broadcast_as(x.shape).contiguous()
    for digit in bin(builtins.abs(n))[2:]:
        result = result @ result
        if digit == "1":
            result = result @ base
    return result.to_dtype(x.dtype)


def _tolerance(op: str, x: Tensor, rtol: float | Tensor | None, values: Tensor) -> Tensor:
    """Return the singular values below which others count as 0."""
    largest = values.max(-1, True) if values.shape[-1] else values.sum(-1, True)
    if rtol is None:
        rtol = max(x.shape[-2:]) * float(np.finfo(x.dtype.real.numpy).eps)
    return largest * (rtol.unsqueeze(-1) if isinstance(rtol, Tensor) else real(op, "rtol", rtol))


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Count the singular values above `rtol` times the largest, by default the dtype's precision times the size."""
    if x.rank < 2:
        raise ShapeMismatch("matrix_rank", (x.shape,), "a matrix has 2 axes; expand_dims first")
    # A count has no gradient.
    values = svdvals(x.detach())
    if bool(values.isnan().any()):
        raise InvalidArgument("matrix_rank", "a matrix with NaN or an infinity has no rank")
    return (values > _tolerance("matrix_rank", x, rtol, values)).sum(-1)


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Pseudo-inverses of matrices; singular values below `rtol` times the largest count as 0."""
    left, values, right = svd(x, full_matrices=False)
    is_kept = values > _tolerance("pinv", x, rtol, values)
    factors = is_kept.where(values.recip(), 0).unsqueeze(-1).to_dtype(x.dtype)
    return _conjugate_transpose(right) @ (factors * _conjugate_transpose(left))


def qr(x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Decompose matrices into an orthonormal and an upper triangular one; "complete" makes the first square."""
    if mode not in ("reduced", "complete"):
        raise InvalidArgument("qr", f"there is no mode {describe(mode)}; use 'reduced' or 'complete'")
    is_complete = mode == "complete"
    return QRResult(*map(Tensor._new, x.storage.qr(x.layout, is_complete), result_layouts(results.qr, x, is_complete)))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """Sign and logarithm of the absolute value of determinants."""
    return SlogdetResult(*map(Tensor._new, x.storage.slogdet(x.layout), result_layouts(results.slogdet, x)))


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Solve x1 y = x2: a vector if `x2` is one, else a column of y for each of `x2`."""
    left, right = promoted_operands("solve", x1, x2)
    is_vector = len(right.shape) == 1
    columns = right.unsqueeze(-1) if is_vector else right
    matrices, others = left.shape[:-2], columns.shape[:-2]
    if matrices != others and left.rank >= 2:
        outer = broadcast_shapes(matrices, others)
        left, columns = (each.broadcast_as((*outer, *each.shape[-2:])) for each in (left, columns))
    layout = columns.layout
    storage = left.storage.solve(left.layout, columns.storage, layout)
    return Tensor._new(storage, Layout.contiguous(columns.shape[:-1]) if is_vector else layout.dense)


def svd(x: Tensor, /, *, full_matrices: builtins.bool = True) -> SVDResult:
    """Singular value decompositions; without `full_matrices` only the vectors of the singular values."""
    storages = x.storage.svd(x.layout, True, full_matrices)
    return SVDResult(*map(Tensor._new, storages, result_layouts(results.svd, x, True, full_matrices)))


def svdvals(x: Tensor, /) -> Tensor:
    """Singular values of matrices, in descending order."""
    (values,) = map(Tensor._new, x.storage.svd(x.layout, False, False), result_layouts(results.svd, x, False, False))
    return values


def vector_norm(
    x: Tensor, /, *, axis: Axes | None = None, keepdims: builtins.bool = False, ord: int | float = 2
) -> Tensor:
    """Norms of vectors along axes: the root of order `ord` of the sum of so high powers of the absolute values.

    inf and -inf are the largest and the smallest absolute value; 0 counts the elements that are not 0.
    """
    size, ord = _abs(x), real("vector_norm", "ord", ord)
    if ord == np.inf:
        return size.max(axis, keepdims)
    if ord == -np.inf:
        return size.min(axis, keepdims)
    if ord == 0:
        return size.ne(0).to_dtype(size.dtype).sum(axis, keepdims)
    if ord == 1:
        return size.sum(axis, keepdims)
    if ord == 2:
        return size.norm(axis, keepdims)
    # Of elements up to 1, or from 1 on where `ord` is below 0, no power overflows, and one of them is 1. A factor of
    # all elements is one of the norm too: gradients take it for a constant.
    wide = size.to_dtype(size.dtype.compute)
    is_zero, scale = wide.eq(0), wide.detach().sum(axis, True)
    has_zero = scale.ne(scale)
    if wide.elem_count:
        extreme = wide.detach().max(axis, True) if ord > 0 else wide.detach().min(axis, True)
        has_zero = extreme.eq(0)
        scale = (has_zero | extreme.isinf()).where(1.0, extreme)
    # A power of 0 may be infinite, or have an infinite slope.
    powers = is_zero.where(0.0, is_zero.where(1.0, wide.div(scale)).powf(ord))
    total = powers.sum(axis, True)
    is_none = total.eq(0)
    norms = is_none.where(0.0 if ord > 0 else math.inf, is_none.where(1.0, total).powf(1 / ord).mul(scale))
    # The opposite of infinity is 0.
    norms = has_zero.where(0.0, norms)
    result = norms if keepdims else norms.reshape(size.sum(axis).shape)
    return result.to_dtype(size.dtype)
