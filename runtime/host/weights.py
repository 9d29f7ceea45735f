"""Block-quantized weights: decoding them, and rows that are multiplied by them."""

from typing import Final

import numpy as np

from ...dtype import Array
from ...ggml_dtype import GgmlDType
from ...host_blocks import DECODERS
from .quantize import nearest

# So many weights are decoded at a time, so that what is between the steps stays in the processor's cache.
_CHUNK: Final = 1 << 16
# Up to this many rows are multiplied one by one, so that a row's sums do not depend on the other rows.
FEW_ROWS: Final = 8
"""Of x, which may be rounded."""
# So many numbers of x are rounded together.
_ROUNDED: Final = 32


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
    positions = np.arange(format.block_size, dtype=np.int16)
    groups = positions[: format.block_size // decoder.group]
    shape = (len(blocks), len(groups), decoder.group)
    quants = decoder.quant(blocks, positions).reshape(shape)
    if decoder.scale is None:
        np.copyto(out.reshape(shape), quants)
        return
    np.multiply(quants, decoder.scale(blocks, groups)[:, :, None], out=out.reshape(shape))
    if decoder.offset is not None:
        out.reshape(shape)[...] += decoder.offset(blocks, groups)[:, :, None]


def rounded(x: Array) -> Array:
    """Rows of x as Q8_1 has them."""
    groups = x.reshape(len(x), x.shape[1] // _ROUNDED, _ROUNDED)
    with np.errstate(all="ignore"):
        scale = abs(groups).max(-1, keepdims=True) / np.float32(127)
        quants = np.nan_to_num(nearest(groups / scale), posinf=0, neginf=0)
        values: Array = quants * scale.astype(np.float16).astype(np.float32)
    return values.reshape(x.shape)
