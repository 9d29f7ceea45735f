"""Scans by the kernels for the host."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from .....dtype import DType
from .....kernels import host_arguments
from .....op import MethodOp
from ....program.builder import ProgramBuilder
from ....program.values import Operand, address_of
from ..values import RUN_PARTS, THREADS
from .native import contiguous

if TYPE_CHECKING:
    from ..kernels import HostKernels

_SUM: Final = "cumsum"
_MAX_POSITIONS: Final = (1 << 32) - 1


def scan(
    build: ProgramBuilder,
    kernels: HostKernels,
    op: MethodOp,
    x: Operand,
    dim: int,
    reverse: bool,
    exclusive: bool = False,
) -> Any:
    """As `scan.scan`; None where NumPy does it."""
    length, inner, dtype = x.shape[dim], math.prod(x.shape[dim + 1 :]), x.dtype
    if op.value == _SUM and dtype is DType.COMPLEX128 and inner > 1:
        # Sums of both parts: compilers join lines of real numbers without moving these between lanes.
        inner, dtype = 2 * inner, dtype.real
    kernel = f"{op.value}_{dtype.value}"
    if x.layout.elem_count == 0 or not kernels.has("host_scan", kernel):
        return None
    if op.gives_positions and length > _MAX_POSITIONS:
        return None
    result = build.empty(op.result_of(x.dtype), x.layout.elem_count)
    positions = build.empty(DType.U32, result.length) if op.gives_positions else None
    packed = host_arguments.scan_lines(
        result=result.address, positions=address_of(positions),
        source=contiguous(build, x).address, run_parts=RUN_PARTS, rows=math.prod(x.shape[:dim]), length=length,
        inner=inner, threads=THREADS, reverse=reverse, exclusive=exclusive, parameters=(),
    )  # fmt: skip
    build.launch("host_scan", kernel, 1, packed)
    return result if positions is None else (result, positions)
