"""Losses of rows at their targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, REDUCE_IN_FLIGHT
from ....kernels.argument_struct import NOWHERE
from ..utils import ceil_divide, power_of_two
from . import index, rows
from .operand import Operand

if TYPE_CHECKING:
    from ..storage import GpuStorage

# What the measure kernel knows of a part: so many numbers of the compute dtype.
_KNOWN: Final = 2


def cross_entropy(x: Operand, targets: Operand, dim: int, ignored: int) -> tuple[GpuStorage, GpuStorage]:
    """Minus log_softmax at each target along `dim`, and 1 where a target counts."""
    device, compute = x.device, x.dtype.compute
    losses, counted = (device.empty(compute, targets.layout.elem_count) for _ in range(2))
    if losses.length == 0:
        return losses, counted
    given = index.Rows.of("cross_entropy", targets, x.shape[dim])
    x = rows.in_rows(rows.moved_last(x, dim))
    name = f"cross_entropy_{x.dtype.value}"
    # A thread has as many accesses of a row in flight as it can, before more threads take it.
    for part in rows.launches("cross_entropy", REDUCE_IN_FLIGHT, x, targets.relaid(x.shape, (*targets.strides, 0))):
        team = min(power_of_two(ceil_divide(part.length * x.itemsize, ACCESS_BYTES * REDUCE_IN_FLIGHT)), BLOCK_SIZE)
        parts = device.allocate(part.rows * part.splits * _KNOWN * compute.itemsize) if part.splits > 1 else None
        packed = arguments.cross_entropy(
            result=losses.memory.address + part.first * compute.itemsize,
            counted=counted.memory.address + part.first * compute.itemsize,
            source=x.address + part.offsets[0] * x.itemsize, parts=parts.address if parts else NOWHERE,
            indexes=targets.address + part.offsets[1] * targets.itemsize, index=given.fields, rows=part.rows,
            ignored=ignored if abs(ignored) < 1 << 63 else given.fields.index_mark, length=part.length, team=team,
            splits=part.splits, chunk=part.chunk, geometry=part.geometry,
        )  # fmt: skip
        if parts:
            device.kernels.launch("cross_entropy", f"{name}_measure", part.blocks, packed)
        device.kernels.launch("cross_entropy", name, ceil_divide(part.rows * team, BLOCK_SIZE), packed)
        device.index_errors.expect()
    return losses, counted
