"""gather, index_select, scatter_set, scatter_add, index_add, with indexes of every dtype."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import values
from ..bench import Bench
from ..comparison import assert_same
from ..layouts import Operand
from ..oracle import indexing as oracle
from ..oracle.formats import INTEGERS, NO_ROW, NUMPY, Array

# The shape of the tensor, that of the indexes, the dim, and how tensor, indexes and source lie.
GATHERS: list[tuple[tuple[int, ...], tuple[int, ...], int, tuple[str, str, str]]] = [
    ((7,), (9,), 0, ("contiguous", "contiguous", "contiguous")),
    ((1,), (1,), 0, ("offset", "offset", "offset")),
    ((5, 4, 3), (6, 4, 3), 0, ("contiguous", "contiguous", "contiguous")),
    ((5, 4, 3), (5, 2, 3), 1, ("transposed", "offset", "rolled")),
    ((5, 4, 3), (4, 3, 7), 2, ("narrowed columns", "rolled", "broadcast middle")),
    ((5, 6), (5, 6), 1, ("offset", "broadcast rows", "transposed")),
    ((5, 6), (5, 6), 0, ("narrowed rows", "broadcast columns", "broadcast all")),
    ((2, 3, 2, 3, 2), (2, 3, 4, 2, 1), 2, ("rolled", "transposed", "contiguous")),
    ((5, 64), (4, 64), 1, ("offset", "offset", "offset")),
    ((6, 65), (3, 65), 0, ("contiguous", "contiguous", "narrowed columns")),
    ((2, 40), (2, 257), 1, ("contiguous", "contiguous", "contiguous")),
    ((4, 3), (0, 3), 0, ("contiguous", "contiguous", "contiguous")),
    ((4, 0), (2, 0), 0, ("contiguous", "contiguous", "contiguous")),
    # More elements than some index dtypes can name: there the largest value of u8 is an index, of i16 the mark.
    ((300,), (500,), 0, ("contiguous", "contiguous", "contiguous")),
    ((33000,), (90,), 0, ("contiguous", "contiguous", "contiguous")),
]
# A dim without elements, of which only "no row" can be asked.
NOTHING: tuple[tuple[int, ...], tuple[int, ...], int] = ((0, 3), (2, 3), 0)
# The shape of the tensor, the number of indexes, the dim, and how tensor, indexes and source lie.
SELECTIONS: list[tuple[tuple[int, ...], int, int, tuple[str, str, str]]] = [
    ((7,), 9, 0, ("contiguous", "contiguous", "contiguous")),
    ((5, 4), 8, 0, ("offset", "offset", "offset")),
    ((5, 4), 3, 1, ("transposed", "contiguous", "transposed")),
    ((3, 6, 5), 8, 1, ("narrowed columns", "narrowed columns", "rolled")),
    ((3, 6, 5), 4, 2, ("broadcast rows", "broadcast all", "broadcast middle")),
    ((2, 3, 2, 3, 2), 5, 3, ("rolled", "contiguous", "transposed")),
    ((20, 65), 33, 0, ("contiguous", "contiguous", "contiguous")),
    ((2, 40), 257, 1, ("contiguous", "contiguous", "contiguous")),
    ((4, 3), 0, 0, ("contiguous", "contiguous", "contiguous")),
    ((0, 3), 0, 0, ("contiguous", "contiguous", "contiguous")),
    ((4, 0), 2, 0, ("contiguous", "contiguous", "contiguous")),
]


def draw_indexes(bench: Bench, name: str, shape: tuple[int, ...], size: int) -> Array:
    """Indexes into a dim of `size`, with repetitions, and some "no row" marks where the dtype has one."""
    mark = NO_ROW[name]
    highest = min(size, INTEGERS[name].highest + (mark is None))
    indexes = bench.generator.integers(0, max(highest, 1), shape).astype(NUMPY[name])
    if mark is not None:
        marked = bench.generator.random(shape) < (0.15 if size else 2)
        indexes = np.where(marked, NUMPY[name].type(mark), indexes)
    return indexes


def bad_indexes(name: str, size: int) -> list[int]:
    """Indexes outside of a dim of `size` that `name` can hold; also those that 32 bits would take for a good one."""
    bounds = INTEGERS[name]
    candidates = [size, size + 1, -1, -size, bounds.lowest, bounds.highest - 1, 2**32, 2**32 + 1, -(2**32), 2**31, 255]
    return [
        index
        for index in dict.fromkeys(candidates)
        if bounds.lowest <= index <= bounds.highest and index != NO_ROW[name] and not 0 <= index < size
    ]


def gather(bench: Bench) -> None:
    for index_name in NO_ROW:
        for shape, index_shape, dim, placements in GATHERS:
            where = bench.where(f"{index_name} indexes {index_shape}, dim {dim} of {shape}, {placements[:2]}")
            tensor = bench.place(values.mixed(bench.generator, bench.name, shape), placements[0])
            indexes = bench.place(draw_indexes(bench, index_name, index_shape, shape[dim]), placements[1], index_name)
            result = tensor.storage.gather(tensor.layout, indexes.storage, indexes.layout, dim)
            got = bench.read(result, bench.name, index_shape, where)
            expected = oracle.gather(tensor.values, indexes.values, index_name, dim)
            assert_same(got, expected, where, {"index": indexes.values})
        tensor = bench.place(values.modest(bench.generator, bench.name, (4, 5)))

        def call(indexes: Operand, tensor: Operand = tensor) -> object:
            return tensor.storage.gather(tensor.layout, indexes.storage, indexes.layout, 1)

        check_bad_indexes(bench, index_name, (4, 6), 5, call)
        _check_nothing(bench, index_name)


def _check_nothing(bench: Bench, index_name: str) -> None:
    """Any index into a dim without elements is an error, a mark gives 0."""
    shape, index_shape, dim = NOTHING
    tensor = bench.place(np.zeros(shape, NUMPY[bench.name]))
    zeros = bench.place(np.zeros(index_shape, NUMPY[index_name]), name=index_name)
    where = bench.where(f"{index_name} indexes into {shape}")

    def call() -> object:
        return tensor.storage.gather(tensor.layout, zeros.storage, zeros.layout, dim)

    bench.raises_invalid_index(call, 0, 0, where)
    if NO_ROW[index_name] is not None:
        marks = bench.place(draw_indexes(bench, index_name, index_shape, 0), name=index_name)
        result = tensor.storage.gather(tensor.layout, marks.storage, marks.layout, dim)
        got = bench.read(result, bench.name, index_shape, where)
        assert_same(got, np.zeros(index_shape, tensor.values.dtype), where)


def index_select(bench: Bench) -> None:
    for index_name in NO_ROW:
        for shape, count, dim, placements in SELECTIONS:
            where = bench.where(f"{count} {index_name} indexes, dim {dim} of {shape}, {placements[:2]}")
            tensor = bench.place(values.mixed(bench.generator, bench.name, shape), placements[0])
            indexes = bench.place(draw_indexes(bench, index_name, (count,), shape[dim]), placements[1], index_name)
            result = tensor.storage.index_select(indexes.storage, tensor.layout, indexes.layout, dim)
            expected = oracle.index_select(tensor.values, indexes.values, index_name, dim)
            got = bench.read(result, bench.name, expected.shape, where)
            assert_same(got, expected, where)
        tensor = bench.place(values.modest(bench.generator, bench.name, (5, 4)))

        def call(indexes: Operand, tensor: Operand = tensor) -> object:
            return tensor.storage.index_select(indexes.storage, tensor.layout, indexes.layout, 0)

        check_bad_indexes(bench, index_name, (6,), 5, call)
        # They are looked at even where there is nothing to choose.
        nothing = bench.place(values.modest(bench.generator, bench.name, (5, 0)))
        check_bad_indexes(bench, index_name, (6,), 5, lambda indexes, tensor=nothing: call(indexes, tensor))


def scatter_set(bench: Bench) -> None:
    _scatter(bench, values.mixed)


def scatter_add(bench: Bench) -> None:
    _scatter(bench, values.modest)


def _scatter(bench: Bench, draw: Callable[[np.random.Generator, str, tuple[int, ...]], Array]) -> None:
    adds = bench.cell.method == "scatter_add"
    for index_name in NO_ROW:
        for shape, index_shape, dim, placements in bench.some(GATHERS):
            where = bench.where(f"{index_name} indexes {index_shape}, dim {dim} of {shape}, {placements}")
            tensor = bench.place(draw(bench.generator, bench.name, shape), placements[0])
            indexes = bench.place(draw_indexes(bench, index_name, index_shape, shape[dim]), placements[1], index_name)
            source = bench.place(draw(bench.generator, bench.name, index_shape), placements[2])
            if adds:
                expected = oracle.scatter_add(bench.name, tensor.values, indexes.values, index_name, source.values, dim)
            else:
                expected = oracle.scatter_set(tensor.values, indexes.values, index_name, source.values, dim)
            operands = (tensor.layout, indexes.storage, indexes.layout, source.storage, source.layout, dim)
            getattr(tensor.storage, bench.cell.method)(*operands)
            buffer = tensor.buffer.copy()
            buffer[tensor.places] = expected
            got = bench.read(tensor.storage, bench.name, buffer.shape, where)
            assert_same(got[tensor.places], expected, where)
            assert_same(got, buffer, f"{where}: outside of the layout")
        tensor = bench.place(values.modest(bench.generator, bench.name, (4, 5)))
        source = bench.place(values.modest(bench.generator, bench.name, (4, 6)))

        def call(indexes: Operand, tensor: Operand = tensor, source: Operand = source) -> object:
            operands = (tensor.layout, indexes.storage, indexes.layout, source.storage, source.layout, 1)
            return getattr(tensor.storage, bench.cell.method)(*operands)

        check_bad_indexes(bench, index_name, (4, 6), 5, call)
        bench.assert_untouched(tensor, bench.where(f"{index_name} indexes that are bad write nothing"))


def index_add(bench: Bench) -> None:
    for index_name in NO_ROW:
        for shape, count, dim, placements in SELECTIONS:
            where = bench.where(f"{count} {index_name} indexes, dim {dim} of {shape}, {placements}")
            tensor = bench.place(values.modest(bench.generator, bench.name, shape), placements[0])
            indexes = bench.place(draw_indexes(bench, index_name, (count,), shape[dim]), placements[1], index_name)
            source_shape = (*shape[:dim], count, *shape[dim + 1 :])
            source = bench.place(values.modest(bench.generator, bench.name, source_shape), placements[2])
            operands = (tensor.layout, indexes.storage, indexes.layout, source.storage, source.layout, dim)
            got = bench.read(tensor.storage.index_add(*operands), bench.name, shape, where)
            expected = oracle.index_add(bench.name, tensor.values, indexes.values, index_name, source.values, dim)
            assert_same(got, expected, where)
            bench.assert_untouched(tensor, where)
        tensor = bench.place(values.modest(bench.generator, bench.name, (5, 4)))
        source = bench.place(values.modest(bench.generator, bench.name, (6, 4)))

        def call(indexes: Operand, tensor: Operand = tensor, source: Operand = source) -> object:
            operands = (tensor.layout, indexes.storage, indexes.layout, source.storage, source.layout, 0)
            return tensor.storage.index_add(*operands)

        check_bad_indexes(bench, index_name, (6,), 5, call)
        bench.assert_untouched(tensor, bench.where(f"{index_name} indexes that are bad write nothing"))
        # They are looked at even where there is nothing to add.
        empty = [bench.place(values.modest(bench.generator, bench.name, (rows, 0))) for rows in (5, 6)]
        check_bad_indexes(bench, index_name, (6,), 5, lambda indexes, operands=empty: call(indexes, *operands))


def check_bad_indexes(
    bench: Bench, index_name: str, shape: tuple[int, ...], size: int, call: Callable[[Operand], object]
) -> None:
    """One index in the middle is bad."""
    for bad in bad_indexes(index_name, size):
        numbers = bench.generator.integers(0, size, shape).astype(NUMPY[index_name])
        numbers.ravel()[numbers.size // 2] = bad
        indexes = bench.place(numbers, name=index_name)
        where = bench.where(f"{index_name} index {bad} of {size}")
        bench.raises_invalid_index(lambda indexes=indexes: call(indexes), bad, size, where)


HANDLERS = {
    "gather": gather,
    "scatter_set": scatter_set,
    "scatter_add": scatter_add,
    "index_add": index_add,
    "index_select": index_select,
}
