"""How weights are rounded to blocks: as quantize_row_*_ref of llama.cpp's ggml-quants.c does, in Q8_1 as Candle does.

What is chosen for a block are its floats, its quants, and for groups of them integers that scale the floats. Where
they are stored is determined by decoding blocks of one bit each, so that only the decoder knows the layout of a block.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from ...dtype import Array, DType
from ...ggml_dtype import GgmlDType
from ...host_blocks import DECODERS, Decoder, Rounding
from . import cast

# So many weights are rounded at a time.
_CHUNK: Final = 1 << 16
# The floats that scale what is decoded.
_SCALES: Final = ("d", "dmin", "m", "s")
# Groups of smaller numbers are zeros, where quants are of a table.
_MIN_MAGNITUDE: Final = np.float32(1e-15)


class _Choice(NamedTuple):
    """The contents of blocks, a row for each."""

    quants: Array
    floats: Mapping[str, Array]
    scales: Array | None = None
    """The factor of d for each group."""
    minima: Array | None = None
    """The factor of dmin for each group."""


class _Bits(NamedTuple):
    """Integers of which each bit is one of a block."""

    positions: Array
    """Of each bit, counted from the lowest of the first byte."""
    owner: Array
    """The integer that it belongs to."""
    shift: Array
    """Its position in that integer."""
    zero: Array
    """The integers of a block of zero bits."""

    def put(self, integers: Array, data: Array) -> None:
        """Write integers, a row for each block, to the bytes of the blocks."""
        differences = integers.astype(np.int32) - self.zero
        bits = np.zeros((len(data), 8 * data.shape[1]), np.uint8)
        bits[:, self.positions] = differences[:, self.owner] >> self.shift & 1
        data |= np.packbits(bits, axis=1, bitorder="little")


class _Digits(NamedTuple):
    """Integers of which each stands in one byte, alone or with others."""

    positions: Array
    """Of bytes that have as many integers each."""
    owners: Array
    """The integers of each."""
    lowest: int
    radix: int
    codes: Array
    """The lowest byte for each combination of integers, which are digits of its index."""

    def put(self, integers: Array, data: Array) -> None:
        """Write integers, a row for each block, to the bytes of the blocks."""
        digits = integers.astype(np.int32)[:, self.owners] - self.lowest
        # Quants of infinities and NaNs may be any integers.
        indexes = (digits @ self.radix ** np.arange(self.owners.shape[1])) % len(self.codes)
        data[:, self.positions] = self.codes[indexes]


def quantized(weights: Array, format: GgmlDType) -> Array:
    """Quantize f32 weights to the bytes of blocks."""
    rows = weights.reshape(-1, format.block_size)
    result = np.empty((len(rows), format.type_size), np.uint8)
    step = max(_CHUNK // format.block_size, 1)
    # What is no number, or too large for a scale, is the caller's own.
    with np.errstate(all="ignore"):
        for begin in range(0, len(rows), step):
            result[begin : begin + step] = _quantized(rows[begin : begin + step], format)
    return result.reshape(-1)


def _quantized(rows: Array, format: GgmlDType) -> Array:
    decoder = DECODERS[format]
    if decoder.scale is None:
        return cast.narrow(rows, DType(format.value.lower())).view(np.uint8)
    assert decoder.rounding is not None, "the spec says which formats are rounded"
    choice = _choice(rows, format, decoder, decoder.rounding)
    data = np.zeros((len(rows), format.type_size), np.uint8)
    for part, integers in (("quant", choice.quants), ("scale", choice.scales), ("offset", choice.minima)):
        if integers is not None:
            for layout in _layouts(format, part):
                layout.put(integers, data)
    blocks = data.view(format.numpy)[:, 0]
    for name, values in choice.floats.items():
        blocks[name] = values
    names = blocks.dtype.names or ()
    if "s" in names:
        # Both factors are rounded to f16 before, and the product once more.
        blocks["s"] = choice.quants.sum(-1).astype(np.float16).astype(np.float32) * blocks["d"].astype(np.float32)
    if "bsums" in names:
        blocks["bsums"] = choice.quants.reshape(len(rows), 16, 16).sum(-1)
    return data


@cache
def _layouts(format: GgmlDType, part: str) -> list[_Bits] | list[_Digits]:
    """Where quants, or what scales d or dmin, are in a block of a format."""
    size, decoder = format.type_size, DECODERS[format]
    elements = np.arange(format.block_size, dtype=np.int16)

    def decoded(data: Array) -> Array:
        blocks = data.view(format.numpy)[:, 0]
        for name in _SCALES:
            if name in (blocks.dtype.names or ()):
                blocks[name] = 1
        if part == "quant":
            return decoder.quant(blocks, elements).astype(np.int32)
        function = decoder.scale if part == "scale" else decoder.offset
        assert function is not None
        integers: Array = function(blocks, elements[: format.block_size // decoder.group]).astype(np.int32)
        return integers if part == "scale" else -integers

    single = np.packbits(np.eye(8 * size + 1, 8 * size, dtype=np.uint8), axis=1, bitorder="little")
    bit_integers = decoded(single)
    differences = bit_integers[:-1] - bit_integers[-1]
    positions, owner = np.nonzero(differences)
    pairs = np.unique(np.stack([owner, positions // 8]), axis=1)
    if part != "quant" or len(pairs[0]) > len(elements):
        return [_Bits(positions, owner, np.log2(abs(differences[positions, owner])).astype(np.int32), bit_integers[-1])]
    # By each byte, of all bytes alike.
    every = decoded(np.repeat(np.arange(256, dtype=np.uint8)[:, None], size, 1))
    lowest, radix = int(every.min()), int(np.ptp(every)) + 1
    layouts = []
    counts = np.bincount(pairs[1], minlength=size)
    for count in np.unique(counts[counts > 0]):
        bytes_of = np.flatnonzero(counts == count)
        owners = np.stack([pairs[0][pairs[1] == byte] for byte in bytes_of])
        codes = np.zeros(radix**count, np.uint8)
        index = (every[:, owners[0]] - lowest) @ radix ** np.arange(count)
        codes[index[::-1]] = np.arange(256, dtype=np.uint8)[::-1]
        layouts.append(_Digits(bytes_of, owners, lowest, radix, codes))
    return layouts


def _choice(x: Array, format: GgmlDType, decoder: Decoder, rounding: Rounding) -> _Choice:
    """Choose the contents of blocks, as the spec says."""
    has_groups = rounding.scales != (1, 1)
    match rounding.kind:
        case "magnitude" if "e" in (format.numpy.names or ()):
            return _powers(x, format, decoder, rounding)
        case "magnitude":
            d = abs(x).max(-1) / np.float32(min(-rounding.quants[0], rounding.quants[1]))
            return _Choice(nearest(x * _inverse(d)[:, None]), {"d": d})
        case "from_minimum":
            return _from_minima(x, decoder.group, rounding) if has_groups else _from_minimum(x, rounding.quants[1])
        case _ if decoder.table is not None:
            return _from_table(x, decoder, decoder.table, rounding)
    return _around_zero(x, decoder.group, rounding) if has_groups else _symmetric(x, *rounding.quants)


def nearest(x: Array) -> Array:
    """The nearest integers, half away from zero: C's roundf. That of blocks of 256 is np.rint, half to even."""
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
    """Along an axis, which is not removed, the first number of the greatest magnitude."""
    return np.take_along_axis(x, abs(x).argmax(axis, keepdims=True), axis)


