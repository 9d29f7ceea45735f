"""Gradients of decompositions of matrices.

`gradients` are those of the results, None of results that are not used or were left out, as these are in `results`.
x^H is the adjoint of x. Gradients of symmetric and Hermitian matrices are such matrices. Sources: Giles, "An extended
collection of matrix derivative results for forward and reverse mode AD", 2008; Walter and Lehmann, "Algorithmic
differentiation of linear algebra functions", 2010; Wan and Zhang, "Automatic differentiation for complex valued SVD",
2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import results as types
from ..base.error import GradientError, InvalidArgument
from ..core.layout import Layout
from ..tensor import Tensor
from ..tensor.shape.joining import cat
from .matrices import solved
from .products import adjoint

Results = Sequence[Tensor | None]


def cholesky(g: Tensor, result: Tensor) -> Tensor:
    """Return the gradient of matrices that were factored (Murray 2016)."""
    product = (adjoint(result) @ g).tril()
    halved = product - product * 0.5 * Tensor.eye(g.shape[-1], device=g.device)
    one_side = solved(adjoint(result), adjoint(solved(adjoint(result), halved)))
    return (one_side + adjoint(one_side)) * 0.5


def slogdet(gradients: Results, x: Tensor, results: Results) -> Tensor | None:
    """Return the gradient of matrices of which the determinants' signs and logarithms were computed."""
    of_sign, factor = gradients
    sign = results[0]
    if of_sign is not None and sign is not None and sign.dtype.is_complex:
        # The angle of the sign changes by the imaginary part of trace(x^-1 dx).
        of_angle = (of_sign.conj() * sign).imag() * -1j
        factor = of_angle if factor is None else factor + of_angle
    if factor is None:
        return None
    try:
        inverse = solved(adjoint(x), Tensor.eye(x.shape[-1], dtype=x.dtype, device=x.device).broadcast_as(x.shape))
    except InvalidArgument as error:
        raise GradientError("slogdet", "singular matrices have no gradient; use det") from error
    return factor.unsqueeze(-1).unsqueeze(-1) * inverse


def eigh(gradients: Results, x: Tensor, results: Results) -> Tensor:
    """Return the gradient of symmetric or Hermitian matrices, infinite or NaN if equal eigenvalues have vectors."""
    of_values, of_vectors = gradients
    values, vectors = _all(results, x, "eigh", True)
    middle = None if of_vectors is None else adjoint(vectors) @ of_vectors
    gradient = vectors @ _by_distances(middle, of_values, _distances(values), x.dtype) @ adjoint(vectors)
    return (gradient + adjoint(gradient)) * 0.5


def eig(gradients: Results, x: Tensor, results: Results) -> Tensor:
    """Return the gradient of square matrices, infinite or NaN if equal eigenvalues have vectors."""
    of_values, of_vectors = gradients
    values, vectors = _all(results, x, "eig", True)
    middle = None
    if of_vectors is not None:
        middle = adjoint(vectors) @ of_vectors
        # The vectors have the length 1.
        middle -= adjoint(vectors) @ (vectors * _of_diagonal(middle).real().unsqueeze(-2))
    middle = _by_distances(middle, of_values, _distances(values).conj(), values.dtype)
    gradient = solved(adjoint(vectors), middle @ adjoint(vectors))
    return gradient if x.dtype.is_complex else gradient.real()


def svd(gradients: Results, x: Tensor, results: Results, is_full: bool) -> Tensor:
    """Return the gradient of matrices, infinite or NaN if vectors of equal or, of matrices that are not square, zero
    singular values matter.
    """
    of_left, of_values, of_right = gradients
    rows, columns = x.shape[-2:]
    has_more = is_full and rows != columns
    if has_more and (of_left is not None or of_right is not None):
        reason = "square vectors of matrices that are not square have no gradient"
        raise GradientError("svd", f"{reason}; use full_matrices=False")
    left, values, right = _all([None] if has_more else results, x, "svd", True, False)
    if of_left is None and of_right is None:
        return left if of_values is None else (left * of_values.unsqueeze(-2)) @ right
    squares = values * values
    distances = _distances(squares)
    middle = None
    if of_left is not None:
        skew = _skew(adjoint(left) @ of_left)
        middle = _by_distances(skew, None, distances, x.dtype) * values.unsqueeze(-2)
        if x.dtype.is_complex:
            middle += _diagonal(_of_diagonal(skew) / (values * 2))
    if of_right is not None:
        skew = _skew(right @ adjoint(of_right))
        part = values.unsqueeze(-1) * _by_distances(skew, None, distances, x.dtype)
        middle = part if middle is None else middle + part
    assert middle is not None
    if of_values is not None:
        middle += _diagonal(of_values)
    outer = left @ middle
    if rows > columns and of_left is not None:
        scaled = of_left / values.unsqueeze(-2)
        outer += scaled - left @ (adjoint(left) @ scaled)
    gradient = outer @ right
    if rows < columns and of_right is not None:
        scaled = of_right / values.unsqueeze(-1)
        gradient += left @ (scaled - (scaled @ adjoint(right)) @ right)
    return gradient


