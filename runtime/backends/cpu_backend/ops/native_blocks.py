"""Block-quantized weights by the kernels for the host."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..... import results
from .....dtype import Array, DType
from .....kernels import host_arguments
from .....op import MethodOp
from ....helpers.threads import get_threads
from ....host import cast
from ....host.weights import FEW_ROWS
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Buffer, Operand, StorageOrBuffer, dense
from ..kernels import address_of_array
from ..values import PRODUCTS, RUN_PARTS, THREADS
from . import quantized
from .matmul import multiply
from .native import contiguous, elementwise

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

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
) -> Buffer | None:
    """As `quantized.forward`."""
    rows, dtype = x.shape[0], x.dtype
    if 0 in (rows, length, outputs):
        return None
    if activations is None and rows > FEW_ROWS:
        products = build.empty(dtype, rows * outputs)
        build.call(partial(_multiply, kernels), blocks, x, products, outputs, length)
        return products
    by_weight = blocks.block_size == 1
    name = "block_product" if activations is None else "rounded_product"
    family, kernel = "host_few_rows" if by_weight else "host_blocks", f"{name}_{blocks.dtype.value}"
    if not kernels.has(family, kernel):
        return None
    x = contiguous(build, x) if dtype is DType.F32 else _cast(build, kernels, x, DType.F32)
    result = build.empty(DType.F32, rows * outputs)
    if by_weight:
        packed = host_arguments.few_rows(
            result=result.address, x=x.address, matrix=blocks.address, bias=NULL, x_floats=NULL,
            run_parts=RUN_PARTS, rows=rows, outputs=outputs, length=length, step=length * blocks.dtype.type_size,
            threads=THREADS,
        )  # fmt: skip
    else:
        scratch = NULL if activations is None else build.allocate(_ROUNDED_BYTES * rows * length).address
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


def _multiply(kernels: HostKernels, blocks: Any, x: Any, result: CpuStorage, outputs: int, length: int) -> None:
    """Multiply by BLAS with a part of the weights after the other."""
    wide, shape = cast.widen(x.array, x.dtype), (x.shape[0], outputs)
    products = result.data.reshape(shape) if x.dtype is DType.F32 else np.empty(shape, np.float32)
    step = max(_DECODED * get_threads() // length, 1)
    every = blocks.bytes.reshape(outputs, -1)
    decoded = np.empty((min(step, outputs), length), np.float32)
    for begin in range(0, outputs, step):
        part = every[begin : begin + step]
        weights = decoded[: len(part)]
        _decode(kernels, blocks, part, weights)
        products[:, begin : begin + step] = multiply(wide, weights.T)
    if x.dtype is not DType.F32:
        result.data[:] = cast.narrow(products, x.dtype).reshape(-1)


def dequantize(build: ProgramBuilder, _kernels: HostKernels, blocks: StorageOrBuffer, elem_count: int) -> Buffer:
    """As `quantized.dequantize`."""
    result = build.output(results.dequantize(elem_count))
    packed = host_arguments.decode_weights(
        result=result.address, blocks=blocks.address, run_parts=RUN_PARTS, count=elem_count, threads=THREADS
    )
    # Each format has this kernel.
    build.launch("host_blocks", f"decode_{blocks.dtype.value}", 1, packed)
    return result


def embedding(
    build: ProgramBuilder, kernels: HostKernels, blocks: StorageOrBuffer, ids: Operand, rows: int, hidden: int
) -> Buffer:
    """As `quantized.embedding`."""
    result = build.output(results.embedding(ids, hidden))
    build.call(partial(_embed, kernels), blocks, ids, result, rows, hidden)
    return result


def _embed(kernels: HostKernels, blocks: Any, ids: Any, result: CpuStorage, rows: int, hidden: int) -> None:
    _decode(kernels, blocks, quantized.chosen_rows(blocks, ids, rows, hidden), result.data)


def _decode(kernels: HostKernels, blocks: Any, data: Array, weights: Array) -> None:
    """Write the weights, in f32, of the blocks that an array of bytes holds."""
    kernels.kernel("host_blocks", f"decode_{blocks.dtype.value}")(host_arguments.decode_weights(
        result=address_of_array(weights), blocks=address_of_array(data), run_parts=kernels.address("span", "run_parts"),
        count=weights.size, threads=get_threads(),
    ).packed())  # fmt: skip
