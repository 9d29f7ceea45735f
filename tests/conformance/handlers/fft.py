"""fft, rfft and irfft."""

from __future__ import annotations

import numpy as np

from .. import values
from ..bench import Bench
from ..comparison import assert_close, sum_bound
from ..layouts import Operand
from ..oracle import transforms as oracle
from ..oracle.formats import COMPLEX, NUMPY, Array, decode

# Powers of two, products of small primes, primes small and large; lines that lie in every way.
LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 30, 64, 97, 128, 210, 257)
SHAPES: list[tuple[tuple[int, ...], str]] = [
    *(((3, length), "contiguous") for length in LENGTHS),
    ((12,), "offset"),
    ((9, 10), "transposed"),
    ((9, 10), "broadcast rows"),
    ((9, 10), "broadcast columns"),
    ((5, 6), "narrowed columns"),
    ((5, 6), "narrowed rows"),
    ((2, 3, 4, 5), "rolled"),
    ((3, 5), "sliding"),
    ((0, 4), "contiguous"),
]


def fft(bench: Bench) -> None:
    for shape, placement in SHAPES:
        x = bench.lay_out(values.modest(bench.generator, bench.name, shape), placement)
        for inverse in (False, True):
            where = bench.where(f"{shape}, {placement}, inverse {inverse}")
            got = bench.read(x.storage.fft(x.layout, inverse), bench.name, shape, where)
            check(bench, got, oracle.fft(bench.name, x.values, inverse), x, where)
    check_that_lines_are_apart(bench, 8)


def rfft(bench: Bench) -> None:
    name = next(name for name, pair in COMPLEX.items() if pair.part == bench.name)
    for shape, placement in SHAPES:
        x = bench.lay_out(values.modest(bench.generator, bench.name, shape), placement)
        where = bench.where(f"{shape}, {placement}")
        expected = oracle.rfft(bench.name, x.values)
        check(bench, bench.read(x.storage.rfft(x.layout), name, expected.shape, where), expected, x, where)


def irfft(bench: Bench) -> None:
    name = COMPLEX[bench.name].part
    for shape, placement in SHAPES:
        for count in {max(2 * shape[-1] - 2, 1), 2 * shape[-1] - 1}:
            x = bench.lay_out(values.modest(bench.generator, bench.name, shape), placement)
            where = bench.where(f"{count} points of {shape}, {placement}")
            expected = oracle.irfft(bench.name, x.values, count)
            got = bench.read(x.storage.irfft(x.layout, count), name, expected.shape, where)
            check(bench, got, expected, x, where)
            bench.assert_untouched(x, where)


def check(bench: Bench, got: Array, expected: Array, x: Operand, where: str) -> None:
    """Rounding is a relative error of the whole line, which grows with the steps of the transform."""
    count = max(x.values.shape[-1], got.shape[-1])
    name = next(name for name, kind in NUMPY.items() if kind == got.dtype)
    squares = np.square(np.abs(decode(bench.name, x.values))).sum(-1, keepdims=True)
    slack = 2 * sum_bound(name, np.sqrt(2 * squares * count), count)
    assert_close(name, got, expected, 1, where, slack=np.broadcast_to(slack, got.shape), zero_sign=False)


def check_that_lines_are_apart(bench: Bench, length: int) -> None:
    """A NaN in a line makes all of the line NaN, and no other line."""
    numbers = values.modest(bench.generator, bench.name, (3, length))
    numbers[1, 2] = np.nan
    x = bench.lay_out(numbers)
    got = bench.read(x.storage.fft(x.layout, False), bench.name, numbers.shape, bench.where("a NaN"))
    assert np.isnan(got).all(1).tolist() == [False, True, False]
    assert np.isfinite(got).all(1).tolist() == [True, False, True]


HANDLERS = {"fft": fft, "rfft": rfft, "irfft": irfft}
