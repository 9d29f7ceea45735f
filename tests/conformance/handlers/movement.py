"""const_set, assign, copy_strided_src, cat, pad, copy2d."""

from __future__ import annotations

import itertools

import numpy as np
from tallow import Layout, Shape

from .. import values
from ..bench import Bench
from ..comparison import assert_same
from ..layouts import CONTIGUOUS, TILES, VIEWS, WRITABLE, poison
from ..oracle import movement as oracle
from ..oracle.formats import COMPLEX, from_number

# d1, d2, source stride, destination stride, source offset, destination offset.
COPIES = (
    (1, 1, 1, 1, 0, 0),
    (3, 5, 5, 5, 0, 0),
    (3, 5, 7, 5, 2, 1),
    (4, 3, 3, 9, 1, 4),
    (5, 1, 3, 2, 0, 3),
    (1, 257, 0, 0, 3, 5),
    (4, 6, 0, 6, 2, 0),
    (4, 6, 2, 8, 0, 1),
    (17, 16, 16, 32, 0, 16),
    (65, 3, 4, 3, 1, 0),
    (0, 5, 5, 5, 0, 0),
    (5, 0, 5, 5, 0, 0),
)


def const_set(bench: Bench) -> None:
    # Integers are numbers like the others: what is out of range saturates.
    numbers = [0.0, -0.0, 1.0, -3.75, 0.1, 250.5, 1e5, -1e300, np.inf, np.nan, 300, -1, -70000, 1 << 63]
    if bench.name in COMPLEX:
        numbers += [1j, 0.1 - 1e300j, complex(-0.0, np.inf), complex(np.nan, -0.0)]
    for number in numbers:
        check_fill(bench, (5, 7), "narrowed columns", number)
    for case in VIEWS + CONTIGUOUS[::2]:
        check_fill(bench, case.shape, case.placement, 2.5)


def check_fill(bench: Bench, shape: tuple[int, ...], placement: str, number: complex) -> None:
    where = bench.where(f"{number} into {shape}, {placement}")
    operand = bench.lay_out(values.mixed(bench.generator, bench.name, shape), placement)
    operand.storage.const_set(number, operand.layout)
    got = bench.read(operand.storage, bench.name, operand.buffer.shape, where)
    expected = oracle.const_set(bench.name, operand.buffer, operand.places, number)
    assert_same(got, expected, where)


def assign(bench: Bench) -> None:
    for case in WRITABLE + CONTIGUOUS[::3] + TILES:
        for other in ("contiguous", "offset", "rolled", "narrowed columns", "broadcast all"):
            if not case.shape and other not in ("contiguous", "offset"):
                continue
            where = bench.where(case, f"from {other}")
            target, source = (
                bench.lay_out(values.mixed(bench.generator, bench.name, case.shape), placement)
                for placement in (case.placement, other)
            )
            target.storage.assign(target.layout, source.storage, source.layout)
            got = bench.read(target.storage, bench.name, target.buffer.shape, where)
            assert_same(got, oracle.assign(target.buffer, target.places, source.values), where)
            bench.assert_untouched(source, where)
    # Within one storage, where neither order of single moves would do.
    for to, origin in (((0, 1), (3, 1)), ((3, 1), (0, 1)), ((0, 2), (5, 1)), ((40, 1), (40, 1)), ((0, 1), (0, 0))):
        where = bench.where(f"within a storage, to {to} from {origin}")
        line = bench.lay_out(values.mixed(bench.generator, bench.name, (3000,)))
        layouts = [Layout(Shape((1000,)), (step,), first) for first, step in (to, origin)]
        line.storage.assign(layouts[0], line.storage, layouts[1])
        indices = [first + step * np.arange(1000) for first, step in (to, origin)]
        got = bench.read(line.storage, bench.name, line.buffer.shape, where)
        assert_same(got, oracle.assign(line.buffer, indices[0], line.buffer[indices[1]]), where)
    square = bench.lay_out(values.mixed(bench.generator, bench.name, (70, 70)))
    square.storage.assign(square.layout, square.storage, square.layout.permute((1, 0)))
    got = bench.read(square.storage, bench.name, (70, 70), "a matrix from its transpose")
    assert_same(got, square.values.T, "a matrix from its transpose")
    number = bench.device.storage_from_slice([3], square.storage.dtype)
    square.storage.assign(Layout(Shape((35, 70)), (140, 1), 70), number, Layout(Shape((35, 70)), (0, 0)))
    got = bench.read(square.storage, bench.name, (70, 70), "a number")
    assert (got[1::2] == from_number(bench.name, 3.0)).all()
    assert_same(got[::2], square.values.T[::2], "beside a number")


def copy_strided_src(bench: Bench) -> None:
    for case in VIEWS + CONTIGUOUS + TILES:
        for offset, slack in ((0, 0), (3, 2)):
            where = bench.where(f"{case} to offset {offset}")
            source = bench.lay_out(values.mixed(bench.generator, bench.name, case.shape), case.placement)
            before = poison(bench.name, source.values.size + offset + slack)
            destination = bench.device.storage(before)
            source.storage.copy_strided_src(destination, offset, source.layout)
            got = bench.read(destination, bench.name, before.shape, where)
            assert_same(got, oracle.copy_strided_src(source.values, before, offset), where)
            bench.assert_untouched(source, where)


