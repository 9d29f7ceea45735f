"""How weights are rounded to blocks: as quantize_row_*_ref of llama.cpp's ggml-quants.c does, in Q8_1 as Candle does.

What is chosen for a block are its floats, its quants, and for groups of them integers that scale the floats. Where
their bits go is found by decoding blocks of one bit each, so that only the decoder knows how a block is laid out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from ...dtype import Array, DType
from ...ggml_dtype import GgmlDType
from ...host_blocks import DECODERS
from . import cast

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
    choice = ROUNDED[format](rows)
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
    """The nearest integers, halves away from zero: C's roundf. That of blocks of 256 is np.rint, halves to even."""
    magnitude = abs(x)
    floor = np.floor(magnitude)
    rounded: Array = np.copysign(floor + (magnitude - floor >= np.float32(0.5)), x)
    return rounded


def _inverse(x: Array) -> Array:
    """1 / x, and 0 of 0."""
    return _quotient(1, x)


def _quotient(x: Array | float | np.float32, y: Array) -> Array:
    """x / y, and 0 where y is 0."""
    return np.where(y == 0, np.float32(0), x / y)


def _largest(x: Array, axis: int = -1) -> Array:
    """Along an axis, which is kept, the first number of the greatest magnitude."""
    return np.take_along_axis(x, abs(x).argmax(axis, keepdims=True), axis)


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
    inverse = _quotient(-127, _largest(x))
    return _Choice(np.rint(inverse * x), {"d": _inverse(inverse)[:, 0]})


def _in_groups(x: Array, group: int) -> Array:
    """Blocks as groups: an element of all groups of all blocks after another, so that sums are in their order."""
    return np.ascontiguousarray(np.moveaxis(x.reshape(len(x), -1, group), -1, 0))


def _in_blocks(groups: Array) -> Array:
    blocks: Array = np.moveaxis(groups, 0, -1).reshape(groups.shape[1], -1)
    return blocks


def _from_minima(
    most: int, group: int, max_scale: int, first: float, *, is_rough: bool = False
) -> Callable[[Array], _Choice]:
    """Quants from 0 to `most`; groups have a scale and a minimum of up to `max_scale` times d and dmin.

    quantize_row_q2_K_ref, which is rough: it adds up magnitudes of errors, weighted by those of numbers;
    quantize_row_q4_K_ref and quantize_row_q5_K_ref, which add up squares, and to the weights the root of their mean.
    """

    def rounded(x: Array) -> _Choice:
        groups = _in_groups(x, group)
        weight = abs(groups) if is_rough else abs(groups) + _root_mean_square(groups)
        scales, minima = _line(groups, weight, most, first, is_rough)
        d, chosen = _shared(scales, max_scale)
        dmin, chosen_minima = _shared(minima, max_scale)
        step, least = d.astype(np.float32)[:, None] * chosen, dmin.astype(np.float32)[:, None] * chosen_minima
        quants = np.rint((groups + least) / step).clip(0, most)
        quants[:, step == 0] = 0
        return _Choice(_in_blocks(quants), {"d": d, "dmin": dmin}, chosen, chosen_minima)

    return rounded


def _shared(factors: Array, most: int) -> tuple[Array, Array]:
    """A float of 16 bits for each row, and the integers up to `most` by which it makes the row's factors."""
    highest = factors.max(-1).clip(0)
    inverse = _quotient(most, highest)
    return (highest / np.float32(most)).astype(np.float16), np.rint(inverse[:, None] * factors).clip(0, most)


def _root_mean_square(x: Array) -> Array:
    root: Array = np.sqrt((x * x).sum(0) / np.float32(len(x)))
    return root


def _line(x: Array, weight: Array, most: int, first: float, is_rough: bool) -> tuple[Array, Array]:
    """Scales and minima, both from 0 on, of groups along dim 0, by which quants from 0 to `most` come near them.

    make_qkx2_quants of ggml-quants.c. Quants are made from the least number on, in steps of (highest - least) / (most +
    number), for numbers from `first` to 1, 0.1 apart. The line that least squares, weighted, give for those quants is
    the next `least` and scale if its weighted sum of errors, or of their squares, is less than that of the last one.
    """
    least, highest = np.minimum(x.min(0), 0), x.max(0)
    is_flat = least == highest
    weights, sum_x = weight.sum(0), (weight * x).sum(0)

    def quants_of(inverse: Array) -> Array:
        quants: Array = np.rint(inverse * (x - least)).clip(0, most)
        return quants

    def error(scale: Array, least: Array, quants: Array) -> Array:
        off = scale * quants + least - x
        total: Array = (weight * (abs(off) if is_rough else off * off)).sum(0)
        return total

    inverse = np.float32(most) / (highest - least)
    scale = np.float32(1) / inverse
    lowest = error(scale, least, quants_of(inverse))
    for step in range(round((1 - first) * 10) + 1):
        steps = np.float32(first) + np.float32(0.1) * np.float32(step) + np.float32(most)
        quants = quants_of(steps / (highest - least))
        heavy = weight * quants
        sum_quants, squares, products = heavy.sum(0), (heavy * quants).sum(0), (heavy * x).sum(0)
        determinant = weights * squares - sum_quants * sum_quants
        new_scale = (weights * products - sum_x * sum_quants) / determinant
        new_least = (squares * sum_x - sum_quants * products) / determinant
        new_scale = np.where(new_least > 0, products / squares, new_scale)
        new_least = np.minimum(new_least, 0)
        new_error = error(new_scale, new_least, quants)
        is_better = (determinant > 0) & (new_error < lowest)
        scale, least = np.where(is_better, new_scale, scale), np.where(is_better, new_least, least)
        lowest = np.where(is_better, new_error, lowest)
    return np.where(is_flat, np.float32(0), scale), -least


