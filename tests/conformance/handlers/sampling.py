"""Means of windows, and interpolation."""

from __future__ import annotations

import numpy as np

from .. import values
from ..bench import Bench
from ..comparison import assert_close, assert_same
from ..oracle import windows as oracle
from ..oracle.formats import EXTENDED, FLOATS, HALVES, NUMPY, compute_name, decode, encode
from ..oracle.windows import IMAGES, PLACEMENTS, POOLS
from .reduction import check_sums


def avg_pool2d(bench: Bench) -> None:
    for shape, kernel_size, stride, placement in POOLS:
        for special in (False, True):
            numbers = values.modest(bench.generator, bench.name, shape)
            if special and numbers.size:
                chosen = bench.generator.random(shape) < 0.05
                specials = encode(bench.name, np.array([np.nan, np.inf, -np.inf], EXTENDED))
                numbers = np.where(chosen, bench.generator.choice(specials, shape), numbers)
            image = bench.lay_out(numbers, placement)
            where = bench.where(f"{shape}, window {kernel_size}, stride {stride}, {placement}, NaN and inf {special}")
            result = image.storage.avg_pool2d(image.layout, kernel_size, stride)
            total, magnitude = oracle.avg_pool2d(bench.name, image.values, kernel_size, stride)
            got = bench.read(result, bench.name, total.shape, where)
            check_sums(bench.name, got, total, magnitude, kernel_size[0] * kernel_size[1], where)
        # The sums start at 0.0, so those of -0.0 are that.
        zeros = bench.lay_out(encode(bench.name, np.full(shape, -0.0, EXTENDED)), placement)
        where = bench.where(f"-0.0 in {shape}, window {kernel_size}, stride {stride}, {placement}")
        result = zeros.storage.avg_pool2d(zeros.layout, kernel_size, stride)
        assert_same(bench.read(result, bench.name, total.shape, where), np.zeros(total.shape, NUMPY[bench.name]), where)


def interpolated(bench: Bench) -> None:
    method, function = bench.cell.method, _INTERPOLATIONS[bench.cell.method]
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
            image = bench.lay_out(values.modest(bench.generator, bench.name, shape), placement)
            result = getattr(image.storage, method)(image.layout, *sizes, align_corners, *scales)
            expected, magnitude = function(bench.name, image.values, sizes, align_corners, scales)
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
        image = bench.lay_out(specials.reshape(shape), "contiguous")
        result = getattr(image.storage, bench.cell.method)(image.layout, *sizes, False, *scales)
        expected, _ = _INTERPOLATIONS[bench.cell.method](bench.name, image.values, sizes, False, scales)
        assert_close(bench.name, bench.read(result, bench.name, expected.shape, where), expected, 1, where)


_INTERPOLATIONS = {
    "upsample_bilinear2d": oracle.upsample_bilinear,
    "upsample_bicubic2d": oracle.upsample_bicubic,
}
HANDLERS = {"avg_pool2d": avg_pool2d, **dict.fromkeys(_INTERPOLATIONS, interpolated)}
