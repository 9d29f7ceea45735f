"""Triangles and determinants of matrices by their definitions, and products in extended precision."""

from __future__ import annotations

import numpy as np

from .exact import exact
from .formats import EXTENDED, EXTENDED_COMPLEX, Array, decode

# Shapes of matrices that are not square, and how they lie.
OTHERS = [
    ((5, 3), "contiguous"),
    ((3, 5), "offset"),
    ((6, 4), "transposed"),
    ((4, 6), "broadcast rows"),
    ((2, 3, 4), "narrowed rows"),
    ((3, 1, 9), "rolled"),
    ((2, 0, 3), "contiguous"),
]
TRIANGLES = (
    *(((6, 7), lie) for lie in ("contiguous", "offset", "transposed", "narrowed columns", "broadcast rows")),
    ((6, 7), "broadcast columns"),
    ((33, 65), "transposed"),
    *OTHERS,
)


@exact(
    *(
        {"self": (shape, lie), "diagonal": diagonal, "is_upper": is_upper}
        for shape, lie in TRIANGLES
        for diagonal in sorted({-shape[-2], -1, 0, min(2, shape[-1]), shape[-1]})
        if diagonal >= -shape[-2]
        for is_upper in (False, True)
    )
)
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
    for index in np.ndindex(x.shape[:-2]):
        matrix = x[index].copy()
        for step in range(len(matrix)):
            largest = step + int(np.argmax(np.abs(matrix[step:, step])))
            if largest != step:
                matrix[[step, largest]] = matrix[[largest, step]]
                result[index] *= -1
            result[index] *= matrix[step, step]
            if matrix[step, step] == 0:
                break
            factors = matrix[step + 1 :, step] / matrix[step, step]
            matrix[step + 1 :] -= factors[:, None] * matrix[step]
    return result
