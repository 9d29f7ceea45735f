"""Linear algebra: decompositions by LAPACK, in the order of the standard.

Decompositions are computed on the host by NumPy's LAPACK, wherever the tensors are; the results return to their device.
Matrices are the last two axes. Only f32, f64, complex64 and complex128 have decompositions.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from ..base.error import InvalidArgument, ShapeMismatch, UnsupportedDType
from ..tensor import Tensor
from .data_types import promoted_operands
from .elementwise import abs as _abs
from .linear_algebra import cross, diagonal, matmul, matrix_transpose, outer, tensordot, trace, vecdot
from .manipulation import Axes

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


def _lapack(op: str, compute: Callable[..., Any], *operands: Tensor, **options: Any) -> tuple[Tensor, ...]:
    """Call a function of numpy.linalg; InvalidArgument where it finds no result, as for singular matrices."""
    for x in operands:
        if x.dtype.real.complex is None:
            reason = "LAPACK has f32, f64, complex64 and complex128; convert with astype"
            raise UnsupportedDType(op, x.dtype, x.device.backend, reason)
    try:
        found = compute(*[x.numpy() for x in operands], **options)
    except np.linalg.LinAlgError as error:
        if operands[0].rank < 2 or "square" in str(error):
            raise ShapeMismatch(op, tuple(x.shape for x in operands), str(error)) from None
        raise InvalidArgument(op, f"{error}; there is no result for these matrices") from None
    results = found if isinstance(found, tuple) else (found,)
    device = operands[0].device
    return tuple(Tensor.from_numpy(np.asarray(result), device=device) for result in results)


def cholesky(x: Tensor, /, *, upper: builtins.bool = False) -> Tensor:
    """Find the lower triangular L with L L^H = x for positive definite matrices; with `upper`, U with U^H U = x."""
    return _lapack("cholesky", np.linalg.cholesky, x, upper=upper)[0]


def det(x: Tensor, /) -> Tensor:
    """Determinants of square matrices."""
    return _lapack("det", np.linalg.det, x)[0]


def eigh(x: Tensor, /) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric, or Hermitian, matrices."""
    return EighResult(*_lapack("eigh", np.linalg.eigh, x))


def eigvalsh(x: Tensor, /) -> Tensor:
    """Eigenvalues of symmetric, or Hermitian, matrices, in ascending order."""
    return _lapack("eigvalsh", np.linalg.eigvalsh, x)[0]


def eig(x: Tensor, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices, as complex numbers."""
    return EigResult(*map(_complex, _lapack("eig", lambda array: tuple(np.linalg.eig(array)), x)))


def eigvals(x: Tensor, /) -> Tensor:
    """Eigenvalues of square matrices, as complex numbers."""
    return _complex(_lapack("eigvals", np.linalg.eigvals, x)[0])


def _complex(x: Tensor) -> Tensor:
    """What NumPy gives as real numbers where all of them are."""
    return x.to_dtype(x.dtype.complex or x.dtype)


def inv(x: Tensor, /) -> Tensor:
    """Inverses of square matrices."""
    return _lapack("inv", np.linalg.inv, x)[0]


def matrix_norm(x: Tensor, /, *, keepdims: builtins.bool = False, ord: Order = "fro") -> Tensor:
    """Norms of matrices: "fro", "nuc", and 1, 2, inf and their opposites, of columns, singular values and rows."""
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
    if ord not in reduced_values:
        raise InvalidArgument("matrix_norm", f"there is no order {ord!r}; use 'fro', 'nuc', 1, 2, inf, -1, -2 or -inf")
    result = reduced_values[ord]()
    return result.unsqueeze(-1).unsqueeze(-1) if keepdims else result


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Multiply square matrices `n` times with themselves; their inverses if `n` is negative."""
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeMismatch("matrix_power", (x.shape,), "the matrices are square")
    base = inv(x) if n < 0 else x
    result = Tensor.eye(x.shape[-1], dtype=x.dtype, device=x.device).broadcast_as(x.shape).contiguous()
    for digit in bin(builtins.abs(n))[2:]:
        result = result @ result
        if digit == "1":
            result = result @ base
    return result


def _tolerance(x: Tensor, rtol: float | Tensor | None, values: Tensor) -> Tensor:
    """Return the singular values below which others count as 0."""
    largest = values.max(-1, True) if values.shape[-1] else values.sum(-1, True)
    if rtol is None:
        rtol = max(x.shape[-2:]) * float(np.finfo(x.dtype.real.numpy).eps)
    return largest * (rtol.unsqueeze(-1) if isinstance(rtol, Tensor) else rtol)


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Count the singular values above `rtol` times the largest, by default the dtype's precision times the size."""
    if x.rank < 2:
        raise ShapeMismatch("matrix_rank", (x.shape,), "a matrix has 2 axes; expand_dims first")
    values = svdvals(x)
    return (values > _tolerance(x, rtol, values)).sum(-1)


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Pseudo-inverses of matrices; singular values below `rtol` times the largest count as 0."""
    options = {} if rtol is None else {"rtol": rtol.numpy() if isinstance(rtol, Tensor) else rtol}
    return _lapack("pinv", np.linalg.pinv, x, **options)[0]


def qr(x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Decompose matrices into an orthonormal and an upper triangular one; "complete" makes the first square."""
    return QRResult(*_lapack("qr", lambda array: tuple(np.linalg.qr(array, mode=mode)), x))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """Sign and logarithm of the absolute value of determinants."""
    return SlogdetResult(*_lapack("slogdet", lambda array: tuple(np.linalg.slogdet(array)), x))


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Solve x1 y = x2: a vector if `x2` is one, else a column of y for each of `x2`."""
    left, right = promoted_operands("solve", x1, x2)
    if right.rank == 1:
        # NumPy takes stacks of vectors for matrices.
        return _lapack("solve", lambda a, b: np.linalg.solve(a, b[..., None])[..., 0], left, right)[0]
    return _lapack("solve", np.linalg.solve, left, right)[0]


def svd(x: Tensor, /, *, full_matrices: builtins.bool = True) -> SVDResult:
    """Singular value decompositions; without `full_matrices` only the vectors of the singular values."""
    found = _lapack("svd", lambda array: tuple(np.linalg.svd(array, full_matrices=full_matrices)), x)
    return SVDResult(*found)


def svdvals(x: Tensor, /) -> Tensor:
    """Singular values of matrices, in descending order."""
    return _lapack("svdvals", np.linalg.svdvals, x)[0]


def vector_norm(
    x: Tensor, /, *, axis: Axes | None = None, keepdims: builtins.bool = False, ord: int | float = 2
) -> Tensor:
    """Norms of vectors along axes: the root of order `ord` of the sum of so high powers of the absolute values.

    inf and -inf are the largest and the smallest absolute value; 0 counts the elements that are not 0.
    """
    size = _abs(x)
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
    return size.powf(ord).sum(axis, keepdims).powf(1 / ord)
