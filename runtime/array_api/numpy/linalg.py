"""Functions of `numpy.linalg` that the standard does not have, or has by another signature, for tensors.

Each has NumPy's names of those parameters that it takes; `protocol` refuses the others.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from functools import reduce
from typing import Any

from ...base.error import InvalidArgument
from ...tensor import Tensor
from .. import linalg
from ..manipulation import moveaxis

__all__ = ["multi_dot", "norm", "svd"]


def norm(
    x: Tensor,
    ord: float | str | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: builtins.bool = False,
) -> Tensor:
    """NumPy's `linalg.norm`."""
    if axis is None and (ord is None or (ord in ("fro", "f", 2) and x.rank == 1)):
        return x.norm(None, keepdims)
    axes = tuple(range(x.rank)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if len(axes) == 1:
        return linalg.vector_norm(x, axis=axes[0], keepdims=keepdims, ord=2 if ord is None else ord)  # type: ignore[arg-type]
    if len(axes) != 2:
        raise InvalidArgument("norm", f"a norm is of vectors or of matrices, not along {len(axes)} axes; flatten x")
    result = linalg.matrix_norm(moveaxis(x, axes, (-2, -1)), keepdims=keepdims, ord="fro" if ord is None else ord)  # type: ignore[arg-type]
    return moveaxis(result, (-2, -1), axes) if keepdims else result


def multi_dot(arrays: Sequence[Tensor]) -> Tensor:
    """NumPy's `linalg.multi_dot`, from the left."""
    return reduce(lambda left, right: left @ right, arrays)


def svd(a: Tensor, full_matrices: builtins.bool = True, compute_uv: builtins.bool = True) -> Any:
    """NumPy's `linalg.svd`."""
    return linalg.svd(a, full_matrices=full_matrices) if compute_uv else linalg.svdvals(a)
