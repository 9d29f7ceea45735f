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
from ...array_backend.ops.operand import Operand
from ..kernels import Result, Source
from .native import by_plan

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
    dtype, packer = lhs.dtype, host_arguments.MULTIPLY_MATRICES
    kernel = kernels.address("host_product", f"matmul_{dtype.value}")
    require_room(bmnk[:3], dtype)
    count = batches * m * n
    if kernel is None or count * k == 0 or (dtype.compute is dtype and count * k > _FEW_PRODUCTS):
        return None
    if bias is not None and bias.layout.strides != (1,):
        return None
    begins = [_begins(operand.layout) for operand in (lhs, rhs)]
    places = [array.ctypes.data for array in begins]
    strides = *lhs.layout.strides[-2:], *rhs.layout.strides[-2:]
    packed = packer.pack(*(0,) * 4, kernels.run_parts, 1, *places, *bmnk, *strides)
    sources = [Source(packer.places["lhs"], 0, 0), Source(packer.places["rhs"], 0, 1)]
    if bias is not None:
        sources.append(Source(packer.places["bias"], bias.layout.start_offset * dtype.itemsize, 2))
    larger = max(lhs.storage, rhs.storage, key=lambda storage: int(storage.length))
    result = Result(packer.places["result"], count, dtype)
    return kernels.call(kernel, packer, packed, larger, result, sources, kept=begins, products=math.prod(bmnk))


def _begins(layout: Layout) -> Array:
    """Where in a storage each matrix of a layout begins."""
    begins = np.full((1,), layout.start_offset, np.int64)
    for size, stride in zip(layout.shape[:-2], layout.strides[:-2], strict=True):
        begins = np.add.outer(begins, np.arange(size) * stride).reshape(-1)
    return begins
