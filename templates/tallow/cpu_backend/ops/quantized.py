"""Weights in blocks on the CPU: what they are decoded to, and products with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ...dtype import Array, DType
from ...ggml_dtype import GgmlDType
from ...host_memory import require_room, tells_lack_of_memory
from ...layout import Layout
from . import cast, index
from .blocks import DECODERS
from .matmul import multiply
from .operand import Operand
from .quantize import nearest, quantized

if TYPE_CHECKING:
    from ..device import CpuDevice
    from ..storage import CpuStorage, QCpuStorage

# So many weights are decoded at a time, so that what is between the steps stays in the processor's cache.
_CHUNK: Final = 1 << 16
# Up to so many rows are multiplied one by one, so that a row has the same sums alone and among others.
FEW_ROWS: Final = 8
"""Of x, which may be rounded."""
# So many numbers of x are rounded together.
ROUNDED: Final = 32
"""They share a scale."""
# The fields of the bits of quants.
_QUANTS: Final = ("qs", "qh")


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
def dequantize(blocks: QCpuStorage, _elem_count: int) -> CpuStorage:
    """The weights in f32."""
    return _storage(blocks, decode(blocks.bytes, blocks.dtype))


@tells_lack_of_memory
def dequantize_f16(blocks: QCpuStorage, _elem_count: int) -> CpuStorage:
    """The weights in f16."""
    return _storage(blocks, cast.narrow(decode(blocks.bytes, blocks.dtype), DType.F16), DType.F16)


@tells_lack_of_memory
def embedding(blocks: QCpuStorage, ids: Operand, rows: int, hidden: int) -> CpuStorage:
    """The rows that the vector `ids` names; at a mark those of zero bytes."""
    require_room((*ids.layout.shape, hidden), DType.F32)
    size = hidden // blocks.block_size * blocks.dtype.type_size
    every = Operand(_storage(blocks, blocks.bytes, DType.U8), Layout.contiguous((rows, size)))
    return _storage(blocks, decode(index.select_rows("embedding", every, ids, 0).data, blocks.dtype))


@tells_lack_of_memory
def forward(
    blocks: QCpuStorage, x: Operand, rows: int, hidden: int, save_memory: bool, activations: str | None
) -> CpuStorage:
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
    # All at once where the weights are decoded.
    step = max(_CHUNK // max(hidden, 1) if blocks.weights is None else rows, 1)
    for begin in range(0, rows, step):
        part = every[begin : begin + step]
        weights = decode(part.reshape(-1), blocks.dtype) if blocks.weights is None else blocks.weights
        made = _product(wide, weights.reshape(len(part), hidden))
        if rest is not None and blocks.block_size == ROUNDED:
            made += _product(rest, common(part.reshape(-1), blocks.dtype).reshape(len(part), hidden // ROUNDED))
        result[:, begin : begin + step] = made
    return x.result(cast.narrow(result, x.dtype))


def _product(x: Array, weights: Array) -> Array:
    if len(x) > FEW_ROWS:
        return multiply(x, weights.T)
    return np.stack([multiply(weights, row) for row in np.ascontiguousarray(x)]) if len(x) else x[:, :0] @ weights.T[:0]


def rounded(x: Array) -> tuple[Array, Array]:
    """Rows of x as Q8_1 has them, and of each 32 by how much the sum is more."""
    groups = x.reshape(len(x), x.shape[1] // ROUNDED, ROUNDED)
    with np.errstate(all="ignore"):
        scale = abs(groups).max(-1, keepdims=True) / np.float32(127)
        quants = np.nan_to_num(nearest(groups / scale), posinf=0, neginf=0)
        rounded = quants * scale.astype(np.float16).astype(np.float32)
        return rounded.reshape(x.shape), groups.sum(-1) - rounded.sum(-1)


def common(data: Array, format: GgmlDType) -> Array:
    """What all weights of a block have in common: those of a quant of no bits."""
    blocks = data.view(format.numpy).copy()
    for name in _QUANTS:
        if name in (blocks.dtype.names or ()):
            blocks[name] = 0
    return decode(blocks.view(np.uint8), format)[:: format.block_size]


def _storage(blocks: QCpuStorage, data: Array, dtype: DType = DType.F32) -> CpuStorage:
    return blocks.device.storage_class(blocks.device, dtype, data)


def decode(data: Array, format: GgmlDType) -> Array:
    """The weights, in f32, of the blocks that an array of bytes holds, rounded once: the same bits as on a GPU."""
    blocks = data.view(format.numpy)
    result = np.empty((blocks.size, format.block_size), np.float32)
    step = max(_CHUNK // format.block_size, 1)
    # A scale may be infinite.
    with np.errstate(invalid="ignore", over="ignore"):
        for begin in range(0, blocks.size, step):
            _decode(blocks[begin : begin + step], format, result[begin : begin + step])
    return result.reshape(-1)


def _decode(blocks: Array, format: GgmlDType, out: Array) -> None:
    """Write the weights of blocks, a row for each."""
    decoder = DECODERS[format]
    places = np.arange(format.block_size, dtype=np.int16)
    groups = places[: format.block_size // decoder.group]
    shape = (len(blocks), len(groups), decoder.group)
    quants = decoder.quant(blocks, places).reshape(shape)
    if decoder.scale is None:
        np.copyto(out.reshape(shape), quants)
        return
    np.multiply(quants, decoder.scale(blocks, groups)[:, :, None], out=out.reshape(shape))
    if decoder.offset is not None:
        out.reshape(shape)[...] += decoder.offset(blocks, groups)[:, :, None]
