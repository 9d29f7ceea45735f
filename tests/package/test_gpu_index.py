"""Elements at indexes on a GPU: what gathers, scatters and adds them, and in which order."""

import math
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from tallow.dtype import DType
from tallow.kernels import arguments
from tallow.runtime.backends.gpu_backend.ops import index as indexing
from tallow.runtime.backends.gpu_backend.ops import sums
from tallow.runtime.backends.gpu_backend.ops.geometry import parts
from tallow.runtime.backends.gpu_backend.ops.index import index_select, scatter_set
from tallow.runtime.backends.gpu_backend.ops.memory import synchronize
from tallow.runtime.base.error import InvalidIndex
from tallow.runtime.core.layout import Layout
from tallow.runtime.program.program import Fill
from tallow.runtime.program.values import Operand

from .programs import FACTS, LARGE, Run, Stored, at, built, expected_errors, grids, kernels, launches, layout


def test_rows_are_gathered_in_wide_elements():
    x, indexes = Stored(DType.F16, 1000), at(Stored(DType.I64, 10), (10,))
    program = built(index_select, at(x, (10, 64)), indexes, 0)
    assert kernels(program) == ["gather_b128"]
    assert kernels(built(index_select, at(x, (10, 64), (65, 1)), indexes, 0)) == ["gather_b16"]
    (launch,) = Run(program).launches
    _, _, _, errors, size, call, *of_indexes, row_stride, count = arguments.GATHER.unpack(launch.packed)[:12]
    assert (errors, size, call, row_stride, count) == (64, 10, 1, 8, 80)
    assert of_indexes == [(1 << 63) - 1, 8, 8, 0]
    assert expected_errors(program) == 1


def test_a_block_gathers_more_where_there_are_many_accesses_for_each_multiprocessor():
    x = Stored(DType.F16, 640)
    for rows, blocks in ((4095, 128), (4096, 32)):
        program = built(index_select, at(x, (10, 64)), at(Stored(DType.I64, rows), (rows,)), 0)
        assert grids(program) == [("gather_b128", blocks)]


def test_indexes_into_nothing_are_looked_at():
    x, indexes = Stored(DType.F32, 0), Stored(DType.I64, 10)
    for count in (10, 0):
        chosen = built(index_select, at(x, (4, 0)), at(indexes, (count,)), 0)
        added = built(sums.index_add, at(x, (4, 0)), at(indexes, (count,)), at(x, (count, 0)), 0)
        for program in (chosen, added):
            assert kernels(program) == ["index_check"] * (count > 0)
            assert expected_errors(program) == (count > 0)


PASSES = ["sort_u32_digits", "sort_u32_first", "sort_split"]


@pytest.mark.parametrize(
    ("shape", "dim", "name"),
    [
        # Few lines are walked by waves as long as they are short, and are sorted where they are long.
        ((1, 100), 1, "near"),
        ((16, 1024), 1, "near"),
        ((1, 1 << 20), 1, "sorted"),
        ((2, 1 << 19), 1, "sorted"),
        # Enough lines are walked by waves, a line in one piece or not, in shared memory where it fits there.
        ((1024, 1024), 1, "near"),
        ((1024, 1024), 0, "near"),
        ((1024, 1025), 1, "waves"),
        ((1025, 1024), 0, "waves"),
        ((1 << 16, 64), 1, "near"),
        # More lines than there are waves are walked by threads, as soon as neighbours are neighbours in memory.
        ((64, 1 << 20), 0, "lines"),
        ((1 << 20, 2), 1, "lines"),
    ],
)
def test_added_elements_are_sorted_or_walked_by_threads_or_waves(shape, dim, name):
    count = math.prod(shape)
    x, indexes, source = (at(Stored(dtype, count), shape) for dtype in (DType.F32, DType.U32, DType.F32))
    program = built(sums.scatter_add, x, indexes, source, dim, facts=LARGE)
    names = kernels(program)
    assert names[-1] == f"scatter_add_f32_{name}"
    if name == "sorted":
        assert expected_errors(program) == 1
        return
    # Of few indexes every block looks at all, which saves a launch.
    assert names[:-1] == ["index_check"] * (count > 1024)
    assert expected_errors(program) == len(names)
    is_unchecked, lines, length = arguments.SCATTER_LINES.unpack(Run(program).launches[-1].packed)[13:16]
    assert (is_unchecked, lines * length) == (count <= 1024, count)