def _symmetric(x: Array, lowest: int, highest: int) -> _Choice:
    """Quants of which the lowest is that of the number of the greatest magnitude."""
    largest = _largest(x)
    if lowest == -highest:
        inverse = _quotient(lowest, largest)
        # An infinity has an inverse of 0, and makes an infinite d.
        return _Choice(np.rint(inverse * x), {"d": np.where(largest == 0, np.float32(0), 1 / inverse)[:, 0]})
    d = largest / np.float32(lowest)
    quants = np.trunc(x * _inverse(d) + np.float32(0.5 - lowest)).clip(0, highest - lowest)
    return _Choice(quants + lowest, {"d": d[:, 0]})


def _from_minimum(x: Array, most: int) -> _Choice:
    """Quants from 0 to `most`, from the least number on."""
    least = x.min(-1, keepdims=True)
    d = (x.max(-1, keepdims=True) - least) / np.float32(most)
    quants = np.trunc((x - least) * _inverse(d) + np.float32(0.5)).clip(0, most)
    return _Choice(quants, {"d": d[:, 0], "m": least[:, 0]})


def _powers(x: Array, format: GgmlDType, decoder: Decoder, rounding: Rounding) -> _Choice:
    """Quants by a power of two, of which the highest one is not below half of the greatest magnitude."""
    every = np.zeros(256, format.numpy)
    every["e"] = np.arange(256)
    assert decoder.scale is not None and decoder.table is not None
    scales = decoder.scale(every, np.zeros(1, np.int16))[:, 0]
    above = np.floor(np.log2(abs(x).max(-1))) - np.floor(np.log2(np.float32(rounding.quants[1])))
    exponents = np.searchsorted(scales, np.exp2(above)).clip(0, 255)
    magnitudes = _nearest_of(abs(x) / scales[exponents, None], decoder.table[decoder.table >= 0], is_up=False)
    return _Choice(np.copysign(magnitudes, x), {"e": exponents})


