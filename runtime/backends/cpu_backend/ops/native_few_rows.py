"""Products of a few rows by the kernels for the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .....dtype import DType
from .....kernels import host_arguments
from ....core.layout import Layout
from ....host.weights import FEW_ROWS
from ....program.values import NOWHERE
from ...array_backend.ops.operand import Operand
from ..kernels import THREADS, Result, Scratch
from .native import by_plan, source_of

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage


@by_plan
def linear(kernels: HostKernels, x: Operand, weight: Operand, bias: Operand | None) -> Callable[..., CpuStorage] | None:
    """As `matmul.linear`; None where BLAS does it."""
    return _plan(kernels, x, weight, bias)


@by_plan
def matmul(
    kernels: HostKernels, lhs: Operand, rhs: Operand, bmnk: tuple[int, int, int, int]
) -> Callable[..., CpuStorage] | None:
    """As `matmul.matmul`; None where BLAS does it."""
    batches, m, n, k = bmnk
    x = Layout((m, k), lhs.layout.strides[-2:], lhs.layout.start_offset)
    weight = Layout((n, k), rhs.layout.strides[:-3:-1], rhs.layout.start_offset)
    return _plan(kernels, Operand(lhs.storage, x), Operand(rhs.storage, weight), None) if batches == 1 else None


def _plan(kernels: HostKernels, x: Operand, weight: Operand, bias: Operand | None) -> Callable[..., CpuStorage] | None:
    (rows, length), outputs, dtype = x.layout.shape, weight.layout.shape[0], x.dtype
    strides = weight.layout.strides
    if rows > FEW_ROWS or 1 not in strides or 0 in (rows, length, outputs):
        return None
    name = "product" if strides[1] == 1 else "product_of_columns"
    kernel = kernels.address("host_few_rows", f"{name}_{dtype.value}")
    if kernel is None or not x.layout.is_contiguous or not (bias is None or bias.layout.is_contiguous):
        return None
    packed = host_arguments.few_rows(
        result=Result(rows * outputs, dtype), x=source_of(x, 0), matrix=source_of(weight, 1),
        bias=NOWHERE if bias is None else source_of(bias, 2),
        held=NOWHERE if dtype.compute is dtype else Scratch(rows * length, DType.F32), run_parts=kernels.run_parts,
        rows=rows, outputs=outputs, length=length, step=strides[0 if strides[1] == 1 else 1] * dtype.itemsize,
        threads=THREADS,
    )  # fmt: skip
    return kernels.call(kernel, packed, weight.storage)
