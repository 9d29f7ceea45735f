"""Pools and upsampling."""

from __future__ import annotations

import numpy as np

from .. import values
from ..bench import Bench
from ..comparison import assert_close, assert_equal_values, assert_same
from ..oracle import windows as oracle
from ..oracle.formats import EXTENDED, FLOATS, HALVES, NUMPY, compute_name, decode, encode
from .reduction import check_sums

# The shape of the image, kernel size, stride, and how the image lies.
POOLS: list[tuple[tuple[int, ...], tuple[int, int], tuple[int, int], str]] = [
    ((1, 1, 1, 1), (1, 1), (1, 1), "contiguous"),
    ((2, 3, 6, 8), (2, 2), (2, 2), "contiguous"),
    ((2, 3, 7, 9), (3, 2), (2, 3), "contiguous"),
    ((1, 2, 5, 6), (3, 3), (1, 1), "offset"),
    ((1, 2, 5, 6), (5, 6), (1, 1), "contiguous"),
    ((1, 2, 5, 7), (1, 1), (3, 4), "contiguous"),
    ((2, 3, 6, 7), (2, 3), (2, 1), "transposed"),
    ((2, 3, 6, 7), (2, 3), (1, 2), "rolled"),
    ((2, 3, 6, 7), (3, 2), (2, 2), "narrowed columns"),
    ((2, 3, 6, 7), (3, 2), (2, 2), "broadcast rows"),
    ((2, 3, 6, 7), (3, 2), (2, 2), "broadcast columns"),
    ((1, 3, 20, 33), (2, 2), (2, 2), "contiguous"),
    # Rows of windows that whole accesses fill, where they may and where they may not.
    ((1, 2, 5, 64), (2, 2), (2, 2), "contiguous"),
    ((1, 2, 5, 64), (3, 2), (1, 2), "offset"),
    ((1, 2, 5, 64), (2, 2), (2, 2), "transposed"),
    ((1, 2, 5, 66), (3, 3), (1, 1), "contiguous"),
    # Rows that end within an access, and the last row with them.
    ((1, 3, 6, 30), (2, 2), (2, 2), "contiguous"),
    ((2, 3, 6, 30), (2, 2), (2, 2), "rolled"),
    ((2, 1, 5, 13), (3, 3), (1, 1), "narrowed columns"),
    ((1, 1, 3, 21), (1, 3), (2, 1), "contiguous"),
    ((0, 3, 4, 4), (2, 2), (2, 2), "contiguous"),
    ((2, 0, 4, 4), (2, 2), (2, 2), "contiguous"),
]
# The shape of the input, then the sizes of the result. From 26 to 44, 30 to 22 and 11 to 55 a scale that is rounded, in
# f32, in f64 or as an inverse, finds a neighbour.
NEAREST_1D = [
    ((1, 1, 1), 1),
    ((2, 3, 5), 10),
    ((2, 3, 7), 3),
    ((1, 2, 9), 9),
    ((1, 2, 3), 0),
    ((0, 2, 3), 5),
    ((1, 1, 7), 257),
    ((1, 1, 26), 44),
    ((1, 1, 30), 22),
    ((1, 1, 11), 55),
]
IMAGES = [
    ((1, 1, 1, 1), (1, 1)),
    ((1, 2, 3, 4), (6, 8)),
    ((2, 3, 5, 7), (3, 11)),
    ((1, 2, 6, 5), (1, 2)),
    ((1, 2, 4, 4), (4, 4)),
    ((1, 1, 1, 3), (5, 7)),
    ((2, 1, 9, 11), (13, 17)),
    ((1, 1, 26, 30), (44, 22)),
    ((1, 1, 11, 26), (55, 22)),
    ((1, 2, 3, 4), (0, 3)),
    ((0, 2, 3, 4), (5, 6)),
]
PLACEMENTS = ("contiguous", "offset", "transposed", "rolled", "narrowed columns", "broadcast rows", "broadcast columns")


def avg_pool2d(bench: Bench) -> None:
    for shape, kernel_size, stride, placement in POOLS:
        for special in (False, True):
            numbers = values.modest(bench.generator, bench.name, shape)
            if special and numbers.size:
                chosen = bench.generator.random(shape) < 0.05
                specials = encode(bench.name, np.array([np.nan, np.inf, -np.inf], EXTENDED))
                numbers = np.where(chosen, bench.generator.choice(specials, shape), numbers)
            image = bench.place(numbers, placement)
            where = bench.where(f"{shape}, window {kernel_size}, stride {stride}, {placement}, NaN and inf {special}")
            result = image.storage.avg_pool2d(image.layout, kernel_size, stride)
            total, magnitude = oracle.avg_pool2d(bench.name, image.values, kernel_size, stride)
            got = bench.read(result, bench.name, total.shape, where)
            check_sums(bench.name, got, total, magnitude, kernel_size[0] * kernel_size[1], where)
        # The sums start at 0.0, so those of -0.0 are that.
        zeros = bench.place(encode(bench.name, np.full(shape, -0.0, EXTENDED)), placement)
        where = bench.where(f"-0.0 in {shape}, window {kernel_size}, stride {stride}, {placement}")
        result = zeros.storage.avg_pool2d(zeros.layout, kernel_size, stride)
        assert_same(bench.read(result, bench.name, total.shape, where), np.zeros(total.shape, NUMPY[bench.name]), where)


