"""Block-quantized weights on the CPU: decoding them, and products with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..... import results
from .....dtype import Array, DType
from .....ggml_dtype import GgmlDType
from ....core.layout import Layout
from ....helpers.host_memory import require_memory, zero_bytes
from ....host import cast
from ....host.quantize import quantized
from ....host.weights import FEW_ROWS, decode, rounded
from ...array_backend.ops.operand import Operand
from . import index
from .matmul import multiply

if TYPE_CHECKING:
    from ..device import CpuDevice
    from ..storage import CpuStorage, QCpuStorage

# Weights that are decoded at a time, so that intermediate results stay in the processor's cache.
_CHUNK: Final = 1 << 16


def zeros(device: CpuDevice, elem_count: int, dtype: GgmlDType) -> QCpuStorage:
    """Blocks of zero bytes."""
    return device.blocks_class(device, dtype, zero_bytes(elem_count // dtype.block_size * dtype.type_size))


def from_data(device: CpuDevice, data: Array, dtype: GgmlDType) -> QCpuStorage:
    """A copy of blocks."""
    return device.blocks_class(device, dtype, data.reshape(-1).copy())


def quantize(blocks: QCpuStorage, source: Operand) -> None:
    """Replace the weights with those of the source."""
    blocks.bytes[...] = quantized(source.array.reshape(-1), blocks.dtype)


def dequantize(blocks: QCpuStorage, _elem_count: int) -> Any:
    """The weights in f32."""
    return storage_of(blocks, decode(blocks.bytes, blocks.dtype))


def dequantize_f16(blocks: QCpuStorage, _elem_count: int) -> Any:
    """The weights in f16."""
    return storage_of(blocks, cast.narrow(decode(blocks.bytes, blocks.dtype), DType.F16), DType.F16)


def embedding(blocks: QCpuStorage, ids: Operand, rows: int, hidden: int) -> Any:
    """The rows that the vector `ids` names; at a mark those of zero bytes."""
    require_memory(*results.embedding(ids, hidden))
    return storage_of(blocks, decode(chosen_rows(blocks, ids, rows, hidden), blocks.dtype))


def chosen_rows(blocks: QCpuStorage, ids: Operand, rows: int, hidden: int) -> Array:
    """The bytes of these rows."""
    size = hidden // blocks.block_size * blocks.dtype.type_size
    every = Operand(storage_of(blocks, blocks.bytes, DType.U8), Layout.contiguous((rows, size)))
    chosen: Array = index.select_rows("embedding", every, ids, 0).data
    return chosen


def forward(blocks: QCpuStorage, x: Operand, rows: int, hidden: int, activations: str | None) -> Any:
    """The product of x (m, hidden) and the transpose of the weights (rows, hidden), in the dtype of x."""
    require_memory(x.dtype, (x.layout.shape[0], rows))
    wide = cast.widen(x.array, x.dtype)
    if activations is not None and len(wide):
        # BLAS adds up in another order on each kind of processor, which sums of f32 would show.
        wide = rounded(wide).astype(np.float64)
    every = blocks.bytes.reshape(rows, hidden // blocks.block_size * blocks.dtype.type_size)
    result = np.empty((len(wide), rows), np.float32)
    step = max(_CHUNK // max(hidden, 1), 1)
    for begin in range(0, rows, step):
        part = every[begin : begin + step]
        weights = decode(part.reshape(-1), blocks.dtype).reshape(len(part), hidden).astype(wide.dtype, copy=False)
        result[:, begin : begin + step] = _product(wide, weights)
    return x.result(cast.narrow(result, x.dtype))


def _product(x: Array, weights: Array) -> Array:
    if len(x) > FEW_ROWS:
        return multiply(x, weights.T)
    return np.stack([multiply(weights, row) for row in np.ascontiguousarray(x)]) if len(x) else x[:, :0] @ weights.T[:0]


def storage_of(blocks: QCpuStorage, data: Array, dtype: DType = DType.F32) -> CpuStorage:
    """A storage of elements on the device of blocks."""
    storage: CpuStorage = blocks.device.storage_class(blocks.device, dtype, data)
    return storage
