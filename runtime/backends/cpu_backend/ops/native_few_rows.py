"""Products of a few rows by the kernels for the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....dtype import DType
from .....kernels import host_arguments
from ....host.weights import FEW_ROWS
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Address, Buffer, Operand, address_of
from ..values import RUN_PARTS, THREADS

if TYPE_CHECKING:
    from ..kernels import HostKernels


def linear(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, weight: Operand, bias: Operand | None
) -> Buffer | None:
    """As `matmul.linear`; None where BLAS does it."""
    if not supports(kernels, x, weight, bias):
        return None
    result = build.empty(x.dtype, x.shape[0] * weight.shape[0])
    multiply(build, x, weight, bias, result.address)
    return result


def supports(kernels: HostKernels, x: Operand, weight: Operand, bias: Operand | None) -> bool:
    """Return True if `multiply` takes these operands."""
    (rows, length), outputs = x.shape, weight.shape[0]
    return (
        rows <= FEW_ROWS
        and 1 in weight.strides
        and 0 not in (rows, length, outputs)
        and kernels.has("host_few_rows", _kernel(weight))
        and all(each is None or each.layout.is_contiguous for each in (x, bias))
    )


def multiply(build: ProgramBuilder, x: Operand, weight: Operand, bias: Operand | None, result: Address) -> None:
    """Write the product of x (rows, length) and the transposed weight (outputs, length), plus a bias, to an address."""
    (rows, length), outputs, strides, dtype = x.shape, weight.shape[0], weight.strides, x.dtype
    x_floats = NULL if dtype.compute is dtype else build.empty(DType.F32, rows * length).address
    packed = host_arguments.few_rows(
        result=result, x=x.address, matrix=weight.address, bias=address_of(bias), x_floats=x_floats,
        run_parts=RUN_PARTS, rows=rows, outputs=outputs, length=length,
        step=strides[0 if strides[1] == 1 else 1] * dtype.itemsize, threads=THREADS,
    )  # fmt: skip
    build.launch("host_few_rows", _kernel(weight), 1, packed, work=weight.layout.elem_count)


def _kernel(weight: Operand) -> str:
    return f"{'product' if weight.strides[1] == 1 else 'product_of_columns'}_{weight.dtype.value}"


def matmul(
    build: ProgramBuilder, kernels: HostKernels, lhs: Operand, rhs: Operand, bmnk: tuple[int, int, int, int]
) -> Buffer | None:
    """As `matmul.matmul`; None where BLAS does it."""
    batches, m, n, k = bmnk
    if batches != 1:
        return None
    return linear(
        build, kernels, lhs.as_strided((m, k), lhs.strides[-2:]), rhs.as_strided((n, k), rhs.strides[:-3:-1]), None
    )
