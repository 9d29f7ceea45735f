"""Blocks of weights on the CPU: what they are decoded to."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...dtype import Array
from ...ggml_dtype import GgmlDType
from .blocks import DECODERS

# So many weights are decoded at a time, so that what is between the steps stays in the processor's cache.
_CHUNK: Final = 1 << 16


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
