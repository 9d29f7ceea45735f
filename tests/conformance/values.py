"""Elements to compute with: ordinary ones, and those that make trouble."""

from __future__ import annotations

from functools import cache

import numpy as np

from .oracle.formats import COMPLEX, EXTENDED, FLOATS, INTEGERS, NUMPY, Array, decode, encode, joined

Generator = np.random.Generator

# Exponents of two between which ordinary numbers of a dtype are drawn.
_ORDINARY = {
    "bf16": (-20, 20),
    "f16": (-12, 12),
    "f32": (-20, 20),
    "f64": (-40, 40),
    "f8e4m3": (-6, 7),
    "f8e5m2": (-12, 12),
}
# The same for what is summed or multiplied many times: neither overflow nor a sum of denormals.
_MODEST = {"bf16": (-4, 4), "f16": (-4, 3), "f32": (-4, 4), "f64": (-6, 6), "f8e4m3": (-4, 1), "f8e5m2": (-4, 3)}


def _exponents(name: str, most: int) -> tuple[int, int]:
    """The exponents of ordinary numbers of another dtype, some steps within those of its normal numbers."""
    number_format = FLOATS[name]
    return max(number_format.min_exponent, -most), min(int(np.log2(number_format.largest)) - 1, most)


def _drawn(generator: Generator, name: str, shape: tuple[int, ...], exponents: tuple[int, int]) -> Array:
    magnitude = np.exp2(generator.uniform(*exponents, shape))
    signed = np.where(generator.random(shape) < 1 / 2, magnitude, -magnitude)
    return encode(name, signed) if NUMPY[name].names is not None else signed.astype(NUMPY[name])


def _of_parts(name: str, real: Array, imaginary: Array) -> Array:
    """Numbers of a complex dtype with parts of these."""
    part = COMPLEX[name].part
    return encode(name, joined(decode(part, real), decode(part, imaginary)))


