"""Decompositions of matrices in host memory by NumPy's LAPACK, for all backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtype import Array
from ..base.error import InvalidArgument


def no_result(op: str, reason: object) -> InvalidArgument:
    """The error of matrices that have no such decomposition."""
    return InvalidArgument(op, f"{reason}; there is no result for these matrices")


def cholesky(x: Array) -> tuple[Array, ...]:
    """Lower triangles."""
    return _found("cholesky", np.linalg.cholesky, x)


def det(x: Array) -> tuple[Array, ...]:
    """Determinants."""
    return _found("det", np.linalg.det, x)


def slogdet(x: Array) -> tuple[Array, ...]:
    """Their signs, and the logarithms of their absolute values."""
    return _found("slogdet", np.linalg.slogdet, x)


def solve(x: Array, values: Array) -> tuple[Array, ...]:
    """Columns of which matrices make these."""
    return _found("solve", np.linalg.solve, x, values)


def eig(x: Array, has_vectors: bool) -> tuple[Array, ...]:
    """Eigenvalues and eigenvectors, which NumPy gives as real numbers where all of them are."""
    found = _found("eig", np.linalg.eig if has_vectors else np.linalg.eigvals, x)
    return tuple(array.astype(np.result_type(array.dtype, np.complex64)) for array in found)


def eigh(x: Array, has_vectors: bool) -> tuple[Array, ...]:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    return _found("eigh", np.linalg.eigh if has_vectors else np.linalg.eigvalsh, x)


def qr(x: Array, is_complete: bool) -> tuple[Array, ...]:
    """Orthonormal columns and upper triangles."""
    return _found("qr", lambda array: np.linalg.qr(array, "complete" if is_complete else "reduced"), x)


def svd(x: Array, has_vectors: bool, is_full: bool) -> tuple[Array, ...]:
    """Singular values, with vectors between the left and the right ones."""
    return _found("svd", lambda array: np.linalg.svd(array, is_full) if has_vectors else np.linalg.svdvals(array), x)


def _found(op: str, compute: Callable[..., Any], *matrices: Array) -> tuple[Array, ...]:
    try:
        found = compute(*matrices)
    except np.linalg.LinAlgError as error:
        raise no_result(op, error) from None
    return tuple(map(np.asarray, found if isinstance(found, tuple) else (found,)))
