"""Norms that write rows for products with block-quantized weights."""

from __future__ import annotations

from typing import Final

from .....kernels import arguments
from ....program.builder import ProgramBuilder
from ....program.values import Address, Buffer, Operand, address_of
from ...numbers import element_bits
from .row import broadcast
from .row_launches import in_rows

_FAMILY: Final = "make_x"
# The operands of a kernel; the vectors of a row that a thread may have; and the fewest threads of a row: 8 side by side
# find the largest of 32 elements.
_OPERANDS: Final = 3
_VECTORS: Final = (2, 4)
_MIN_SUBGROUP: Final = 8


def rms_norm_by(
    build: ProgramBuilder,
    kernel: str,
    x: Operand,
    weight: Operand | None,
    residual: Operand | None,
    eps: float,
    result: Address,
    together: int,
) -> tuple[Buffer, ...] | None:
    """Write the result of `rms_norm` to an address, as products with block-quantized weights read it.

    So many rows are interleaved there. This gives the sum, where there is one; None for rows that take too few or too
    many threads.
    """
    operands = [broadcast(operand, x, len(x.shape) - 1) for operand in (x, weight, residual)]
    rows = in_rows(build, x.dtype, operands, _OPERANDS)
    launch, *others = rows.launches
    vectors = next((count for count in _VECTORS if launch.kernel == f"vector{count}"), 0)
    if others or not vectors or launch.subgroup_size < _MIN_SUBGROUP:
        return None
    sums = () if residual is None else (build.empty(x.dtype, x.layout.elem_count),)
    packed = arguments.make_normed_x(
        result=result, results=[0, address_of(sums[0] if sums else None)],
        sources=[address_of(operand) for operand in rows.operands], parameters=[element_bits(eps, x.dtype)],
        rows=launch.rows, length=x.shape[-1], varying=rows.varying, per_row=rows.per_row,
        subgroup_size=launch.subgroup_size, chunk=launch.chunk, together=together, geometry=launch.geometry,
    )  # fmt: skip
    build.launch(_FAMILY, f"rms_norm_{kernel}_vector{vectors}", launch.blocks * vectors, packed)
    return sums
