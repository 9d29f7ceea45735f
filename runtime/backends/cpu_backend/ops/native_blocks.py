"""Weights in blocks by the kernels for the host."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .....dtype import Array, DType
from .....kernels import host_arguments
from .....op import MethodOp
from ....helpers.host_memory import require_room
from ....helpers.threads import get_threads
from ....host import cast
from ....host.weights import FEW_ROWS
from ....program.builder import ProgramBuilder
from ....program.operand import Operand, StorageOrBuffer, dense
from ....program.steps import HostCall
from ....program.values import NOWHERE, Buffer
from ..kernels import address_of_array
from ..values import PRODUCTS, RUN_PARTS, THREADS
from . import quantized
from .matmul import multiply
from .native import contiguous, elementwise

if TYPE_CHECKING:
    from ..kernels import HostKernels

# Weights that each thread decodes at a time for a product by BLAS.
_DECODED: Final = 1 << 18
# What a rounded number of x takes, with its part of what 32 of them share.
_ROUNDED_BYTES: Final = 3


def forward(
    build: ProgramBuilder,
    kernels: HostKernels,
    blocks: StorageOrBuffer,
    x: Operand,
    outputs: int,
    length: int,
    activations: str | None,
) -> Buffer | HostCall | None:
    """As `quantized.forward`."""
    rows, dtype = x.shape[0], x.dtype
    if 0 in (rows, length, outputs):
        return None
    if activations is None and rows > FEW_ROWS:
        require_room((rows, outputs), DType.F32)
        return build.host(partial(_by_library, kernels), blocks, x, outputs, length)
    by_weight = blocks.block_size == 1
    name = "block_product" if activations is None else "rounded_product"
    family, kernel = "host_few_rows" if by_weight else "host_blocks", f"{name}_{blocks.dtype.value}"
    if not kernels.has(family, kernel):
        return None
    x = contiguous(build, x) if dtype is DType.F32 else _cast(build, kernels, x, DType.F32)
    result = build.empty(DType.F32, rows * outputs)
    if by_weight:
        packed = host_arguments.few_rows(
            result=result.address, x=x.address, matrix=blocks.address, bias=NOWHERE, held=NOWHERE,
            run_parts=RUN_PARTS, rows=rows, outputs=outputs, length=length, step=length * blocks.dtype.type_size,
            threads=THREADS,
        )  # fmt: skip
    else:
        scratch = NOWHERE if activations is None else build.allocate(_ROUNDED_BYTES * rows * length).address
        packed = host_arguments.block_rows(
            result=result.address, x=x.address, blocks=blocks.address, scratch=scratch, run_parts=RUN_PARTS, rows=rows,
            outputs=outputs, length=length, threads=THREADS,
        )  # fmt: skip
    build.launch(family, kernel, 1, packed, work=rows * outputs * length // PRODUCTS)
    if dtype is DType.F32:
        return result
    rounded: Buffer = _cast(build, kernels, dense(result, (rows, outputs)), dtype).storage
    return rounded


def _cast(build: ProgramBuilder, kernels: HostKernels, x: Operand, dtype: DType) -> Operand:
    buffer = elementwise(build, kernels, MethodOp.TO_DTYPE, x, result=dtype)
    assert buffer is not None, "kernels convert all dtypes"
    return dense(buffer, x.shape)


def _by_library(kernels: HostKernels, blocks: Any, x: Operand, outputs: int, length: int) -> Any:
    """Products by BLAS with a part of the weights after the other."""
    wide, result = cast.widen(x.storage.array(x.layout), x.dtype), np.empty((x.shape[0], outputs), np.float32)
    step = max(_DECODED * get_threads() // length, 1)
    every = blocks.bytes.reshape(outputs, -1)
    held = np.empty((min(step, outputs), length), np.float32)
    for begin in range(0, outputs, step):
        part = every[begin : begin + step]
        weights = held[: len(part)]
        _decode(kernels, blocks, part, weights)
        result[:, begin : begin + step] = multiply(wide, weights.T)
    return x.storage.result(cast.narrow(result, x.dtype), x.dtype)


def dequantize(build: ProgramBuilder, kernels: HostKernels, blocks: StorageOrBuffer, elem_count: int) -> HostCall:
    """As `quantized.dequantize`."""
    require_room((elem_count,), DType.F32)
    return build.host(partial(_dequantize, kernels), blocks)


def _dequantize(kernels: HostKernels, blocks: Any) -> Any:
    return quantized.storage_of(blocks, _decoded(kernels, blocks, blocks.bytes))


def embedding(
    build: ProgramBuilder, kernels: HostKernels, blocks: StorageOrBuffer, ids: Operand, rows: int, hidden: int
) -> HostCall:
    """As `quantized.embedding`."""
    require_room((*ids.shape, hidden), DType.F32)
    return build.host(partial(_embedding, kernels), blocks, ids, rows, hidden)


def _embedding(kernels: HostKernels, blocks: Any, ids: Any, rows: int, hidden: int) -> Any:
    return quantized.storage_of(blocks, _decoded(kernels, blocks, quantized.chosen_rows(blocks, ids, rows, hidden)))


def _decoded(kernels: HostKernels, blocks: Any, data: Array) -> Array:
    weights = np.empty(data.size // blocks.dtype.type_size * blocks.block_size, np.float32)
    _decode(kernels, blocks, data, weights)
    return weights


def _decode(kernels: HostKernels, blocks: Any, data: Array, weights: Array) -> None:
    """Write the weights, in f32, of the blocks that an array of bytes holds."""
    # Each format has this kernel.
    kernels.kernel("host_blocks", f"decode_{blocks.dtype.value}")(host_arguments.decode_weights(
        result=address_of_array(weights), blocks=address_of_array(data), run_parts=kernels.address("span", "run_parts"),
        count=weights.size, threads=get_threads(),
    ).template)  # fmt: skip
