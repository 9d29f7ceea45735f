"""Weights in blocks on the CPU: what they are decoded to, and products with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .....dtype import Array, DType
from .....ggml_dtype import GgmlDType
from ....core.layout import Layout
from ....helpers.host_memory import require_room, tells_lack_of_memory
from ....host import cast
from ....host.quantize import quantized
from ....host.weights import FEW_ROWS, ROUNDED, common, decode, rounded
from ...array_backend.ops.operand import Operand
from . import index
from .matmul import multiply

if TYPE_CHECKING:
    from ..device import CpuDevice
    from ..storage import QCpuStorage

# Weights that are decoded at a time, so that intermediate results stay in the processor's cache.
_CHUNK: Final = 1 << 16


@tells_lack_of_memory
def zeros(device: CpuDevice, elem_count: int, dtype: GgmlDType) -> QCpuStorage:
    """Blocks of zero bytes."""
    return device.blocks_class(device, dtype, np.zeros(elem_count // dtype.block_size * dtype.type_size, np.uint8))


@tells_lack_of_memory
def from_data(device: CpuDevice, data: Array, dtype: GgmlDType) -> QCpuStorage:
    """A copy of blocks."""
    return device.blocks_class(device, dtype, data.reshape(-1).copy())


@tells_lack_of_memory
def quantize(blocks: QCpuStorage, source: Operand) -> None:
    """Replace the weights with those of the source."""
    blocks.bytes[...] = quantized(source.array.reshape(-1), blocks.dtype)
    blocks.weights = None


@tells_lack_of_memory
def dequantize(blocks: QCpuStorage, _elem_count: int) -> Any:
    """The weights in f32."""
    return _storage(blocks, decode(blocks.bytes, blocks.dtype))


@tells_lack_of_memory
def dequantize_f16(blocks: QCpuStorage, _elem_count: int) -> Any:
    """The weights in f16."""
    return _storage(blocks, cast.narrow(decode(blocks.bytes, blocks.dtype), DType.F16), DType.F16)


@tells_lack_of_memory
def embedding(blocks: QCpuStorage, ids: Operand, rows: int, hidden: int) -> Any:
    """The rows that the vector `ids` names; at a mark those of zero bytes."""
    require_room((*ids.layout.shape, hidden), DType.F32)
    size = hidden // blocks.block_size * blocks.dtype.type_size
    every = Operand(_storage(blocks, blocks.bytes, DType.U8), Layout.contiguous((rows, size)))
    return _storage(blocks, decode(index.select_rows("embedding", every, ids, 0).data, blocks.dtype))


@tells_lack_of_memory
def forward(blocks: QCpuStorage, x: Operand, rows: int, hidden: int, save_memory: bool, activations: str | None) -> Any:
    """The product of x (m, hidden) and the transpose of the weights (rows, hidden), in the dtype of x."""
    require_room((x.layout.shape[0], rows), DType.F32)
    wide = cast.widen(x.array, x.dtype)
    if not save_memory and blocks.weights is None:
        blocks.weights = decode(blocks.bytes, blocks.dtype)
    rest = None
    if activations is not None and 0 < len(wide) <= FEW_ROWS:
        wide, rest = rounded(wide)
    every = blocks.bytes.reshape(rows, hidden // blocks.block_size * blocks.dtype.type_size)
    result = np.empty((len(wide), rows), np.float32)
    # All at once where the weights are decoded, and nothing else is made of them.
    is_whole = blocks.weights is not None and rest is None
    step = max(rows if is_whole else _CHUNK // max(hidden, 1), 1)
    for begin in range(0, rows, step):
        part = every[begin : begin + step]
        if blocks.weights is None:
            weights = decode(part.reshape(-1), blocks.dtype).reshape(len(part), hidden)
        else:
            weights = blocks.weights.reshape(rows, hidden)[begin : begin + step]
        if rest is None:
            made = _product(wide, weights)
        else:
            made = _precise_product(wide, weights)
            if blocks.block_size == ROUNDED:
                factors = common(part.reshape(-1), blocks.dtype).reshape(len(part), hidden // ROUNDED)
                made += _precise_product(rest, factors)
        result[:, begin : begin + step] = made
    return x.result(cast.narrow(result, x.dtype))


def _product(x: Array, weights: Array) -> Array:
    if len(x) > FEW_ROWS:
        return multiply(x, weights.T)
    return np.stack([multiply(weights, row) for row in np.ascontiguousarray(x)]) if len(x) else x[:, :0] @ weights.T[:0]


def _precise_product(x: Array, weights: Array) -> Array:
    """Sums of f64: BLAS adds up in another order on each kind of processor, which those of f32 would show."""
    return _product(x.astype(np.float64), weights.astype(np.float64)).astype(np.float32)


def _storage(blocks: QCpuStorage, data: Array, dtype: DType = DType.F32) -> Any:
    return blocks.device.storage_class(blocks.device, dtype, data)
