"""How weights are rounded to blocks: as llama.cpp's quantize_row_*_ref does, and for 256 as Candle's k_quants.rs.

What is chosen for a block are its floats, its quants, and for groups of them integers that scale the floats. Where
their bits go is found by decoding blocks of one bit each, so that only the decoder knows how a block is laid out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from ..dtype import Array, DType
from ..ggml_dtype import GgmlDType
from . import cast
from .blocks import DECODERS

# So many weights are rounded at a time.
_CHUNK: Final = 1 << 16
# The floats that scale what is decoded.
_SCALES: Final = ("d", "dmin", "m", "s")


class _Choice(NamedTuple):
    """What blocks hold, a row for each."""

    quants: Array
    floats: Mapping[str, Array]
    scales: Array | None = None
    """What d is multiplied with for each group."""
    minima: Array | None = None
    """What dmin is multiplied with for each group."""


class _Bits(NamedTuple):
    """Where the bits of integers stand in a block."""

    positions: Array
    """Of each bit, counted from the lowest of the first byte."""
    owner: Array
    """The integer that it belongs to."""
    shift: Array
    """Its place in it."""
    zero: Array
    """What the integers of a block of zero bits are."""

    def put(self, integers: Array, bits: Array) -> None:
        """Write integers, a row for each block, to the bits of the blocks."""
        rest = integers.astype(np.int32) - self.zero
        bits[:, self.positions] = rest[:, self.owner] >> self.shift & 1


def quantized(weights: Array, format: GgmlDType) -> Array:
    """The bytes of blocks of weights, given in f32."""
    rows = weights.reshape(-1, format.block_size)
    result = np.empty((len(rows), format.type_size), np.uint8)
    step = max(_CHUNK // format.block_size, 1)
    # What is no number, or too large for a scale, is the caller's own.
    with np.errstate(all="ignore"):
        for begin in range(0, len(rows), step):
            result[begin : begin + step] = _quantized(rows[begin : begin + step], format)
    return result.reshape(-1)


def _quantized(rows: Array, format: GgmlDType) -> Array:
    if DECODERS[format].scale is None:
        return cast.narrow(rows, DType(format.value.lower())).view(np.uint8)
    choice = _ROUNDED[format](rows)
    bits = np.zeros((len(rows), 8 * format.type_size), np.uint8)
    for part, integers in (("quant", choice.quants), ("scale", choice.scales), ("offset", choice.minima)):
        if integers is not None:
            _bits(format, part).put(integers, bits)
    blocks = np.packbits(bits, axis=1, bitorder="little").view(format.numpy)[:, 0]
    for name, values in choice.floats.items():
        blocks[name] = values
    if format is GgmlDType.Q8K:
        blocks["bsums"] = choice.quants.reshape(len(rows), 16, 16).sum(-1)
    return blocks.view(np.uint8).reshape(len(rows), -1)


@cache
def _bits(format: GgmlDType, part: str) -> _Bits:
    """Where the bits of quants, or of what scales d or dmin, stand in a block of a format."""
    every = 8 * format.type_size
    single = np.packbits(np.eye(every + 1, every, dtype=np.uint8), axis=1, bitorder="little")
    blocks = single.view(format.numpy)[:, 0]
    for name in _SCALES:
        if name in (blocks.dtype.names or ()):
            blocks[name] = 1
    decoder = DECODERS[format]
    if part == "quant":
        found = decoder.quant(blocks, np.arange(format.block_size, dtype=np.int16)).astype(np.int32)
    else:
        function = decoder.scale if part == "scale" else decoder.offset
        assert function is not None
        groups = np.arange(format.block_size // decoder.group, dtype=np.int16)
        found = function(blocks, groups).astype(np.int32) * (1 if part == "scale" else -1)
    differences = found[:-1] - found[-1]
    positions, owner = np.nonzero(differences)
    shift = np.log2(abs(differences[positions, owner])).astype(np.int32)
    return _Bits(positions, owner, shift, found[-1])


def nearest(x: Array) -> Array:
    """The nearest integers, halves away from zero."""
    magnitude = abs(x)
    floor = np.floor(magnitude)
    rounded: Array = np.copysign(floor + (magnitude - floor >= np.float32(0.5)), x)
    return rounded


def _inverse(x: Array) -> Array:
    """1 / x, and 0 of 0."""
    return np.where(x == 0, np.float32(0), np.float32(1) / x)


def _largest(x: Array) -> Array:
    """Of each row the first number of the greatest magnitude."""
    return np.take_along_axis(x, abs(x).argmax(-1, keepdims=True), -1)


def _symmetric(half: int) -> Callable[[Array], _Choice]:
    """Quants from -half to half - 1, of which the first is that of the number of the greatest magnitude."""

    def rounded(x: Array) -> _Choice:
        d = _largest(x) / np.float32(-half)
        quants = np.trunc(x * _inverse(d) + np.float32(half + 0.5)).clip(0, 2 * half - 1)
        return _Choice(quants - half, {"d": d[:, 0]})

    return rounded


def _from_minimum(most: int) -> Callable[[Array], _Choice]:
    """Quants from 0 to `most`, from the least number on."""

    def rounded(x: Array) -> _Choice:
        least = x.min(-1, keepdims=True)
        d = (x.max(-1, keepdims=True) - least) / np.float32(most)
        quants = np.trunc((x - least) * _inverse(d) + np.float32(0.5)).clip(0, most)
        return _Choice(quants, {"d": d[:, 0], "m": least[:, 0]})

    return rounded


def _bytes(x: Array) -> _Choice:
    d = abs(x).max(-1) / np.float32(127)
    return _Choice(nearest(x * _inverse(d)[:, None]), {"d": d})


def _bytes_and_sum(x: Array) -> _Choice:
    choice = _bytes(x)
    # Both factors are rounded to f16 before, and the product once more.
    d, total = (values.astype(np.float16).astype(np.float32) for values in (choice.floats["d"], choice.quants.sum(-1)))
    return choice._replace(floats={"d": d, "s": total * d})


def _bytes_of_256(x: Array) -> _Choice:
    # A quotient: where 1 / x is subnormal, a product with it is less exact.
    largest = _largest(x)
    inverse = np.where(largest == 0, np.float32(0), np.float32(-128) / largest)
    return _Choice(nearest(inverse * x).clip(-128, 127), {"d": _inverse(inverse)[:, 0]})


def _from_minima(most: int, group: int, most_scale: int) -> Callable[[Array], _Choice]:
    """Quants from 0 to `most`; groups have a scale and a minimum of up to `most_scale` times d and dmin."""

    def rounded(x: Array) -> _Choice:
        groups = x.reshape(len(x), -1, group)
        scales, minima = _line(groups, most)
        d, chosen = _shared(scales, most_scale)
        dmin, chosen_minima = _shared(minima, most_scale)
        step, least = d.astype(np.float32)[:, None] * chosen, dmin.astype(np.float32)[:, None] * chosen_minima
        quants = nearest((groups + least[..., None]) / step[..., None]).clip(0, most)
        quants[step == 0] = 0
        return _Choice(quants.reshape(x.shape), {"d": d, "dmin": dmin}, chosen, chosen_minima)

    return rounded


def _shared(factors: Array, most: int) -> tuple[Array, Array]:
    """A float of 16 bits for each row, and the integers up to `most` by which it makes the row's factors."""
    highest = factors.max(-1).clip(0)
    inverse = np.float32(most) * _inverse(highest)
    return (highest / np.float32(most)).astype(np.float16), nearest(inverse[:, None] * factors).clip(0, most)


