"""Decompositions of matrices in host memory by NumPy's LAPACK, for all backends.

All results of a matrix with a NaN or an infinity are NaN. What LAPACK does with one depends on its implementation: some
functions drop NaN in comparisons and return finite numbers, others fail for all of the batch.
"""

from __future__ import annotations

import cmath
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...dtype import Array
from ..base.error import InvalidArgument

# Python adds up this many elements faster than NumPy starts.
_FEW: Final = 64


def no_result(op: str, reason: object) -> InvalidArgument:
    """The error of matrices that have no such decomposition."""
    return InvalidArgument(op, f"{reason}; there is no result for these matrices")


def cholesky(x: Array) -> tuple[Array, ...]:
    """Lower triangles."""
    return _call("cholesky", np.linalg.cholesky, x, is_lower=True)


def det(x: Array) -> tuple[Array, ...]:
    """Determinants."""
    return _call("det", np.linalg.det, x)


def slogdet(x: Array) -> tuple[Array, ...]:
    """Their signs, and the logarithms of their absolute values."""
    return _call("slogdet", np.linalg.slogdet, x)


def solve(x: Array, values: Array) -> tuple[Array, ...]:
    """Columns of which matrices make these."""
    if _are_finite(values):
        return _call("solve", np.linalg.solve, x, values)
    columns = _call("solve", np.linalg.solve, x, np.where(np.isfinite(values), values, 0))[0]
    # A column depends on no other.
    return (np.where(np.isfinite(values).all(-2, keepdims=True), columns, np.nan),)


def eig(x: Array, has_vectors: bool) -> tuple[Array, ...]:
    """Eigenvalues and eigenvectors, which NumPy gives as real numbers where all of them are."""
    results = _call("eig", np.linalg.eig if has_vectors else np.linalg.eigvals, x)
    return tuple(array.astype(np.result_type(array.dtype, np.complex64)) for array in results)


def eigh(x: Array, has_vectors: bool) -> tuple[Array, ...]:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    return _call("eigh", np.linalg.eigh if has_vectors else np.linalg.eigvalsh, x, is_lower=True)


def qr(x: Array, is_complete: bool) -> tuple[Array, ...]:
    """Orthonormal columns and upper triangles."""
    return _call("qr", lambda array: np.linalg.qr(array, "complete" if is_complete else "reduced"), x)


def svd(x: Array, has_vectors: bool, is_full: bool) -> tuple[Array, ...]:
    """Singular values, with vectors between the left and the right ones."""
    return _call("svd", lambda array: np.linalg.svd(array, is_full) if has_vectors else np.linalg.svdvals(array), x)


def _call(op: str, compute: Callable[..., Any], x: Array, *others: Array, is_lower: bool = False) -> tuple[Array, ...]:
    """Call a function of NumPy's, which reads the lower triangle alone with `is_lower`."""
    if _are_finite(x):
        return _computed(op, compute, x, *others)
    is_finite = np.asarray(np.isfinite(np.tril(x) if is_lower else x).all((-2, -1)))
    identity = np.eye(*x.shape[-2:], dtype=x.dtype)
    results = _computed(op, compute, np.where(is_finite[..., None, None], x, identity), *others)
    rank = is_finite.ndim
    return tuple(
        [
            np.where(is_finite.reshape((*is_finite.shape, *[1] * (array.ndim - rank))), array, array.dtype.type(np.nan))
            for array in results
        ]
    )


def _computed(op: str, compute: Callable[..., Any], *operands: Array) -> tuple[Array, ...]:
    try:
        results = compute(*operands)
    except np.linalg.LinAlgError as error:
        raise no_result(op, error) from None
    return tuple(map(np.asarray, results)) if isinstance(results, tuple) else (np.asarray(results),)


def _are_finite(array: Array) -> bool:
    """Whether no element is infinite or NaN. False too where the sum overflows: then each element is checked."""
    return cmath.isfinite(sum(array.ravel().tolist()) if array.size <= _FEW else np.add.reduce(array, axis=None))