def test_an_index_that_positions_share_is_looked_at_once():
    x, indexes, source = (Stored(dtype, 1 << 20) for dtype in (DType.F32, DType.I64, DType.F32))
    shape, shared = layout((1024, 1024)), layout((1024, 1024), (1, 0))
    operands = Operand(x, shape), Operand(indexes, shared), Operand(source, shape)
    launch = Run(built(sums.scatter_add, *operands, 0, facts=LARGE)).launches[0]
    assert launch.kernel == "index_check"
    assert arguments.INDEX_CHECK.unpack(launch.packed)[8:11] == (1024, 1, 1024)


def test_all_indexes_are_looked_at_before_anything_is_written():
    """Where the elements are more than one launch numbers."""
    shape = layout((3, 1 << 30))
    operands = [Operand(Stored(DType.U8, 3 << 30), shape) for _ in range(3)]
    program = built(scatter_set, *operands, 0)
    assert kernels(program) == ["index_check"] * 2 + ["scatter_mark", "scatter_set_b8"] * 3
    launched = Run(program).launches
    assert {arguments.INDEX_CHECK.unpack(launch.packed)[3] for launch in launched[:2]} == {1}
    assert {arguments.SCATTER.unpack(launch.packed)[6] for launch in launched[2:]} == {1}


def test_sums_of_short_floats_are_kept_in_long_ones():
    def added(width):
        shape = layout((128, width))
        operands = [Operand(Stored(dtype, 1 << 18), shape) for dtype in (DType.F16, DType.U32, DType.F16)]
        return kernels(built(sums.scatter_add, *operands, 1))

    casts = ["to_dtype_f32_f16_contiguous", "to_dtype_f16_f32_contiguous"]
    assert added(1025) == ["index_check", casts[0], "scatter_add_f16_waves", casts[1]]
    # Not where they are in shared memory meanwhile.
    assert added(1024) == ["index_check", "scatter_add_f16_near"]


def test_no_more_waves_than_whose_lines_stay_in_a_cache(monkeypatch):
    monkeypatch.setattr(sums, "_SORT_PASS", math.inf)
    shape, x = (1 << 12, 1 << 14), Stored(DType.F32, 1 << 26)
    indexes, source = Stored(DType.I64, 1 << 26), Stored(DType.F32, 1 << 26)

    def blocks(target, added, multiprocessors):
        facts = FACTS._replace(multiprocessors=multiprocessors)
        program = built(sums.scatter_add, at(x, target), at(indexes, added), at(source, added), 1, facts=facts)
        assert kernels(program) == ["index_check", "scatter_add_f32_waves"]
        return launches(program)[-1].blocks

    # 8 waves a block: of 4 multiprocessors 32 each have room, of which 8 stay near where a line has 64 KiB.
    long, short = (shape, shape), ((1 << 12, 1025), (1 << 12, 64))
    assert [blocks(*shapes, 4) for shapes in (long, short)] == [16, 16]
    assert [blocks(*shapes, 64) for shapes in (long, short)] == [64, 256]


def test_few_indexes_are_looked_for_by_every_element_in_one_launch():
    x, indexes, source = (Stored(dtype, 1 << 16) for dtype in (DType.F16, DType.I64, DType.F16))
    program = built(sums.index_add, at(x, (256, 256)), at(indexes, (256,), (3,)), at(source, (256, 256)), 0)
    assert grids(program) == [("index_add_f16_few", 256)]
    assert expected_errors(program) == 1
    fields = arguments.INDEX_ADD_FEW.unpack(Run(program).launches[0].packed)
    assert fields[11:17] == (3, 256, 256, 0, 1 << 16, 2)


