"""Resampling by the kernels for the host: where elements of the result are in the source, and their shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .....dtype import Array
from ....core.tensor_type import TensorType
from ....helpers.host_memory import require_memory
from ....program.values import Constant, Operand, Pointer, address_of
from ...array_backend.ops.upsample import cubic, neighbours


class Tables(NamedTuple):
    """The indexes of a dim of the result in the source, the next ones where it is interpolated, and their shares.

    A bicubic dim has four indexes and their weights.
    """

    rows: Pointer
    next_rows: Pointer
    row_shares: Pointer
    columns: Pointer
    next_columns: Pointer
    column_shares: Pointer


def has_room(resampled: TensorType) -> bool:
    """Return True; OutOfMemory where the result does not fit into memory."""
    require_memory(*resampled)
    return True


def tables(
    op: str,
    x: Operand,
    sizes: Sequence[int],
    align_corners: bool | None,
    scale_h: float | None,
    scale_w: float | None,
) -> Tables:
    """The tables of both dims; lines have one row."""
    arrays: list[Array | None] = [np.zeros(1, np.int64), None, None] * (2 - len(sizes))
    factors = (scale_h, scale_w)[-len(sizes) :]
    for old, new, stride, factor in zip(x.shape[2:], sizes, x.strides[2:], factors, strict=True):
        if align_corners is None:
            arrays += [np.arange(new) * old // new * stride, None, None]
        elif old == new:
            indexes = np.arange(new) * stride
            arrays += [indexes, indexes, None]
        else:
            arrays += _interpolated(op, old, new, stride, align_corners, factor)
    return Tables(*[address_of(None if array is None else Constant(array)) for array in arrays])


def _interpolated(
    op: str, old: int, new: int, stride: int, align_corners: bool, factor: float | None
) -> tuple[Array, Array | None, Array]:
    with np.errstate(all="ignore"):
        if op == "upsample_bicubic2d":
            first, shares = cubic(old, new, align_corners, factor)
            following = None
        else:
            first, after, shares = neighbours(old, new, align_corners, factor)
            following = after * stride
    return np.ascontiguousarray(first * stride), following, np.ascontiguousarray(shares, np.float64)