def _line(x: Array, most: int) -> tuple[Array, Array]:
    """Scales and minima, both from 0 on, of rows: make_qkx1_quants of llama.cpp, with 5 steps."""
    least, highest = x.min(-1), x.max(-1)
    is_flat = least == highest
    least = np.minimum(least, 0)
    inverse = np.float32(most) / (highest - least)
    scale = _inverse(inverse)
    quants = np.zeros(x.shape, np.float32)
    goes_on = ~is_flat
    for _ in range(5):
        from_0 = x - least[..., None]
        found = nearest(inverse[..., None] * from_0).clip(0, most)
        new_scale = (from_0 * found).sum(-1) / (found * found).sum(-1)
        new_least = np.minimum((x - new_scale[..., None] * found).sum(-1) / np.float32(x.shape[-1]), 0)
        scale, least = np.where(goes_on, new_scale, scale), np.where(goes_on, new_least, least)
        goes_on &= (found != quants).any(-1)
        quants, inverse = found, _inverse(scale)
    return np.where(is_flat, np.float32(0), scale), np.where(is_flat, np.float32(0), -least)


def _around_zero(half: int, most_scale: int, tries: int) -> Callable[[Array], _Choice]:
    """Quants from -half to half - 1; 16 each have a scale from -most_scale to most_scale - 1 times d."""

    def rounded(x: Array) -> _Choice:
        groups = x.reshape(len(x), -1, 16)
        scales = _slope(groups, half, tries)
        inverse = np.float32(-most_scale) * _inverse(_largest(scales))
        d = _inverse(inverse).astype(np.float16)
        chosen = nearest(inverse * scales).clip(-most_scale, most_scale - 1)
        step = d.astype(np.float32) * chosen
        quants = nearest(groups / step[..., None]).clip(-half, half - 1)
        quants[step == 0] = 0
        return _Choice(quants.reshape(x.shape), {"d": d[:, 0]}, chosen)

    return rounded