def test_few_keys_are_sorted_by_one_block():
    x, indexes, source = (Stored(dtype, 1 << 20) for dtype in (DType.F32, DType.U32, DType.F32))

    def added(rows, count):
        return built(sums.index_add, at(x, (rows, 8)), at(indexes, (count,)), at(source, (count, 8)), 0)

    def filled(program):
        return [(step.byte, step.nbytes) for step in program.steps if isinstance(step, Fill)]

    few, wide, many = added(300, 4096), added(1 << 15, 4096), added(300, 4097)
    assert kernels(few) == kernels(wide) == ["sort_keys", "index_add_f32"]
    assert kernels(many) == ["index_keys", *PASSES, "index_starts", "index_add_f32"]
    assert filled(few) == []
    assert filled(wide) == [(255, 1 << 17)]
    assert filled(many)[0] == (255, 1200)
    fields = arguments.SORT_KEYS.unpack(Run(few).launches[0].packed)
    assert (fields[5], fields[11:15]) == (300, (1, 300, 9, 4096))
    assert arguments.SORT_KEYS.unpack(Run(wide).launches[0].packed)[12:15] == (0, 16, 4096)
    line = built(sums.scatter_add, at(x, (9,)), at(indexes, (4096,)), at(source, (4096,)), 0)
    assert kernels(line) == ["sort_keys", "scatter_add_f32_sorted"]


def added_in_order(target, indexes, source, dim):
    """The sums in the order of positions, in the compute dtype, rounded once."""
    compute = np.promote_types(target.dtype, np.float32) if target.dtype.kind == "f" else target.dtype
    totals = np.moveaxis(target.astype(compute), dim, -1)
    lines = np.indices(totals.shape[:-1])
    indexes, source = np.moveaxis(indexes, dim, -1), np.moveaxis(source.astype(compute), dim, -1)
    for position in range(indexes.shape[-1]):
        row = indexes[..., position]
        named = row != np.iinfo(row.dtype).max
        index = (*(line[named] for line in lines), row[named])
        totals[index] += source[..., position][named]
    return np.moveaxis(totals, -1, dim).astype(target.dtype)


def by_sorting(build, x, indexes, source, dim):
    sums._add_sorted(build, x, indexes, source, dim, x.layout.end - x.layout.start_offset)


def by_lines(variant):
    def add(build, x, indexes, source, dim):
        sums._add_by_lines(build, variant, "scatter_add", x, indexes, source, dim)

    return add


ADDERS = {
    "sorted": by_sorting,
    "threads": by_lines(sums._Algorithm.THREADS),
    "waves": by_lines(sums._Algorithm.WAVES),
    "near": by_lines(sums._Algorithm.NEAR),
    "shared": by_lines(sums._Algorithm.SHARED),
    "atomic": sums._add_atomically,
}


# The shape of the target, that of the indexes, and the dim.
LINES = [
    ((300,), (1,), 0),
    ((300,), (31,), 0),
    ((40,), (700,), 0),
    ((40,), (4097,), 0),
    ((70, 40), (70, 130), 1),
    ((40, 300), (130, 300), 0),
    ((2, 500, 3), (2, 257, 3), 1),
    ((5, 2), (5, 128), 1),
]


ORDERS = {
    "random": lambda generator, shape, dim, size: generator.integers(0, size, shape),
    "one": lambda generator, shape, dim, size: np.full(shape, size - 1),
    "descending": lambda generator, shape, dim, size: np.flip(np.indices(shape)[dim] % size, dim),
    "pairs": lambda generator, shape, dim, size: np.indices(shape)[dim] // 2 % size,
    "apart": lambda generator, shape, dim, size: np.indices(shape)[dim] % min(33, size),
}


@pytest.mark.parametrize("way", ["sorted", "threads", "waves", "near"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int64, np.uint8])
def test_every_way_adds_in_the_order_of_positions(gpu, way, dtype, request):
    generator, add = np.random.default_rng(7), ADDERS[way]
    # Which positions come when is the same for all dtypes.
    orders = list(ORDERS.items())[: None if dtype is np.float32 or request.config.getoption("--full") else 1]

    def numbers(shape):
        drawn = generator.standard_normal(shape) * 30
        return drawn.astype(dtype if np.dtype(dtype).kind == "f" else np.int8).astype(dtype)

    for (shape, index_shape, dim), (order, draw) in product(LINES, orders):
        x, source = numbers(shape), numbers(index_shape)
        indexes = draw(generator, index_shape, dim, shape[dim]).astype(np.int64)
        indexes[generator.random(index_shape) < 0.05] = np.iinfo(np.int64).max
        # Each second element of the target.
        wide = np.stack([x, x], -1)
        target = gpu.storage(wide)
        strides = tuple(2 * step for step in Layout.contiguous(shape).strides)
        added = [at(gpu.storage(array), index_shape) for array in (indexes, source)]
        gpu.run(add, at(target, shape, strides), *added, dim)
        wide[..., 0] = added_in_order(x, indexes, source, dim)
        np.testing.assert_array_equal(target.to_numpy().reshape(wide.shape), wide, f"{order} of {index_shape}")


