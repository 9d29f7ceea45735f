"""Cofactors and solutions of matrices, for gradients."""

from __future__ import annotations

from typing import Final

import numpy as np

from ... import results
from ..base.error import GradientError, InvalidArgument
from ..core.layout import Layout
from ..tensor import Tensor
from .products import conjugated, product_of_others
from .recording import mode

# Up to here cofactors that are recorded are determinants of minors, whose number grows with the square.
_MAX_MINORS: Final = 8


def cofactors(x: Tensor, result: Tensor) -> Tensor:
    """The cofactors of square matrices, of which `result` are the determinants."""
    size = x.shape[-1]
    if size < 2:
        return x.ones_like()
    if size == 2:
        return x.flip([-1, -2]) * Tensor([[1, -1], [-1, 1]], dtype=x.dtype, device=x.device)
    if not mode().keeps_graph:
        return _cofactors_by_svd(x)
    if size <= _MAX_MINORS:
        return _minors(x)
    try:
        inverse = solved(x.mT, Tensor.eye(size, dtype=x.dtype, device=x.device).broadcast_as(x.shape))
    except InvalidArgument as error:
        reason = f"of singular matrices of more than {_MAX_MINORS} rows there is no second gradient"
        raise GradientError("det", reason) from error
    return result.unsqueeze(-1).unsqueeze(-1) * inverse


def _cofactors_by_svd(x: Tensor) -> Tensor:
    """The cofactors of x = U S V: U* C V* det(U V), where C are those of S and U* is the conjugate of U."""
    types = [each for each in results.svd(x, True, False) if each is not None]
    left, values, right = [
        Tensor._new(storage, Layout.contiguous(each.shape))
        for storage, each in zip(x._storage.svd(x._layout, True, False), types, strict=True)
    ]
    sign = Tensor._new((left @ right)._storage.det(x._layout.dense), Layout.contiguous(results.det(x).shape)).sign()
    others = product_of_others(values, [-1]) * sign.unsqueeze(-1)
    return (conjugated(left) * others.unsqueeze(-2)) @ conjugated(right)


def _minors(x: Tensor) -> Tensor:
    size = x.shape[-1]
    others = Tensor(np.array([[j for j in range(size) if j != i] for i in range(size)]).reshape(-1), device=x.device)
    chosen = x.index_select(others, -2).index_select(others, -1)
    batch = range(x.rank - 2)
    rows = chosen.reshape(*x.shape[:-2], size, size - 1, size, size - 1)
    first = x.rank - 2
    minors = rows.permute([*batch, first, first + 2, first + 1, first + 3]).contiguous()
    determinants = Tensor._new(minors._storage.det(minors._layout), Layout.contiguous(results.det(minors).shape))
    signs = 1 - 2 * (np.indices((size, size)).sum(0) % 2)
    return determinants * Tensor(signs, dtype=x.dtype, device=x.device)


def solved(x: Tensor, values: Tensor) -> Tensor:
    """The solutions y of x y = values."""
    return Tensor.from_storage(x.storage.solve(x.layout, values.storage, values.layout), values.shape)
