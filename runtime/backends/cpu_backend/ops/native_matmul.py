"""Matrix products by the kernels for the host."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from .....dtype import Array
from .....kernels import host_arguments
from ....core.layout import Layout
from ....program.builder import ProgramBuilder
from ....program.values import Address, Buffer, Constant, Operand, address_of
from ..values import PRODUCTS, RUN_PARTS, THREADS
from .epilogue import NO_EPILOGUE, Epilogue
from .native import contiguous

if TYPE_CHECKING:
    from ..kernels import HostKernels

# Up to this many products are computed here rather than by BLAS: its threads start slowly, and one is no faster.
_FEW_PRODUCTS: Final = 1 << 27


def linear(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, weight: Operand, bias: Operand | None
) -> Buffer | None:
    """As `matmul.linear`; None where BLAS does it."""
    (m, k), n = x.shape, weight.shape[0]
    return matmul(build, kernels, x, weight.as_strided((k, n), weight.strides[::-1]), (1, m, n, k), bias)


def matmul(
    build: ProgramBuilder,
    kernels: HostKernels,
    lhs: Operand,
    rhs: Operand,
    bmnk: tuple[int, int, int, int],
    bias: Operand | None = None,
    epilogue: Epilogue = NO_EPILOGUE,
    channels_are_columns: bool = False,
) -> Buffer | None:
    """As `matmul.matmul`, plus a bias in each row and an epilogue; None where BLAS does it."""
    batches, m, n, _ = bmnk
    dtype, products, kernel = lhs.dtype, math.prod(bmnk), f"matmul_{lhs.dtype.value}"
    if (
        not kernels.has("host_product", kernel)
        or products == 0
        or (dtype.compute is dtype and products > _FEW_PRODUCTS)
    ):
        return None
    if bias is not None:
        bias = contiguous(build, bias)
    result = build.empty(dtype, batches * m * n)
    multiply(build, lhs, rhs, bmnk, bias, result.address, epilogue, channels_are_columns)
    return result


def multiply(
    build: ProgramBuilder,
    lhs: Operand,
    rhs: Operand,
    bmnk: tuple[int, int, int, int],
    bias: Operand | None,
    result: Address,
    epilogue: Epilogue = NO_EPILOGUE,
    channels_are_columns: bool = False,
) -> None:
    """Write nonempty products to an address."""
    batches, m, n, k = bmnk
    # Where in their storages matrices begin, the tables say.
    packed = host_arguments.multiply_matrices(
        result=result, lhs=lhs.storage.address, rhs=rhs.storage.address, bias=address_of(bias),
        run_parts=RUN_PARTS, threads=THREADS, lhs_begins=Constant(_begins(lhs.layout)).address,
        rhs_begins=Constant(_begins(rhs.layout)).address, batches=batches, m=m, n=n, k=k,
        lhs_strides=lhs.strides[-2:], rhs_strides=rhs.strides[-2:], **epilogue.fields(),
        channels_are_columns=int(channels_are_columns),
    )  # fmt: skip
    work = max(math.prod(bmnk) // PRODUCTS, lhs.layout.elem_count, rhs.layout.elem_count)
    build.launch("host_product", f"matmul_{lhs.dtype.value}", 1, packed, work=work)


def _begins(layout: Layout) -> Array:
    """Where in a storage each matrix of a layout begins."""
    begins = np.full((1,), layout.start_offset, np.int64)
    for size, stride in zip(layout.shape[:-2], layout.strides[:-2], strict=True):
        begins = np.add.outer(begins, np.arange(size) * stride).reshape(-1)
    return begins