@pytest.mark.parametrize("many", [1, 1 << 20])
def test_whole_accesses_are_gathered(gpu, many, monkeypatch):
    monkeypatch.setattr(indexing, "_MANY", many)
    # 3 accesses a row, and a last block that is not full.
    x = np.arange(37 * 12, dtype=np.float32).reshape(37, 12)
    chosen = np.random.default_rng(7).integers(0, 37, 12345)
    expected = x[chosen]
    chosen[::10], expected[::10] = np.iinfo(np.int64).max, 0

    def gathered():
        return gpu.run(index_select, at(gpu.storage(x), x.shape), at(gpu.storage(chosen), chosen.shape), 0)

    np.testing.assert_array_equal(gathered().to_numpy().reshape(expected.shape), expected)
    chosen[-1] = 37
    gathered()
    with pytest.raises(InvalidIndex, match="index_select: index 37 is out of range; use one from 0 to 36"):
        synchronize(gpu)


@pytest.mark.parametrize("way", ["sorted", "threads", "waves", "near"])
def test_every_way_adds_one_row_to_all(gpu, way):
    generator = np.random.default_rng(8)
    x, row = generator.standard_normal((6, 7)).astype(np.float32), generator.standard_normal(6).astype(np.float32)
    indexes = generator.integers(0, 7, (6, 200)).astype(np.int32)
    target = gpu.storage(x)
    source = at(gpu.storage(row), (6, 200), (1, 0))
    gpu.run(ADDERS[way], at(target, x.shape), at(gpu.storage(indexes), (6, 200)), source, 1)
    expected = added_in_order(x, indexes, np.broadcast_to(row[:, None], (6, 200)), 1)
    np.testing.assert_array_equal(target.to_numpy().reshape(x.shape), expected)


