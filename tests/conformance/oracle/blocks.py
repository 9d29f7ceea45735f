"""What weights in blocks are, after ggml-quants.c of llama.cpp; Q8_1 and Q8K after k_quants.rs of Candle."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .formats import NUMPY, Array

# The weights and the bytes of a block.
SIZES = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q8_1": (32, 36),
    "Q2K": (256, 84),
    "Q3K": (256, 110),
    "Q4K": (256, 144),
    "Q5K": (256, 176),
    "Q6K": (256, 210),
    "Q8K": (256, 292),
}
# Where the floats of a block begin, and their type.
FLOATS = {
    "F32": ([0], "<f4"),
    "F16": ([0], "<f2"),
    "Q4_0": ([0], "<f2"),
    "Q4_1": ([0, 2], "<f2"),
    "Q5_0": ([0], "<f2"),
    "Q5_1": ([0, 2], "<f2"),
    "Q8_0": ([0], "<f2"),
    "Q8_1": ([0, 2], "<f2"),
    "Q2K": ([80, 82], "<f2"),
    "Q3K": ([108], "<f2"),
    "Q4K": ([0, 2], "<f2"),
    "Q5K": ([0, 2], "<f2"),
    "Q6K": ([208], "<f2"),
    "Q8K": ([0], "<f4"),
    "BF16": ([], "<f2"),
}


def decode(name: str, data: Array) -> Array:
    """The weights in f32 of blocks, given by their bytes."""
    if name in ("F32", "F16", "BF16"):
        return data.view(NUMPY[name.lower()]).astype(np.float32)
    return _DECODERS[name](data.reshape(-1, SIZES[name][1])).astype(np.float32).reshape(-1)


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


def _half(blocks: Array, at: int) -> Array:
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def _nibbles(x: Array) -> Array:
    return np.concatenate([x & 15, x >> 4], 1).astype(np.int32)


def _parts(x: Array, width: int, shifts: Sequence[int]) -> Array:
    """Runs of `width` bytes, each shifted by each of `shifts` in turn."""
    runs = x.reshape(len(x), x.shape[1] // width, 1, width) >> np.array(shifts, np.uint8)[:, None]
    return runs.reshape(len(x), x.shape[1] * len(shifts))


def _fifth(x: Array) -> Array:
    return np.unpackbits(x, axis=1, bitorder="little").astype(np.int32) << 4


def _scaled(quants: Array, group: int, scale: Array, less: Array | float = 0.0) -> Array:
    grouped = quants.reshape(len(quants), quants.shape[1] // group, group).astype(np.float32)
    return grouped * scale[..., None] - (less[..., None] if isinstance(less, np.ndarray) else np.float32(less))


def _six_bits(scales: Array) -> tuple[Array, Array]:
    low, middle, high = scales[:, :4], scales[:, 4:8], scales[:, 8:]
    scale = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], 1)
    return scale.astype(np.float32), np.concatenate([middle & 63, (high >> 4) | (middle >> 6) << 4], 1).astype(
        np.float32
    )


def _q2k(b: Array) -> Array:
    quants = _parts(b[:, 16:80], 32, (0, 2, 4, 6)) & 3
    return _scaled(quants, 16, _half(b, 80) * (b[:, :16] & 15), _half(b, 82) * (b[:, :16] >> 4))


def _q3k(b: Array) -> Array:
    quants = (_parts(b[:, 32:96], 32, (0, 2, 4, 6)) & 3).astype(np.int32)
    quants -= 4 * (1 - (_parts(b[:, :32], 32, range(8)) & 1).astype(np.int32))
    low, high = _parts(b[:, 96:104], 8, (0, 4)) & 15, _parts(b[:, 104:108], 4, (0, 2, 4, 6)) & 3
    scales = (low | high << 4).astype(np.float32) - 32
    return (quants.reshape(len(b), 16, 16) * (_half(b, 108) * scales)[..., None]).astype(np.float32)


def _q4k(b: Array) -> Array:
    scale, least = _six_bits(b[:, 4:16])
    return _scaled(_parts(b[:, 16:], 32, (0, 4)) & 15, 32, _half(b, 0) * scale, _half(b, 2) * least)


def _q5k(b: Array) -> Array:
    scale, least = _six_bits(b[:, 4:16])
    quants = (_parts(b[:, 48:], 32, (0, 4)) & 15) | (_parts(b[:, 16:48], 32, range(8)) & 1) << 4
    return _scaled(quants, 32, _half(b, 0) * scale, _half(b, 2) * least)


def _q6k(b: Array) -> Array:
    quants = (_parts(b[:, :128], 64, (0, 4)) & 15) | (_parts(b[:, 128:192], 32, (0, 2, 4, 6)) & 3) << 4
    scales = np.ascontiguousarray(b[:, 192:208]).view(np.int8).astype(np.float32)
    return ((quants.astype(np.int32) - 32).reshape(len(b), 16, 16) * (_half(b, 208) * scales)[..., None]).astype(
        np.float32
    )


def _bytes(b: Array) -> Array:
    return np.ascontiguousarray(b).view(np.int8).astype(np.float32)


_DECODERS: dict[str, Callable[[Array], Array]] = {
    "Q4_0": lambda b: (_nibbles(b[:, 2:]) - 8) * _half(b, 0),
    "Q4_1": lambda b: (_nibbles(b[:, 4:]) * _half(b, 0)).astype(np.float32) + _half(b, 2),
    "Q5_0": lambda b: ((_nibbles(b[:, 6:]) | _fifth(b[:, 2:6])) - 16) * _half(b, 0),
    "Q5_1": lambda b: ((_nibbles(b[:, 8:]) | _fifth(b[:, 4:8])) * _half(b, 0)).astype(np.float32) + _half(b, 2),
    "Q8_0": lambda b: _bytes(b[:, 2:]) * _half(b, 0),
    "Q8_1": lambda b: _bytes(b[:, 4:]) * _half(b, 0),
    "Q2K": _q2k,
    "Q3K": _q3k,
    "Q4K": _q4k,
    "Q5K": _q5k,
    "Q6K": _q6k,
    "Q8K": lambda b: _bytes(b[:, 4:260]) * np.ascontiguousarray(b[:, :4]).view(np.float32),
}
