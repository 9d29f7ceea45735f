"""Triangles of matrices by an array library, and decompositions by NumPy's LAPACK on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....dtype import Array
from ....host import linalg
from .operand import Operand


def triangle(x: Operand, diagonal: int, is_upper: bool) -> Any:
    """The elements on a diagonal and on one side of it."""
    cut = x.library.triu if is_upper else x.library.tril
    return x.result(cut(x.array, diagonal))


def cholesky(x: Operand) -> Any:
    """Lower triangles of positive definite matrices."""
    return _on_host(linalg.cholesky, x)[0]


def det(x: Operand) -> Any:
    """Determinants."""
    return _on_host(linalg.det, x)[0]


def slogdet(x: Operand) -> tuple[Any, ...]:
    """Signs of determinants, and logarithms of their absolute values."""
    return _on_host(linalg.slogdet, x)


def solve(x: Operand, values: Operand) -> Any:
    """The columns of which matrices make `values`."""
    return _on_host(linalg.solve, x, values)[0]


def eig(x: Operand, has_vectors: bool) -> tuple[Any, ...]:
    """Eigenvalues and eigenvectors."""
    return _on_host(linalg.eig, x, has_vectors=has_vectors)


def eigh(x: Operand, has_vectors: bool) -> tuple[Any, ...]:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    return _on_host(linalg.eigh, x, has_vectors=has_vectors)


def qr(x: Operand, is_complete: bool) -> tuple[Any, ...]:
    """Orthonormal columns and upper triangles."""
    return _on_host(linalg.qr, x, is_complete=is_complete)


def svd(x: Operand, has_vectors: bool, is_full: bool) -> tuple[Any, ...]:
    """Compute singular values, between singular vectors if these are requested."""
    return _on_host(linalg.svd, x, has_vectors=has_vectors, is_full=is_full)


def _on_host(compute: Callable[..., tuple[Array, ...]], *operands: Operand, **options: bool) -> tuple[Any, ...]:
    # Floats and complex numbers are NumPy's own, and nothing writes to them.
    arrays = [x.storage.on_host(x.layout) for x in operands]
    return tuple(map(operands[0].storage.device.storage_owned, compute(*arrays, **options)))
