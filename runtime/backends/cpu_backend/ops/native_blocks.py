"""Weights in blocks by the kernels for the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from .....dtype import Array, DType
from .....kernels import host_arguments
from ....helpers.host_memory import require_room, tells_lack_of_memory
from ....helpers.threads import get_threads
from ....host import cast
from ....host.array import contiguous
from ....host.weights import FEW_ROWS
from ....program.values import NOWHERE
from ...array_backend.ops.operand import Operand
from ..kernels import THREADS, Result, Scratch, Source, table
from . import quantized
from .matmul import multiply
from .native import by_plan

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage, QCpuStorage

# Weights that each thread decodes at a time for a product by BLAS.
_DECODED: Final = 1 << 18
# What a rounded number of x takes, with its part of what 32 of them share.
_ROUNDED_BYTES: Final = 3


@by_plan
def forward(
    kernels: HostKernels, blocks: QCpuStorage, x: Operand, outputs: int, length: int, activations: str | None
) -> Callable[..., CpuStorage] | None:
    """As `quantized.forward`."""
    rows, dtype, layout = x.layout.shape[0], x.dtype, x.layout
    if 0 in (rows, length, outputs):
        return None
    if activations is None and rows > FEW_ROWS:
        return _by_library(kernels, x, outputs, length)
    is_plain = dtype is DType.F32 and layout.is_contiguous
    result, weights = Result(rows * outputs, DType.F32), Source(0, 0)
    source = Source(1, 4 * layout.start_offset * is_plain)
    if blocks.block_size == 1:
        packed = host_arguments.few_rows(
            result=result, x=source, matrix=weights, bias=NOWHERE, held=NOWHERE, run_parts=kernels.run_parts,
            rows=rows, outputs=outputs, length=length, step=length * blocks.dtype.type_size, threads=THREADS,
        )  # fmt: skip
        kernel = kernels.address("host_few_rows", f"block_product_{blocks.dtype.value}")
    else:
        name = "block_product" if activations is None else "rounded_product"
        scratch = NOWHERE if activations is None else Scratch(_ROUNDED_BYTES * rows * length, DType.U8)
        packed = host_arguments.block_rows(
            result=result, x=source, blocks=weights, scratch=scratch, run_parts=kernels.run_parts, rows=rows,
            outputs=outputs, length=length, threads=THREADS,
        )  # fmt: skip
        kernel = kernels.address("host_blocks", f"{name}_{blocks.dtype.value}")
    if kernel is None:
        return None
    call = kernels.call(kernel, packed, x.storage, products=rows * outputs * length)
    if is_plain:
        return call

    @tells_lack_of_memory
    def run(blocks: QCpuStorage, x: CpuStorage) -> CpuStorage:
        made: CpuStorage = call(blocks, x.result(contiguous(cast.widen(x.array(layout), dtype)), DType.F32))
        return made if dtype is DType.F32 else made.result(cast.narrow(made.data, dtype), dtype)

    return run


def _by_library(kernels: HostKernels, x: Operand, outputs: int, length: int) -> Callable[..., CpuStorage]:
    """Products by BLAS with a part of the weights after the other."""
    rows, dtype, layout = x.layout.shape[0], x.dtype, x.layout
    require_room((rows, outputs), DType.F32)

    @tells_lack_of_memory
    def run(blocks: QCpuStorage, x: CpuStorage) -> CpuStorage:
        wide, result = cast.widen(x.array(layout), dtype), np.empty((rows, outputs), np.float32)
        step = max(_DECODED * get_threads() // length, 1)
        every = blocks.bytes.reshape(outputs, -1)
        held = np.empty((min(step, outputs), length), np.float32)
        for begin in range(0, outputs, step):
            part = every[begin : begin + step]
            weights = held[: len(part)]
            _decode(kernels, blocks, part, weights)
            result[:, begin : begin + step] = multiply(wide, weights.T)
        made: CpuStorage = x.result(cast.narrow(result, dtype), dtype)
        return made

    return run


@by_plan
def dequantize(kernels: HostKernels, _blocks: QCpuStorage, elem_count: int) -> Callable[..., CpuStorage] | None:
    """As `quantized.dequantize`."""
    require_room((elem_count,), DType.F32)

    @tells_lack_of_memory
    def run(blocks: QCpuStorage) -> CpuStorage:
        return quantized.storage_of(blocks, _decoded(kernels, blocks, blocks.bytes))

    return run


@by_plan
def embedding(
    kernels: HostKernels, _blocks: QCpuStorage, ids: Operand, rows: int, hidden: int
) -> Callable[..., CpuStorage] | None:
    """As `quantized.embedding`."""
    layout = ids.layout
    require_room((*layout.shape, hidden), DType.F32)

    @tells_lack_of_memory
    def run(blocks: QCpuStorage, ids: CpuStorage) -> CpuStorage:
        chosen = quantized.chosen_rows(blocks, Operand(ids, layout), rows, hidden)
        return quantized.storage_of(blocks, _decoded(kernels, blocks, chosen))

    return run


def _decoded(kernels: HostKernels, blocks: QCpuStorage, data: Array) -> Array:
    weights = np.empty(data.size // blocks.dtype.type_size * blocks.block_size, np.float32)
    _decode(kernels, blocks, data, weights)
    return weights


def _decode(kernels: HostKernels, blocks: QCpuStorage, data: Array, weights: Array) -> None:
    """Write the weights, in f32, of the blocks that an array of bytes holds."""
    kernel = kernels.kernel("host_blocks", f"decode_{blocks.dtype.value}")
    assert kernel is not None, "each format has this kernel"
    kernel(host_arguments.decode_weights(
        result=table(weights), blocks=table(data), run_parts=kernels.run_parts, count=weights.size,
        threads=get_threads(),
    ))  # fmt: skip