def max_pool2d(bench: Bench) -> None:
    for shape, kernel_size, stride, placement in POOLS:
        for draw in (values.modest, values.mixed):
            image = bench.place(draw(bench.generator, bench.name, shape), placement)
            where = bench.where(f"{shape}, window {kernel_size}, stride {stride}, {placement}, {draw.__name__}")
            expected = oracle.max_pool2d(bench.name, image.values, kernel_size, stride)
            result = image.storage.max_pool2d(image.layout, kernel_size, stride)
            assert_equal_values(bench.read(result, bench.name, expected.shape, where), expected, where)


def upsample_nearest1d(bench: Bench) -> None:
    cases = [(shape, size, "contiguous") for shape, size in NEAREST_1D]
    cases += [((2, 3, 5), 8, placement) for placement in PLACEMENTS]
    for shape, size, placement in cases:
        signal = bench.place(values.mixed(bench.generator, bench.name, shape), placement)
        where = bench.where(f"{shape} to {size}, {placement}")
        expected = oracle.upsample_nearest(signal.values, (size,))
        result = signal.storage.upsample_nearest1d(signal.layout, size)
        assert_same(bench.read(result, bench.name, expected.shape, where), expected, where)


def upsample_nearest2d(bench: Bench) -> None:
    cases = [(shape, sizes, "contiguous") for shape, sizes in IMAGES]
    cases += [((2, 3, 4, 5), (7, 3), placement) for placement in PLACEMENTS]
    for shape, sizes, placement in cases:
        image = bench.place(values.mixed(bench.generator, bench.name, shape), placement)
        where = bench.where(f"{shape} to {sizes}, {placement}")
        expected = oracle.upsample_nearest(image.values, sizes)
        result = image.storage.upsample_nearest2d(image.layout, *sizes)
        assert_same(bench.read(result, bench.name, expected.shape, where), expected, where)


def upsample_bilinear2d(bench: Bench) -> None:
    cases: list[tuple[tuple[int, ...], tuple[int, int], str, tuple[float | None, float | None]]]
    cases = [(shape, sizes, "contiguous", (None, None)) for shape, sizes in IMAGES]
    cases += [((2, 3, 4, 5), (7, 3), placement, (None, None)) for placement in PLACEMENTS]
    cases += [
        ((1, 2, 4, 5), (8, 10), "contiguous", (2.0, 2.0)),
        ((1, 2, 4, 5), (9, 12), "contiguous", (2.25, 2.5)),
        ((1, 2, 5, 6), (12, 3), "contiguous", (2.3, 0.6)),
        ((1, 2, 5, 6), (7, 9), "contiguous", (1.5, None)),
        ((1, 2, 5, 6), (7, 9), "contiguous", (1e-300, 1e-9)),
        # A dim that keeps its size is copied, whatever its factor.
        ((1, 2, 5, 6), (5, 9), "contiguous", (1.5, None)),
        ((2, 1, 5, 16), (5, 32), "transposed", (0.5, 2.5)),
        ((1, 2, 5, 6), (7, 6), "contiguous", (None, 2.0)),
        ((2, 1, 5, 16), (12, 16), "transposed", (2.3, 0.7)),
        ((1, 2, 5, 6), (5, 6), "contiguous", (1.7, 0.5)),
    ]
    for shape, sizes, placement, scales in cases:
        for align_corners in (False, True):
            where = bench.where(f"{shape} to {sizes}, {placement}, scales {scales}, align_corners {align_corners}")
            image = bench.place(values.modest(bench.generator, bench.name, shape), placement)
            result = image.storage.upsample_bilinear2d(image.layout, *sizes, align_corners, *scales)
            expected, magnitude = oracle.upsample_bilinear(bench.name, image.values, sizes, align_corners, scales)
            got = bench.read(result, bench.name, expected.shape, where)
            # A weight is what is left of a coordinate, whose rounding grows with the size of the image.
            epsilon = EXTENDED(2) ** (1 - FLOATS[compute_name(bench.name)].precision)
            largest = np.abs(decode(bench.name, image.values)).max(initial=EXTENDED(0))
            slack = epsilon * (4 * magnitude + 4 * max(*shape[2:], *sizes) * largest)
            assert_close(bench.name, got, expected, int(bench.name in HALVES), where, slack=slack, zero_sign=False)
    _check_copied_specials(bench)


def _check_copied_specials(bench: Bench) -> None:
    """Infinities, NaN and both zeros beside each other in a dim that keeps its size."""
    specials = values.specials(bench.name)
    for shape, sizes, scales in [
        ((1, 1, specials.size, 1), (specials.size, 4), (1.5, None)),
        ((1, 1, 1, specials.size), (4, specials.size), (None, 1.5)),
    ]:
        where = bench.where(f"{shape} to {sizes}, scales {scales}, special numbers")
        image = bench.place(specials.reshape(shape), "contiguous")
        result = image.storage.upsample_bilinear2d(image.layout, *sizes, False, *scales)
        expected, _ = oracle.upsample_bilinear(bench.name, image.values, sizes, False, scales)
        assert_close(bench.name, bench.read(result, bench.name, expected.shape, where), expected, 1, where)


HANDLERS = {
    "avg_pool2d": avg_pool2d,
    "max_pool2d": max_pool2d,
    "upsample_nearest1d": upsample_nearest1d,
    "upsample_nearest2d": upsample_nearest2d,
    "upsample_bilinear2d": upsample_bilinear2d,
}
