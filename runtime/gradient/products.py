"""The operands of gradients of products: the other factors, of complex numbers conjugated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ..tensor import Tensor
from ..tensor.shape.joining import cat

T = TypeVar("T")


def conjugated(x: T) -> T:
    """Return the complex conjugate of a tensor of complex numbers, and anything else as it is."""
    return x.conj() if isinstance(x, Tensor) and x.dtype.is_complex else x


def adjoint(x: Tensor) -> Tensor:
    """Return transposed matrices, of complex numbers conjugated."""
    return conjugated(x.mT)


def before(x: Tensor, dim: int) -> Tensor:
    """For each element the product of those before it along a dim that is not empty."""
    shape = [*x.shape[:dim], 1, *x.shape[dim + 1 :]]
    one = Tensor.full(shape, 1.0, dtype=x.dtype, device=x.device)
    return cat([one, x.narrow(dim, 0, x.shape[dim] - 1).cumprod(dim)], dim)


def product_of_others(x: Tensor, dims: Sequence[int]) -> Tensor:
    """For each element the product of the others along some dims, which are not empty; without quotients."""
    reduced = [dim % x.rank for dim in dims]
    order = [*(dim for dim in range(x.rank) if dim not in reduced), *reduced]
    ordered = x.permute(order)
    rows = ordered.reshape(*ordered.shape[: x.rank - len(reduced)], -1)
    last = rows.rank - 1
    others = before(rows, last) * before(rows.flip(last), last).flip(last)
    return others.reshape(ordered.shape).permute([order.index(dim) for dim in range(x.rank)])