def qr(gradients: Results, x: Tensor, results: Results, is_complete: bool) -> Tensor:
    """Return the gradient of matrices whose first columns are independent."""
    of_q, of_r = gradients
    q, r = results
    rows, columns = x.shape[-2:]
    assert q is not None and r is not None
    if is_complete and rows > columns:
        raise GradientError("qr", "columns beyond those of the matrix have no gradient; use mode='reduced'")
    if rows >= columns:
        return _of_columns(of_q, of_r, q, r)
    # The other columns are q r of theirs.
    others = x.narrow(-1, rows, columns - rows)
    if of_r is None:
        return cat([_of_columns(of_q, None, q, r.narrow(-1, 0, rows)), others.zeros_like()], -1)
    of_others = of_r.narrow(-1, rows, columns - rows)
    product = others @ adjoint(of_others)
    of_q = product if of_q is None else of_q + product
    first = _of_columns(of_q, of_r.narrow(-1, 0, rows), q, r.narrow(-1, 0, rows))
    return cat([first, q @ of_others], -1)


def _of_columns(of_q: Tensor | None, of_r: Tensor | None, q: Tensor, r: Tensor) -> Tensor:
    """Return the gradient of matrices with no more columns than rows."""
    middle = r.zeros_like() if of_r is None else of_r @ adjoint(r)
    if of_q is not None:
        middle -= adjoint(q) @ of_q
    upper = middle.triu(1)
    diagonal = _of_diagonal(middle)
    symmetric = upper + adjoint(upper) + _diagonal(diagonal.real() if diagonal.dtype.is_complex else diagonal)
    gradient = q @ symmetric
    if of_q is not None:
        gradient += of_q
    # gradient @ r^-H
    return adjoint(solved(r, adjoint(gradient)))


def _all(results: Results, x: Tensor, method: str, *arguments: Any) -> list[Tensor]:
    """Return the results of a decomposition, which is computed with vectors if it was without."""
    if all(each is not None for each in results):
        return [each for each in results if each is not None]
    storages = getattr(x._storage, method)(x._layout, *arguments)
    shapes = [each.shape for each in getattr(types, method)(x, *arguments)]
    return [Tensor._new(it, Layout.contiguous(shape)) for it, shape in zip(storages, shapes, strict=True)]


def _distances(values: Tensor) -> Tensor:
    """Return values[j] - values[i], and 1 on the diagonal."""
    return _is_diagonal(values).where(1, values.unsqueeze(-2) - values.unsqueeze(-1))


def _by_distances(middle: Tensor | None, diagonal: Tensor | None, distances: Tensor, dtype: Any) -> Tensor:
    """Return matrices divided by distances of values, with another diagonal: zeros without one."""
    if middle is None:
        assert diagonal is not None, "a result has a gradient"
        return _diagonal(diagonal.to_dtype(dtype))
    inside: Any = 0 if diagonal is None else diagonal.unsqueeze(-1).to_dtype(dtype)
    return _is_diagonal(distances).where(inside, middle / distances)


def _skew(x: Tensor) -> Tensor:
    return x - adjoint(x)


def _is_diagonal(like: Tensor) -> Tensor:
    """Return where a square matrix, as long as the last dim of a tensor, has its diagonal."""
    return Tensor.eye(like.shape[-1], dtype="bool", device=like.device)


def _diagonal(values: Tensor) -> Tensor:
    """Return diagonal matrices."""
    return _is_diagonal(values).where(values.unsqueeze(-1), 0)


def _of_diagonal(x: Tensor) -> Tensor:
    """Return the elements on the diagonals of square matrices."""
    return _is_diagonal(x).where(x, 0).sum(-1)
