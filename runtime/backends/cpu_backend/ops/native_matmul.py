"""Matrix products by the kernels for the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from .....dtype import Array
from .....kernels import host_arguments
from ....core.layout import Layout
from ....helpers.host_memory import require_room
from ....program.values import NOWHERE
from ...array_backend.ops.operand import Operand
from ..kernels import THREADS, Result, Source, table
from .native import by_plan, source_of

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

# Up to this many products are computed here rather than by BLAS: its threads start slowly, and one is no faster.
_FEW_PRODUCTS: Final = 1 << 27


@by_plan
def matmul(
    kernels: HostKernels, lhs: Operand, rhs: Operand, bmnk: tuple[int, int, int, int]
) -> Callable[..., CpuStorage] | None:
    """As `matmul.matmul`; None where BLAS does it."""
    return _plan(kernels, lhs, rhs, None, bmnk)


@by_plan
def linear(kernels: HostKernels, x: Operand, weight: Operand, bias: Operand | None) -> Callable[..., CpuStorage] | None:
    """As `matmul.linear`; None where BLAS does it."""
    (m, k), n = x.layout.shape, weight.layout.shape[0]
    return _plan(kernels, x, Operand(weight.storage, weight.layout.transpose(0, 1)), bias, (1, m, n, k))


def _plan(
    kernels: HostKernels, lhs: Operand, rhs: Operand, bias: Operand | None, bmnk: tuple[int, int, int, int]
) -> Callable[..., CpuStorage] | None:
    batches, m, n, k = bmnk
    dtype = lhs.dtype
    kernel = kernels.address("host_product", f"matmul_{dtype.value}")
    require_room(bmnk[:3], dtype)
    count = batches * m * n
    if kernel is None or count * k == 0 or (dtype.compute is dtype and count * k > _FEW_PRODUCTS):
        return None
    if bias is not None and bias.layout.strides != (1,):
        return None
    begins = [_begins(operand.layout) for operand in (lhs, rhs)]
    # Where in their storages matrices begin, the tables say.
    packed = host_arguments.multiply_matrices(
        result=Result(count, dtype), lhs=Source(0, 0), rhs=Source(1, 0),
        bias=NOWHERE if bias is None else source_of(bias, 2), run_parts=kernels.run_parts, threads=THREADS,
        lhs_begins=table(begins[0]), rhs_begins=table(begins[1]), batches=batches, m=m, n=n, k=k,
        lhs_strides=lhs.layout.strides[-2:], rhs_strides=rhs.layout.strides[-2:],
    )  # fmt: skip
    larger = max(lhs.storage, rhs.storage, key=lambda storage: int(storage.length))
    return kernels.call(kernel, packed, larger, kept=begins, products=math.prod(bmnk))


def _begins(layout: Layout) -> Array:
    """Where in a storage each matrix of a layout begins."""
    begins = np.full((1,), layout.start_offset, np.int64)
    for size, stride in zip(layout.shape[:-2], layout.strides[:-2], strict=True):
        begins = np.add.outer(begins, np.arange(size) * stride).reshape(-1)
    return begins