def _slope(x: Array, half: int, tries: int) -> Array:
    """Scales of rows, by which quants from -half to half - 1 come near them in the mean of squares, weighed by squares.

    make_q3_quants of llama.cpp and, with `tries` of other scales first, its make_qx_quants.
    """
    weight = x * x
    largest = _largest(x)[..., 0]

    def fit(inverse: Array) -> tuple[Array, Array, Array]:
        found = nearest(inverse[..., None] * x).clip(-half, half - 1)
        return found, (weight * x * found).sum(-1), (weight * found * found).sum(-1)

    quants, products, squares = fit(np.float32(-half) * _inverse(largest))
    for _ in range(tries):
        found, new_products, new_squares = fit(squares * _inverse(products))
        # The best so far is products ** 2 / squares.
        better = (new_squares > 0) & (new_products * new_products * squares > products * products * new_squares)
        quants = np.where(better[..., None], found, quants)
        products, squares = np.where(better, new_products, products), np.where(better, new_squares, squares)
    for _ in range(5):
        for place in range(x.shape[-1]):
            value, heavy, quant = x[..., place], weight[..., place], quants[..., place]
            less, fewer = products - heavy * value * quant, squares - heavy * quant * quant
            found = nearest(value * fewer * _inverse(less)).clip(-half, half - 1)
            new_products, new_squares = less + heavy * value * found, fewer + heavy * found * found
            better = (less > 0) & (found != quant) & (new_squares > 0)
            better &= new_products * new_products * squares > products * products * new_squares
            quants[..., place] = np.where(better, found, quant)
            products, squares = np.where(better, new_products, products), np.where(better, new_squares, squares)
    return products * _inverse(squares)


_ROUNDED: Final[Mapping[GgmlDType, Callable[[Array], _Choice]]] = {
    GgmlDType.Q4_0: _symmetric(8),
    GgmlDType.Q4_1: _from_minimum(15),
    GgmlDType.Q5_0: _symmetric(16),
    GgmlDType.Q5_1: _from_minimum(31),
    GgmlDType.Q8_0: _bytes,
    GgmlDType.Q8_1: _bytes_and_sum,
    GgmlDType.Q2K: _from_minima(3, 16, 15),
    GgmlDType.Q3K: _around_zero(4, 32, 0),
    GgmlDType.Q4K: _from_minima(15, 32, 63),
    GgmlDType.Q5K: _from_minima(31, 32, 63),
    GgmlDType.Q6K: _around_zero(32, 128, 3),
    GgmlDType.Q8K: _bytes_of_256,
}
