"""Products of a few rows by the kernels for the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....dtype import DType
from .....kernels import host_arguments
from ....host.weights import FEW_ROWS
from ....program.builder import ProgramBuilder
from ....program.values import NOWHERE, Buffer, Operand, address_of
from ..values import RUN_PARTS, THREADS

if TYPE_CHECKING:
    from ..kernels import HostKernels


def linear(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, weight: Operand, bias: Operand | None
) -> Buffer | None:
    """As `matmul.linear`; None where BLAS does it."""
    (rows, length), outputs, dtype = x.shape, weight.shape[0], x.dtype
    strides = weight.strides
    if rows > FEW_ROWS or 1 not in strides or 0 in (rows, length, outputs):
        return None
    kernel = f"{'product' if strides[1] == 1 else 'product_of_columns'}_{dtype.value}"
    if not kernels.has("host_few_rows", kernel) or not all(
        each is None or each.layout.is_contiguous for each in (x, bias)
    ):
        return None
    result = build.empty(dtype, rows * outputs)
    held = NOWHERE if dtype.compute is dtype else build.empty(DType.F32, rows * length).address
    packed = host_arguments.few_rows(
        result=result.address, x=x.address, matrix=weight.address, bias=address_of(bias), held=held,
        run_parts=RUN_PARTS, rows=rows, outputs=outputs, length=length,
        step=strides[0 if strides[1] == 1 else 1] * dtype.itemsize, threads=THREADS,
    )  # fmt: skip
    build.launch("host_few_rows", kernel, 1, packed, work=weight.layout.elem_count)
    return result


def matmul(
    build: ProgramBuilder, kernels: HostKernels, lhs: Operand, rhs: Operand, bmnk: tuple[int, int, int, int]
) -> Buffer | None:
    """As `matmul.matmul`; None where BLAS does it."""
    batches, m, n, k = bmnk
    if batches != 1:
        return None
    return linear(build, kernels, lhs.relaid((m, k), lhs.strides[-2:]), rhs.relaid((n, k), rhs.strides[:-3:-1]), None)