def _nearest_of(x: Array, table: Array, *, is_up: bool = True) -> Array:
    """The nearest numbers of a table, in the middle of two the upper or the lower one."""
    values = np.unique(table).astype(np.float32)
    upper = np.searchsorted(values, x, "right").clip(1, len(values) - 1)
    below, above = x - values[upper - 1], values[upper] - x
    nearest: Array = np.where(below < above if is_up else below <= above, values[upper - 1], values[upper])
    return nearest


def _from_table(x: Array, decoder: Decoder, table: Array, rounding: Rounding) -> _Choice:
    """Quants of a table, by a scale of least squares, weighted by squares: quantize_row_iq4_nl_impl."""
    groups = _in_groups(x, decoder.group)
    largest = _largest(groups, 0)[0]
    lowest = np.float32(rounding.quants[0])
    weight = groups * groups

    def fit(inverse: Array) -> tuple[Array, Array, Array]:
        quants = _nearest_of(inverse * groups, table)
        return quants, (weight * quants * groups).sum(0), (weight * quants * quants).sum(0)

    quants, products, squares = fit(_quotient(-lowest if rounding.search else lowest, largest))
    scales = _quotient(products, squares)
    best = scales * products
    for step in _steps(rounding):
        _, products, squares = fit(_quotient(lowest + step, largest))
        is_better = (squares > 0) & (products * products > best * squares)
        scales = np.where(is_better, _quotient(products, squares), scales)
        best = np.where(is_better, scales * products, best)
    scales = np.where(abs(largest) < _MIN_MAGNITUDE, np.float32(0), scales)
    if rounding.scales == (1, 1):
        return _Choice(_in_blocks(quants), {"d": scales[:, 0]})
    low, high = rounding.scales
    d = _largest(scales) / np.float32(low)
    chosen = np.rint(_inverse(d) * scales).clip(low, high)
    quants = _nearest_of(_inverse(d * chosen) * groups, table)
    return _Choice(_in_blocks(quants), {"d": d[:, 0]}, chosen)


def _steps(rounding: Rounding) -> list[np.float32]:
    """The numbers that trials add, which may be centred on zero."""
    if not rounding.search:
        return []
    first, last, step = rounding.search
    return [np.float32(step) * np.float32(k) for k in range(round(first / step), round(last / step) + 1)]


def _in_groups(x: Array, group: int) -> Array:
    """Blocks as groups: an element of all groups of all blocks after another, so that sums are in their order."""
    return np.ascontiguousarray(np.moveaxis(x.reshape(len(x), -1, group), -1, 0))


def _in_blocks(groups: Array) -> Array:
    blocks: Array = np.moveaxis(groups, 0, -1).reshape(groups.shape[1], -1)
    return blocks


def _from_minima(x: Array, group: int, rounding: Rounding) -> _Choice:
    """Quants from 0 on; groups have a scale and a minimum, which are integers times d and dmin.

    quantize_row_q2_K_ref, which adds up magnitudes of errors, weighted by those of numbers; quantize_row_q4_K_ref and
    quantize_row_q5_K_ref, which add up squares, and to the weights the root of their mean.
    """
    most, max_scale = rounding.quants[1], rounding.scales[1]
    groups = _in_groups(x, group)
    weight = abs(groups) if rounding.error == "magnitude" else abs(groups) + _root_mean_square(groups)
    scales, minima = _line(groups, weight, most, rounding)
    d, chosen = _shared(scales, max_scale)
    dmin, chosen_minima = _shared(minima, max_scale)
    step, least = d.astype(np.float32)[:, None] * chosen, dmin.astype(np.float32)[:, None] * chosen_minima
    quants = np.rint((groups + least) / step).clip(0, most)
    quants[:, step == 0] = 0
    return _Choice(_in_blocks(quants), {"d": d, "dmin": dmin}, chosen, chosen_minima)


