"""Triangles and determinants of matrices by their definitions, and products in extended precision."""

from __future__ import annotations

import numpy as np

from .formats import EXTENDED, EXTENDED_COMPLEX, Array, decode


def triangle(x: Array, diagonal: int, is_upper: bool) -> Array:
    """The elements on a diagonal and on one side of it, and zeros."""
    rows, columns = np.indices(x.shape[-2:])
    number = columns - rows
    return np.where(number >= diagonal if is_upper else number <= diagonal, x, np.zeros((), x.dtype))


def wide(name: str, x: Array) -> Array:
    """Extended numbers, of complex ones too."""
    decoded = decode(name, x)
    return decoded.astype(EXTENDED_COMPLEX if np.iscomplexobj(decoded) else EXTENDED)


def adjoint(x: Array) -> Array:
    """Conjugated and transposed."""
    return np.conj(np.swapaxes(x, -1, -2))


def det(x: Array) -> Array:
    """Determinants of extended matrices by elimination with row exchanges."""
    result = np.ones(x.shape[:-2], x.dtype)
    for place in np.ndindex(x.shape[:-2]):
        matrix = x[place].copy()
        for step in range(len(matrix)):
            largest = step + int(np.argmax(np.abs(matrix[step:, step])))
            if largest != step:
                matrix[[step, largest]] = matrix[[largest, step]]
                result[place] *= -1
            result[place] *= matrix[step, step]
            if matrix[step, step] == 0:
                break
            factors = matrix[step + 1 :, step] / matrix[step, step]
            matrix[step + 1 :] -= factors[:, None] * matrix[step]
    return result