# Eighths are added exactly, so that any order gives the same sums.
@pytest.mark.parametrize("way", ["shared", "atomic"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_every_way_adds_all_in_any_order(gpu, way, dtype):
    generator = np.random.default_rng(7)
    # The last is a line of three parts.
    for shape, index_shape, dim in [*LINES, ((20000,), (600,), 0)]:
        x = generator.integers(-8, 8, shape).astype(dtype)
        source = (generator.integers(-8, 8, index_shape) / 8).astype(dtype)
        indexes = generator.integers(0, shape[dim], index_shape)
        indexes[generator.random(index_shape) < 0.05] = np.iinfo(np.int64).max
        wide = np.stack([x, x], -1)
        target = gpu.storage(wide)
        strides = tuple(2 * step for step in Layout.contiguous(shape).strides)
        add = ADDERS[way]
        added = [at(gpu.storage(array), index_shape) for array in (indexes, source)]
        gpu.run(add, at(target, shape, strides), *added, dim)
        totals = added_in_order(x.astype(np.float64), indexes, source.astype(np.float64), dim)
        wide[..., 0] = totals.astype(np.float32).astype(dtype)
        np.testing.assert_array_equal(target.to_numpy().reshape(wide.shape), wide, f"{index_shape}")


@pytest.mark.parametrize("way", ["sorted", "threads", "waves", "near", "shared", "atomic"])
@pytest.mark.parametrize("index", [50, -1, 1 << 32])
@pytest.mark.parametrize("length", [3, 150, 2000])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_every_way_writes_nothing_where_an_index_is_out_of_range(gpu, way, index, length, dtype):
    ones = np.ones((3, length), dtype)
    indexes = np.arange(3 * length).reshape(3, length) % 50
    good, bad = gpu.storage(indexes), indexes.copy()
    bad[2, length // 2] = index
    target, source = gpu.storage(np.ones((3, 50), dtype)), at(gpu.storage(ones), (3, length))

    def add(places):
        gpu.run(ADDERS[way], at(target, (3, 50)), at(places, (3, length)), source, 1)

    add(gpu.storage(bad))
    with pytest.raises(InvalidIndex, match=f"scatter_add: index {index} is out of range; use one from 0 to 49"):
        synchronize(gpu)
    assert target.to_numpy().tolist() == [1] * 150
    # Only the call that had the index is refused.
    add(gpu.storage(bad))
    add(good)
    with pytest.raises(InvalidIndex):
        synchronize(gpu)
    counts = [np.bincount(line, minlength=50) for line in indexes]
    np.testing.assert_array_equal(target.to_numpy(), 1 + np.concatenate(counts))


@pytest.mark.parametrize(
    ("shape", "index_shape", "dim", "kernels_of_call"),
    [
        ((64, 100), (64, 200), 1, ["index_check", "scatter_add_f32_shared"]),
        ((4, 100), (4, 200), 1, ["scatter_add_f32_shared"]),
        ((64, 100), (200, 100), 0, ["index_check", "scatter_add_f32_atomic"]),
        ((1 << 20,), (5000,), 0, ["index_check", "scatter_add_f32_atomic"]),
        ((50,), (5000,), 0, ["index_check", "scatter_add_f32_atomic"]),
    ],
)
def test_in_any_order_blocks_take_lines_where_those_are_many_and_full(shape, index_shape, dim, kernels_of_call):
    x, source = (at(Stored(DType.F32, math.prod(sizes)), sizes) for sizes in (shape, index_shape))
    indexes = at(Stored(DType.I64, math.prod(index_shape)), index_shape)
    assert kernels(built(sums.scatter_add_in_any_order, x, indexes, source, dim)) == kernels_of_call


def test_a_scatter_of_several_parts_writes_nothing_where_an_index_is_out_of_range(gpu, monkeypatch):
    monkeypatch.setattr(
        "tallow.runtime.backends.gpu_backend.ops.index.parts", lambda *arguments: parts(*arguments, limit=16)
    )
    indexes = np.arange(50) % 10
    indexes[49] = 10
    target = gpu.storage(np.zeros(10, np.int32))
    chosen, source = at(gpu.storage(indexes), (50,)), at(gpu.storage(np.ones(50, np.int32)), (50,))
    gpu.run(scatter_set, at(target, (10,)), chosen, source, 0)
    with pytest.raises(InvalidIndex, match="scatter_set: index 10 is"):
        synchronize(gpu)
    assert target.to_numpy().tolist() == [0] * 10


@pytest.mark.parametrize("looks", [0, 1 << 26])
@pytest.mark.parametrize("columns", [3, 70])
@pytest.mark.parametrize(
    ("count", "size"), [(1, 1), (255, 3), (257, 300), (1024, 5), (1025, 70), (4096, 20000), (9000, 70)]
)
def test_rows_are_added_in_the_order_of_positions(gpu, monkeypatch, count, size, columns, looks):
    """Whether elements look for the indexes of their row, where these are at most 1024, or indexes are sorted."""
    monkeypatch.setattr(sums, "_FEW_LOOKS", looks)
    generator = np.random.default_rng(count)
    x, source = (generator.standard_normal((rows, columns)).astype(np.float32) for rows in (size, count))
    indexes = generator.integers(0, size, count).astype(np.int64)
    indexes[generator.random(count) < 0.05] = np.iinfo(np.int64).max
    operands = [at(gpu.storage(array), array.shape) for array in (x, indexes, source)]
    actual = gpu.run(sums.index_add, *operands, 0).to_numpy().reshape(size, columns)
    expected = added_in_order(x, np.broadcast_to(indexes[:, None], source.shape), source, 0)
    np.testing.assert_array_equal(actual, expected)


def test_what_is_written_to_is_not_read():
    x = Stored(DType.I64, 100)
    square = at(x, (5, 5))
    program = built(scatter_set, square, at(x, (5, 5), None, 50), square, 0)
    run = Run(program)
    assert len(run.copies) == 1
    assert kernels(program) == ["scatter_mark", "scatter_set_b64"]
    assert [nbytes for _, _, nbytes in run.fills] == [100]
