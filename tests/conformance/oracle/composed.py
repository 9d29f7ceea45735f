"""Methods that are composed of others. Each function gives the extended result, and how much it may be off besides."""

from __future__ import annotations

import numpy as np

from .exact import close
from .formats import NO_ROW, Array, decode, name_of
from .network import epsilon


@close
def embedding_bag(
    self: Array, ids: Array, name: str, weights: Array | None = None, mean: bool = False
) -> tuple[Array, Array]:
    """The sum of the rows at the ids of each bag, each times its weight, or that over their number."""
    mark = NO_ROW[name_of(ids)]
    is_row = np.ones(ids.shape, bool) if mark is None else ids != mark
    rows = decode(name, self)[np.where(is_row, ids, 0).astype(np.int64)] * is_row[..., None]
    rows = rows if weights is None else rows * decode(name, weights)[..., None]
    count = ids.shape[-1]
    share = count if mean else 1
    return rows.sum(-2) / share, 4 * count * epsilon(name) * np.abs(rows).sum(-2) / share


@close
def bilinear(self: Array, rhs: Array, weight: Array, name: str, bias: Array | None = None) -> tuple[Array, Array]:
    """x @ weight[i] @ y + bias[i]."""
    operands = [decode(name, each) for each in (self, weight, rhs)]
    result, sizes = (np.einsum("...m,omn,...n->...o", *map(of, operands)) for of in (np.asarray, np.abs))
    if bias is not None:
        result, sizes = result + decode(name, bias), sizes + np.abs(decode(name, bias))
    return result, sum(weight.shape[1:]) * 4 * epsilon(name) * sizes


@close
def local_response_norm(self: Array, name: str, size: int, alpha: float, beta: float, k: float) -> tuple[Array, Array]:
    """x over (k + alpha * m) ** beta, m the mean square of `size` channels, the first of them size // 2 before."""
    x = decode(name, self)
    first = np.arange(x.shape[1]) - size // 2
    sums = [np.square(x[:, max(begin, 0) : max(begin + size, 0)]).sum(1) for begin in first]
    means = np.stack(sums, 1) / size if sums else np.zeros_like(x)
    result = x / (k + alpha * means) ** beta
    return result, 16 * epsilon(name) * np.abs(result)
