"""Block-quantized weights on array libraries: NumPy decodes them, and the library multiplies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .....dtype import Array, DType
from .....ggml_dtype import GgmlDType
from ....helpers.host_memory import zero_bytes
from ....host import cast as host
from ....host.quantize import quantized
from ....host.weights import FEW_ROWS, decode, rounded
from .. import transfer
from ..memory_limit import require_memory
from . import cast, index
from .matmul import multiply
from .operand import Operand

if TYPE_CHECKING:
    from ..blocks import QArrayStorage
    from ..device import ArrayDevice


def zeros(device: ArrayDevice, elem_count: int, dtype: GgmlDType) -> Any:
    """Blocks of zero bytes."""
    return device.blocks_class(device, dtype, zero_bytes(elem_count // dtype.block_size * dtype.type_size))


def from_data(device: ArrayDevice, data: Array, dtype: GgmlDType) -> Any:
    """A copy of blocks."""
    return device.blocks_class(device, dtype, data.reshape(-1).copy())


def quantize(blocks: QArrayStorage, source: Operand) -> None:
    """Replace the weights with those of the source, which NumPy rounds."""
    weights = source.library.reshape(source.array, (-1,))
    blocks.bytes = quantized(transfer.to_numpy(source.library, weights, DType.F32), blocks.dtype)
    blocks.weights = None


def dequantize(blocks: QArrayStorage, _elem_count: int) -> Any:
    """The weights in f32."""
    return _storage(blocks, _weights(blocks, blocks.bytes), DType.F32)


def dequantize_f16(blocks: QArrayStorage, _elem_count: int) -> Any:
    """The weights in f16."""
    return _storage(blocks, _moved(blocks, host.narrow(decode(blocks.bytes, blocks.dtype), DType.F16)), DType.F16)


def embedding(blocks: QArrayStorage, ids: Operand, rows: int, hidden: int) -> Any:
    """The rows that the vector `ids` names; at a mark those of zero bytes."""
    library, count = ids.library, ids.layout.elem_count
    require_memory(blocks.device, (count, hidden), DType.F32)
    # Behind the rows stands that of zero bytes.
    every = np.concatenate([blocks.bytes, np.zeros(hidden // blocks.block_size * blocks.dtype.type_size, np.uint8)])
    weights = library.reshape(_weights(blocks, every), (rows + 1, hidden))
    return _storage(blocks, library.reshape(index.rows_or("embedding", weights, ids, rows), (-1,)), DType.F32)


def forward(blocks: QArrayStorage, x: Operand, rows: int, hidden: int, activations: str | None) -> Any:
    """The product of x (m, hidden) and the transpose of the weights (rows, hidden), in the dtype of x."""
    library, count = x.library, x.layout.shape[0]
    require_memory(blocks.device, (count, rows), DType.F32)
    if blocks.weights is None:
        blocks.weights = _weights(blocks, blocks.bytes)
    wide = cast.widen(library, x.array, x.dtype)
    if activations is not None:
        flat = transfer.to_numpy(library, library.reshape(wide, (-1,)), DType.F32)
        wide = library.reshape(_moved(blocks, rounded(flat.reshape(count, hidden))), (count, hidden))
    result = _product(library, wide, library.reshape(blocks.weights, (rows, hidden)), 0 < count <= FEW_ROWS)
    return x.result(cast.narrow(library, result, x.dtype))


def _product(library: Any, x: Any, weights: Any, is_small: bool) -> Any:
    """Multiply rows one by one if they are few, so that a row has the same sums alone and among others."""
    transposed = library.permute_dims(weights, (1, 0))
    if not is_small:
        return multiply(library, x, transposed)
    return library.concat([multiply(library, x[row : row + 1, :], transposed) for row in range(x.shape[0])], 0)


def _weights(blocks: QArrayStorage, data: Array) -> Any:
    return _moved(blocks, decode(data, blocks.dtype))


def _moved(blocks: QArrayStorage, array: Array) -> Any:
    device = blocks.device
    dtype = DType.from_numpy(array.dtype)
    return transfer.from_numpy(device.library, array, dtype, device.handle)


def _storage(blocks: QArrayStorage, data: Any, dtype: DType) -> Any:
    return blocks.device.storage_class(blocks.device, dtype, data)
