"""Block-quantized weights, by the gguf package of llama.cpp; Q8_1 and Q8K after k_quants.rs of Candle."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tallow import GgmlDType
from tallow.runtime.host import weights

from .formats import NUMPY, Array

try:
    import gguf
except ImportError:  # where a GPU is: our own decoder has its bits, see tests/package/test_block_formats.py
    gguf = None


def _number(name: str) -> object:
    return gguf.GGMLQuantizationType[f"{name[:-1]}_K" if name.endswith("K") else name]


def _bytes(blocks: Array) -> Array:
    quants: Array = blocks["qs"] * blocks["d"][:, None].astype(np.float32)
    return quants


# What the package does not decode. Of llama.cpp's old Q8_1 it counts 4 bytes more than files and Candle have.
_DECODERS: dict[str, Callable[[Array], Array]] = {
    "Q8_1": _bytes,
    "Q8K": _bytes,
}


def _sizes(dtype: GgmlDType) -> tuple[int, int]:
    is_own = gguf is None or dtype.value in _DECODERS
    return (dtype.block_size, dtype.type_size) if is_own else gguf.GGML_QUANT_SIZES[_number(dtype.value)]


SIZES = {dtype.value: _sizes(dtype) for dtype in GgmlDType}
"""The weights and the bytes of a block."""


def random_blocks(generator: np.random.Generator, name: str, weights: int, scales: Sequence[float]) -> Array:
    """Bytes of blocks of any bits, of which floats, and powers of two, are each of the scales."""
    blocks = generator.integers(0, 256, weights // SIZES[name][0] * SIZES[name][1], np.uint8).view(
        GgmlDType(name).numpy
    )
    for field in blocks.dtype.names or ():
        element, drawn = blocks.dtype[field], generator.choice(np.asarray(scales), len(blocks))
        if element.base.kind not in "iu":
            blocks[field] = drawn.astype(element)
        elif not element.shape:  # an exponent
            blocks[field] = np.where(drawn == 0, 0, np.frexp(drawn)[1] + 127).clip(0, 255)
    return blocks.view(np.uint8)


def decode(name: str, data: Array) -> Array:
    """The weights in f32 of blocks, given by their bytes."""
    if name in ("F32", "F16", "BF16"):
        return data.view(NUMPY[name.lower()]).astype(np.float32)
    if name in _DECODERS:
        return _DECODERS[name](data.view(GgmlDType(name).numpy)).reshape(-1)
    if gguf is None or data.size == 0:  # of which the package makes an error
        return weights.decode(data, GgmlDType(name))
    with np.errstate(all="ignore"):
        decoded: Array = gguf.quants.dequantize(data, _number(name)).reshape(-1)
    return decoded


def product(name: str, data: Array, x: Array, activations: str | None = None) -> Array:
    """x by the transpose of weights, in f64. With "q8_1" x is rounded to blocks of 32."""
    weights = decode(name, data).astype(np.float64).reshape(-1, x.shape[1])
    wide = x.astype(np.float32)
    if activations is None:
        return wide.astype(np.float64) @ weights.T
    groups = wide.reshape(len(x), x.shape[1] // 32, 32)
    scale = np.abs(groups).max(-1, keepdims=True) / np.float32(127)
    with np.errstate(invalid="ignore"):
        ratio = np.where(scale > 0, groups / scale, 0)
    quants = np.copysign(np.floor(np.abs(ratio).astype(np.float64) + 0.5), ratio)
    every: Array = scale.astype(np.float16).astype(np.float64) * quants
    return every.reshape(x.shape) @ weights.T