def ordinary(generator: Generator, name: str, shape: tuple[int, ...]) -> Array:
    """Numbers of either sign, uniform in their logarithm; integers uniform over half of their range."""
    if name in COMPLEX:
        return _of_parts(name, *(ordinary(generator, COMPLEX[name].part, shape) for _ in range(2)))
    if name in FLOATS:
        return _drawn(generator, name, shape, _ORDINARY.get(name) or _exponents(name, 12))
    if name == "bool":
        return modest(generator, name, shape)
    bounds = INTEGERS[name]
    return generator.integers(bounds.lowest // 2, bounds.highest // 2, shape, dtype=NUMPY[name])


def modest(generator: Generator, name: str, shape: tuple[int, ...]) -> Array:
    """Numbers of which a sum of products keeps clear of overflow; integers, which wrap, over their range."""
    if name in COMPLEX:
        return _of_parts(name, *(modest(generator, COMPLEX[name].part, shape) for _ in range(2)))
    if name in FLOATS:
        return _drawn(generator, name, shape, _MODEST.get(name) or (_exponents(name, 4)[0], 1))
    bounds = INTEGERS[name]
    return generator.integers(bounds.lowest, bounds.highest, shape, dtype=NUMPY[name], endpoint=True)


@cache
def specials(name: str) -> Array:
    """Zeros, infinities, NaN, denormals, extremes and halves; of integers the extremes and their neighbours.

    Complex numbers have each of a few of these as either part.
    """
    if name in COMPLEX:
        number_format = FLOATS[COMPLEX[name].part]
        smallest = 2.0**number_format.min_exponent
        largest = number_format.largest
        few = [0.0, -0.0, 1.0, -1.0, 0.1, -2.5, smallest, largest, -largest, np.inf, -np.inf, np.nan]
        parts = encode(COMPLEX[name].part, np.array(few, EXTENDED))
        return _of_parts(name, *np.meshgrid(parts, parts)).ravel()
    if name in INTEGERS:
        bounds = INTEGERS[name]
        low, high = bounds.lowest, bounds.highest
        numbers = [0, 1, 2, 3, 7, high, high - 1, high // 2, low, low + 1, 10]
        if bounds.signed:
            numbers += [-1, -2, -3, -7]
        return np.array(numbers, NUMPY[name])
    number_format = FLOATS[name]
    smallest = 2.0**number_format.min_exponent
    tiniest = EXTENDED(2) ** (number_format.min_exponent - number_format.precision + 1)
    magnitudes = [0.0, 1.0, 0.5, 1.5, 2.5, 0.1, 2.0, 3.0, 100.0, smallest, 1.5 * smallest, tiniest, 3 * tiniest]
    magnitudes += [number_format.largest, number_format.largest / 2, np.inf]
    signed = np.array([[value, -value] for value in map(EXTENDED, magnitudes)], EXTENDED).ravel()
    return np.concatenate([encode(name, signed), encode(name, np.array([np.nan], EXTENDED))])


def mixed(generator: Generator, name: str, shape: tuple[int, ...]) -> Array:
    """Ordinary numbers with one in three replaced by one that makes trouble."""
    numbers = ordinary(generator, name, shape)
    chosen = generator.random(shape) < 1 / 3
    troubles = specials(name)
    return np.where(chosen, troubles[generator.integers(0, len(troubles), shape)], numbers)


def few_values(generator: Generator, name: str, shape: tuple[int, ...]) -> Array:
    """Numbers that repeat, for ties; of floats also both zeros."""
    if name in COMPLEX:
        return _of_parts(name, *(few_values(generator, COMPLEX[name].part, shape) for _ in range(2)))
    choices = np.array([0, 1, 2, 3], np.float64).astype(EXTENDED)
    if name in INTEGERS:
        return generator.integers(0, 4, shape).astype(NUMPY[name])
    return encode(name, generator.choice(np.concatenate([choices, -choices]), shape))


def special_pairs(name: str) -> tuple[Array, Array]:
    """Every special number with every other one."""
    numbers = specials(name)
    left, right = np.meshgrid(numbers, numbers, indexing="ij")
    return left.ravel(), right.ravel()


def all_patterns(name: str) -> Array:
    """Every number of an 8 or 16-bit dtype."""
    raw = np.dtype(f"u{NUMPY[name].itemsize}")
    return np.arange(2 ** (8 * raw.itemsize)).astype(raw).view(NUMPY[name])


def pattern_sample(generator: Generator, name: str, count: int) -> Array:
    """About `count` bit patterns of f32 or f64, evenly over all exponents, then as many in the middle of them."""
    bits = FLOATS[name].bits
    step = 2**bits // count
    raw = np.arange(count, dtype=np.uint64) * np.uint64(step) + generator.integers(0, step, count, dtype=np.uint64)
    patterns = raw.astype(FLOATS[name].raw).view(NUMPY[name])
    middle = _drawn(generator, name, (count // 2,), (-30, 12))
    return np.concatenate([patterns, middle, specials(name)])


def _complex_sample(generator: Generator, name: str, count: int) -> Array:
    """Complex numbers with parts of every exponent, and such near the zeros and singularities of functions."""
    part = COMPLEX[name].part
    parts = pattern_sample(generator, part, count)
    points = generator.choice([0, 1, -1, 1j, -1j, 0.5, 1 + 1j, np.pi / 2], len(parts))
    steps = [_drawn(generator, part, parts.shape, (-FLOATS[part].precision, 1)) for _ in range(2)]
    near = encode(name, decode(name, points.astype(NUMPY[name])) + decode(name, _of_parts(name, *steps)))
    everywhere = _of_parts(name, parts, generator.permutation(parts))
    return np.concatenate([everywhere, near, ordinary(generator, name, (count // 2,)), specials(name)])


def sweep(generator: Generator, name: str, count: int) -> Array:
    """All patterns of a float dtype of 8 bits, a sample of `count` ones of a large one, integers over their range.

    Of 16 bits, which kernels compute in f32, every fourth one; all of them where `count` is more than there are.
    """
    if name in COMPLEX:
        return _complex_sample(generator, name, count // 4)
    if name in INTEGERS:
        return np.concatenate([specials(name), modest(generator, name, (count // 16,))])
    if FLOATS[name].bits > 16:
        return pattern_sample(generator, name, count)
    patterns = all_patterns(name)
    if FLOATS[name].bits == 8 or count > len(patterns):
        return patterns
    return np.concatenate([patterns[generator.integers(4) :: 4], specials(name)])