def _around_zero(half: int, max_scale: int, slope: Callable[[Array, int], Array]) -> Callable[[Array], _Choice]:
    """Quants from -half to half - 1; 16 each have a scale from -max_scale to max_scale - 1 times d.

    quantize_row_q3_K_ref and quantize_row_q6_K_ref.
    """

    def rounded(x: Array) -> _Choice:
        groups = _in_groups(x, 16)
        scales = slope(groups, half)
        inverse = _quotient(-max_scale, _largest(scales))
        d = _inverse(inverse).astype(np.float16)
        chosen = np.rint(inverse * scales).clip(-max_scale, max_scale - 1)
        step = d.astype(np.float32) * chosen
        quants = np.rint(groups / step).clip(-half, half - 1)
        quants[:, step == 0] = 0
        return _Choice(_in_blocks(quants), {"d": d[:, 0]}, chosen)

    return rounded


class _Fit(NamedTuple):
    """Quants of groups along dim 0, and sums of weighted products with x and of weighted squares.

    The scale that fits best is products / squares. The larger products ** 2 / squares is, the less is the sum of the
    squared errors, weighted by squares.
    """

    quants: Array
    products: Array
    squares: Array

    @classmethod
    def of(cls, x: Array, inverse: Array, half: int) -> _Fit:
        quants = np.rint(inverse * x).clip(-half, half - 1)
        weighted = x * x
        return cls(quants, (weighted * x * quants).sum(0), (weighted * quants * quants).sum(0))


def _refined_slope(x: Array, half: int) -> Array:
    """Scales of groups, by which quants from -half to half - 1 come near them: make_q3_quants of ggml-quants.c.

    Each quant in turn becomes that which is best for the scale of the others, five times.
    """
    largest = _largest(x, 0)[0]
    quants, products, squares = _Fit.of(x, _quotient(-half, largest), half)
    for _ in range(5):
        for value, quant in zip(x, quants, strict=True):
            heavy = value * value
            less, fewer = products - heavy * value * quant, squares - heavy * quant * quant
            found = np.rint(value * fewer / less).clip(-half, half - 1)
            new_products, new_squares = less + heavy * value * found, fewer + heavy * found * found
            is_better = (less > 0) & (found != quant) & (new_squares > 0)
            is_better &= new_products * new_products * squares > products * products * new_squares
            quant[:] = np.where(is_better, found, quant)
            products, squares = np.where(is_better, new_products, products), np.where(is_better, new_squares, squares)
    return _quotient(products, squares)


def _searched_slope(x: Array, half: int) -> Array:
    """Scales as those of `_refined_slope`, the best of 19: make_qx_quants of ggml-quants.c, with squares as weights."""
    largest = _largest(x, 0)[0]
    _, products, squares = _Fit.of(x, _quotient(-half, largest), half)
    scale = _quotient(products, squares)
    best = scale * products
    for step in (*range(-9, 0), *range(1, 10)):
        steps = np.float32(half) + np.float32(0.1) * np.float32(step)
        _, products, squares = _Fit.of(x, -_quotient(steps, largest), half)
        is_better = (squares > 0) & (products * products > best * squares)
        scale = np.where(is_better, _quotient(products, squares), scale)
        best = np.where(is_better, scale * products, best)
    return scale


# For each format with a scale; opgen refuses a spec with another one.
ROUNDED: Final[Mapping[GgmlDType, Callable[[Array], _Choice]]] = {
    GgmlDType.Q4_0: _symmetric(8),
    GgmlDType.Q4_1: _from_minimum(15),
    GgmlDType.Q5_0: _symmetric(16),
    GgmlDType.Q5_1: _from_minimum(31),
    GgmlDType.Q8_0: _bytes,
    GgmlDType.Q8_1: _bytes_and_sum,
    GgmlDType.Q2K: _from_minima(3, 16, 15, -0.5, is_rough=True),
    GgmlDType.Q3K: _around_zero(4, 32, _refined_slope),
    GgmlDType.Q4K: _from_minima(15, 32, 63, -1.0),
    GgmlDType.Q5K: _from_minima(31, 32, 63, -0.5),
    GgmlDType.Q6K: _around_zero(32, 128, _searched_slope),
    GgmlDType.Q8K: _bytes_of_256,
}
