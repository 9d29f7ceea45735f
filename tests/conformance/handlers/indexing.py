"""Elements that are added or written where indexes of every dtype say, and what is wrong with indexes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import values
from ..bench import Bench
from ..comparison import assert_same
from ..layouts import Operand
from ..oracle import indexing as oracle
from ..oracle.formats import INTEGERS, NO_ROW, NUMPY, Array
from ..oracle.indexing import GATHERS, SELECTIONS


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


def scatter_set(bench: Bench) -> None:
    _scatter(bench, values.mixed)


def scatter_add(bench: Bench) -> None:
    _scatter(bench, values.modest)


def _scatter(bench: Bench, draw: Callable[[np.random.Generator, str, tuple[int, ...]], Array]) -> None:
    adds = bench.cell.method == "scatter_add"
    for index_name in NO_ROW:
        for shape, index_shape, dim, placements in bench.some(GATHERS):
            where = bench.where(f"{index_name} indexes {index_shape}, dim {dim} of {shape}, {placements}")
            tensor = bench.lay_out(draw(bench.generator, bench.name, shape), placements[0])
            indexes = bench.lay_out(draw_indexes(bench, index_name, index_shape, shape[dim]), placements[1], index_name)
            source = bench.lay_out(draw(bench.generator, bench.name, index_shape), placements[2])
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
        tensor = bench.lay_out(values.modest(bench.generator, bench.name, (4, 5)))
        source = bench.lay_out(values.modest(bench.generator, bench.name, (4, 6)))

        def call(indexes: Operand, tensor: Operand = tensor, source: Operand = source) -> object:
            operands = (tensor.layout, indexes.storage, indexes.layout, source.storage, source.layout, 1)
            return getattr(tensor.storage, bench.cell.method)(*operands)

        check_bad_indexes(bench, index_name, (4, 6), 5, call)
        bench.assert_untouched(tensor, bench.where(f"{index_name} indexes that are bad write nothing"))


def index_add(bench: Bench) -> None:
    for index_name in NO_ROW:
        for shape, count, dim, placements in bench.some(SELECTIONS):
            where = bench.where(f"{count} {index_name} indexes, dim {dim} of {shape}, {placements}")
            tensor = bench.lay_out(values.modest(bench.generator, bench.name, shape), placements[0])
            indexes = bench.lay_out(draw_indexes(bench, index_name, (count,), shape[dim]), placements[1], index_name)
            source_shape = (*shape[:dim], count, *shape[dim + 1 :])
            source = bench.lay_out(values.modest(bench.generator, bench.name, source_shape), placements[2])
            operands = (tensor.layout, indexes.storage, indexes.layout, source.storage, source.layout, dim)
            got = bench.read(tensor.storage.index_add(*operands), bench.name, shape, where)
            expected = oracle.index_add(bench.name, tensor.values, indexes.values, index_name, source.values, dim)
            assert_same(got, expected, where)
            bench.assert_untouched(tensor, where)
        tensor = bench.lay_out(values.modest(bench.generator, bench.name, (5, 4)))
        source = bench.lay_out(values.modest(bench.generator, bench.name, (6, 4)))

        def call(indexes: Operand, tensor: Operand = tensor, source: Operand = source) -> object:
            operands = (tensor.layout, indexes.storage, indexes.layout, source.storage, source.layout, 0)
            return tensor.storage.index_add(*operands)

        check_bad_indexes(bench, index_name, (6,), 5, call)
        bench.assert_untouched(tensor, bench.where(f"{index_name} indexes that are bad write nothing"))
        # They are looked at even where there is nothing to add.
        empty = [bench.lay_out(values.modest(bench.generator, bench.name, (rows, 0))) for rows in (5, 6)]
        check_bad_indexes(bench, index_name, (6,), 5, lambda indexes, operands=empty: call(indexes, *operands))


def check_bad_indexes(
    bench: Bench, index_name: str, shape: tuple[int, ...], size: int, call: Callable[[Operand], object]
) -> None:
    """One index in the middle is bad."""
    for bad in bench.some(bad_indexes(index_name, size)):
        numbers = bench.generator.integers(0, size, shape).astype(NUMPY[index_name])
        numbers.ravel()[numbers.size // 2] = bad
        indexes = bench.lay_out(numbers, name=index_name)
        where = bench.where(f"{index_name} index {bad} of {size}")
        bench.raises_invalid_index(lambda indexes=indexes: call(indexes), bad, size, where)


HANDLERS = {
    "scatter_set": scatter_set,
    "scatter_add": scatter_add,
    "index_add": index_add,
}
