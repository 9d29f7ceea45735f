"""Rows over the root of their mean square, less their mean or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .....kernels import arguments
from ....kernels.argument_struct import NOWHERE
from . import rows
from .operand import Operand
from .scalar import element_bits

if TYPE_CHECKING:
    from ..storage import GpuStorage

# The most packs of a row that a thread holds, by the bytes of an element: AMD's registers have no room for more.
_MOST_HELD: Final = {2: 4, 4: 4, 8: 2}
# What the measure kernel knows of a part: so many numbers of the compute dtype.
_KNOWN: Final = 3


def layer_norm(
    x: Operand, weight: Operand | None, bias: Operand | None, residual: Operand | None, eps: float
) -> tuple[GpuStorage, ...]:
    """(x - mean) / sqrt(variance + eps) * weight + bias, and the sum of x and the residual where there is one."""
    return _norm("layer_norm", x, weight, bias, residual, eps, is_centered=True)


def rms_norm(x: Operand, weight: Operand | None, residual: Operand | None, eps: float) -> tuple[GpuStorage, ...]:
    """x / sqrt(mean of squares + eps) * weight, and the sum of x and the residual where there is one."""
    return _norm("rms_norm", x, weight, None, residual, eps, is_centered=False)


def _norm(
    op: str,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    eps: float,
    *,
    is_centered: bool,
) -> tuple[GpuStorage, ...]:
    device, itemsize, count = x.device, x.itemsize, x.layout.elem_count
    made = [device.empty(x.dtype, count) for _ in range(1 if residual is None else 2)]
    if count == 0:
        return tuple(made)
    x, residual = rows.in_rows(x), None if residual is None else rows.in_rows(residual)
    vectors = [None if vector is None else rows.in_rows(vector) for vector in (weight, bias)]
    scale, shift = [NOWHERE if vector is None else vector.address for vector in vectors]
    epsilon, share = element_bits(eps, x.dtype.compute), element_bits(1 / x.shape[-1], x.dtype.compute)
    name = f"norm_{x.dtype.value}"
    for part in rows.launches(op, _MOST_HELD[x.itemsize], x, x if residual is None else residual):
        first = part.first * part.length * itemsize
        norm = arguments.Norm(
            result=made[0].memory.address + first, source=x.address + part.offsets[0] * itemsize,
            sum=NOWHERE if residual is None else made[1].memory.address + first,
            residual=NOWHERE if residual is None else residual.address + part.offsets[1] * itemsize,
            weight=scale, bias=shift, epsilon=epsilon, share=share,
        )  # fmt: skip
        if part.team:
            packed = arguments.norm_held(
                norm=norm, rows=part.rows, length=part.length, team=part.team, is_centered=is_centered,
                geometry=part.geometry,
            )  # fmt: skip
            device.kernels.launch("norm", f"{name}_{part.kernel}", part.blocks, packed)
            continue
        parts = device.allocate(part.rows * part.splits * _KNOWN * x.dtype.compute.itemsize)
        packed = arguments.norm_long(
            norm=norm, parts=parts.address, rows=part.rows, length=part.length, splits=part.splits, chunk=part.chunk,
            is_centered=is_centered, geometry=part.geometry,
        )  # fmt: skip
        if part.splits > 1:
            device.kernels.launch("norm", f"{name}_measure", part.blocks, packed)
        device.kernels.launch("norm", f"{name}_long", part.blocks, packed)
    return tuple(made)