def _shared(factors: Array, most: int) -> tuple[Array, Array]:
    """A float of 16 bits for each row, and the integers up to `most` by which it makes the row's factors."""
    highest = factors.max(-1).clip(0)
    inverse = _quotient(most, highest)
    return (highest / np.float32(most)).astype(np.float16), np.rint(inverse[:, None] * factors).clip(0, most)


def _root_mean_square(x: Array) -> Array:
    root: Array = np.sqrt((x * x).sum(0) / np.float32(len(x)))
    return root


def _line(x: Array, weight: Array, most: int, rounding: Rounding) -> tuple[Array, Array]:
    """Scales and minima, both from 0 on, of groups along dim 0, by which quants from 0 to `most` come near them.

    make_qkx2_quants of ggml-quants.c. Quants count from the least number, in steps of (highest - least) / (most +
    number), for the numbers of the search. The line that least squares, weighted, give for those quants is
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
        total: Array = (weight * (abs(off) if rounding.error == "magnitude" else off * off)).sum(0)
        return total

    inverse = np.float32(most) / (highest - least)
    scale = np.float32(1) / inverse
    lowest = error(scale, least, quants_of(inverse))
    for step in range(round((rounding.search[1] - rounding.search[0]) / rounding.search[2]) + 1):
        steps = np.float32(rounding.search[0]) + np.float32(rounding.search[2]) * np.float32(step) + np.float32(most)
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


def _around_zero(x: Array, group: int, rounding: Rounding) -> _Choice:
    """Quants on both sides of zero; groups have a scale, which is an integer times d.

    quantize_row_q3_K_ref and quantize_row_q6_K_ref.
    """
    (lowest, highest), (low, high) = rounding.quants, rounding.scales
    groups = _in_groups(x, group)
    scales = _refined_slope(groups, rounding) if rounding.refine else _searched_slope(groups, rounding)
    inverse = _quotient(low, _largest(scales))
    d = _inverse(inverse).astype(np.float16)
    chosen = np.rint(inverse * scales).clip(low, high)
    step = d.astype(np.float32) * chosen
    quants = np.rint(groups / step).clip(lowest, highest)
    quants[:, step == 0] = 0
    return _Choice(_in_blocks(quants), {"d": d[:, 0]}, chosen)


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


def _refined_slope(x: Array, rounding: Rounding) -> Array:
    """Scales of groups, by which quants from -half to half - 1 come near them: make_q3_quants of ggml-quants.c.

    One after another, each quant is set to the best one for the scale of the others, as often as the spec says.
    """
    half, largest = -rounding.quants[0], _largest(x, 0)[0]
    quants, products, squares = _Fit.of(x, _quotient(-half, largest), half)
    for _ in range(rounding.refine):
        for value, quant in zip(x, quants, strict=True):
            heavy = value * value
            less, fewer = products - heavy * value * quant, squares - heavy * quant * quant
            candidate = np.rint(value * fewer / less).clip(-half, half - 1)
            new_products, new_squares = less + heavy * value * candidate, fewer + heavy * candidate * candidate
            is_better = (less > 0) & (candidate != quant) & (new_squares > 0)
            is_better &= new_products * new_products * squares > products * products * new_squares
            quant[:] = np.where(is_better, candidate, quant)
            products, squares = np.where(is_better, new_products, products), np.where(is_better, new_squares, squares)
    return _quotient(products, squares)


def _searched_slope(x: Array, rounding: Rounding) -> Array:
    """Scales as those of `_refined_slope`, the best of trials: make_qx_quants of ggml-quants.c, weighted by squares."""
    half, largest = -rounding.quants[0], _largest(x, 0)[0]
    _, products, squares = _Fit.of(x, _quotient(-half, largest), half)
    scale = _quotient(products, squares)
    best = scale * products
    for step in _steps(rounding):
        _, products, squares = _Fit.of(x, -_quotient(np.float32(half) + step, largest), half)
        is_better = (squares > 0) & (products * products > best * squares)
        scale = np.where(is_better, _quotient(products, squares), scale)
        best = np.where(is_better, scale * products, best)
    return scale