# The shape of the first, the sizes of all along the dim, and the dim.
JOINED = (
    ((3,), (3,), 0),
    ((2, 5), (5, 3), 1),
    ((2, 5), (2, 2), 0),
    ((4, 16, 8), (16, 32, 16), 1),
    ((4, 16, 8), (8, 0, 8), 2),
    ((3, 0, 2), (0, 4), 1),
    ((5, 1, 7), tuple(range(1, 14)), 1),
    ((5, 1, 7), tuple(range(1, 20)), 1),
    ((2, 3), (2,) * 40, 0),
    ((65, 3), (3, 3000), 1),
    ((1, 700), (700, 41, 5), 1),
    ((2, 2, 1, 3, 2), (1, 1), 2),
)


def cat(bench: Bench) -> None:
    placements = ("contiguous", "offset", "transposed", "narrowed columns", "broadcast all")
    for (shape, sizes, dim), start in itertools.product(JOINED, range(len(placements))):
        where = bench.where(f"{sizes} along {dim} of {shape}, from {placements[start]} on")
        operands = []
        for number, size in enumerate(sizes):
            placement = placements[(start + number) % len(placements)] if start else "contiguous"
            sized = (*shape[:dim], size, *shape[dim + 1 :])
            if len(shape) < 2 and placement in ("transposed", "narrowed columns"):
                placement = "offset"
            operands.append(bench.lay_out(values.mixed(bench.generator, bench.name, sized), placement))
        first, *others = operands
        storages, layouts = tuple(other.storage for other in others), tuple(other.layout for other in others)
        expected = oracle.cat([operand.values for operand in operands], dim)
        result = first.storage.cat(first.layout, storages, layouts, dim)
        assert_same(bench.read(result, bench.name, expected.shape, where), expected, where)
        for operand in operands:
            bench.assert_untouched(operand, where)


# Shape, border, and what is new in front of and behind each dim.
PADDED = (
    ((5,), "constant", (2,), (3,)),
    ((5,), "reflect", (4,), (-4,)),
    ((5,), "reflect", (4,), (3,)),
    ((1, 5), "replicate", (2, 0), (1, 7)),
    ((6, 1), "reflect", (5, 0), (-5, 0)),
    ((6, 5), "circular", (2, -1), (-2, 1)),
    ((6, 5), "circular", (6, 5), (6, 5)),
    ((4, 3, 5), "reflect", (0, 2, 4), (0, -2, -4)),
    ((4, 3, 5), "reflect", (3, 2, 4), (-3, -2, -4)),
    ((4, 3, 5), "reflect", (1, 0, 2), (3, 0, -3)),
    ((4, 3, 5), "constant", (0, -2, 1), (-3, 2, 0)),
    ((4, 3, 5), "constant", (-4, 0, 0), (2, 0, 0)),
    ((3, 0, 5), "constant", (0, 1, 1), (0, 1, 1)),
    ((3, 0, 5), "replicate", (1, 0, 1), (0, 0, 0)),
    ((2, 3, 4, 5), "replicate", (1, 2, 0, 3), (0, 1, 2, 0)),
    ((2, 3, 4, 5), "constant", (0, 0, 1, 1), (0, 0, 1, 1)),
    ((3, 70, 130), "reflect", (1, 2, 3), (2, 0, 40)),
    ((40, 1037), "circular", (3, 500), (-3, -500)),
    ((40, 1037), "constant", (1, 0), (2, 0)),
    ((), "constant", (), ()),
)


def pad(bench: Bench) -> None:
    placements = ("contiguous", "offset", "transposed", "narrowed columns", "broadcast all", "rolled")
    for (shape, border, before, after), placement in itertools.product(PADDED, placements):
        if len(shape) < 2 and placement not in ("contiguous", "offset"):
            continue
        for number in (0.0, -3.75):
            where = bench.where(f"{border} {before} and {after} of {shape}, {placement}, {number}")
            x = bench.lay_out(values.mixed(bench.generator, bench.name, shape), placement)
            expected = oracle.pad(bench.name, x.values, border, before, after, number)
            result = x.storage.pad(x.layout, border, before, after, number)
            assert_same(bench.read(result, bench.name, expected.shape, where), expected, where)
            bench.assert_untouched(x, where)


def copy2d(bench: Bench) -> None:
    for copy in COPIES:
        rows, columns, *strides_and_offsets = copy
        source_stride, destination_stride, source_offset, destination_offset = strides_and_offsets
        where = bench.where(f"d1, d2, strides, offsets {copy}")
        source_length = source_offset + max(rows - 1, 0) * source_stride + columns + 2
        destination_length = destination_offset + max(rows - 1, 0) * destination_stride + columns + 3
        source = bench.lay_out(values.mixed(bench.generator, bench.name, (source_length,)))
        before = poison(bench.name, destination_length)
        destination = bench.device.storage(before)
        source.storage.copy2d(destination, *copy)
        got = bench.read(destination, bench.name, before.shape, where)
        strides, offsets = (source_stride, destination_stride), (source_offset, destination_offset)
        assert_same(got, oracle.copy2d(source.values, before, rows, columns, strides, offsets), where)
        bench.assert_untouched(source, where)


HANDLERS = {
    "const_set": const_set,
    "assign": assign,
    "copy_strided_src": copy_strided_src,
    "cat": cat,
    "pad": pad,
    "copy2d": copy2d,
}
