"""What the ops of the GPU backends launch: which kernels, on how many blocks, with which arguments. No GPU needed."""

import itertools
import math
from functools import partial
from itertools import product
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tallow import Storage
from tallow.dtype import DType
from tallow.ggml_dtype import GgmlDType
from tallow.kernels import arguments
from tallow.kernels.constants import OPTIM_ROOM, OPTIM_TENSORS, SORT_TILE
from tallow.op import BinaryGradientsOp, BinaryOp, CmpOp, MethodOp, ReduceOp, UnaryOp
from tallow.runtime.backends.backend import BackendDevice
from tallow.runtime.backends.gpu_backend.driver.grid import MOST_BLOCKS
from tallow.runtime.backends.gpu_backend.memory.quantized import QGpuStorage
from tallow.runtime.backends.gpu_backend.memory.storage import GpuStorage
from tallow.runtime.backends.gpu_backend.ops import (
    attention,
    attention_gradient,
    copy,
    elementwise,
    matmul,
    optim,
    pool,
    quantized,
    reduce,
    rope,
    sort,
    sums,
    upsample,
)
from tallow.runtime.backends.gpu_backend.ops import index as indexing
from tallow.runtime.backends.gpu_backend.ops.geometry import LIMIT, divisor, parts, split, tiled
from tallow.runtime.backends.gpu_backend.ops.index import gather, index_select, scatter_set
from tallow.runtime.backends.gpu_backend.ops.loss import cross_entropy, ratio_of_sums
from tallow.runtime.backends.gpu_backend.ops.memory import synchronize
from tallow.runtime.backends.gpu_backend.ops.operand import Operand, dense
from tallow.runtime.base.error import InvalidArgument, InvalidIndex
from tallow.runtime.core.conv import ParamsConv2D
from tallow.runtime.core.layout import Layout
from tallow.runtime.core.optim import ROOM, parts_of
from tallow.runtime.core.shape import Shape

from . import backend

RANK = 8


class Recorder(BackendDevice):
    """A device that notes what it is told to do. Its memory is addresses only, so that storages may be of any size."""

    def __init__(self, storage_class=GpuStorage, **libraries):
        super().__init__()
        self.launches = []
        self.copies = []
        self.zeroed = []
        self.filled = []
        self.looks = 0
        self.kernels = SimpleNamespace(launch=lambda *launch: self.launches.append(launch[:4]))
        self.driver = SimpleNamespace(
            multiprocessors=4,
            wave_size=32,
            copy=lambda *arguments: self.copies.append(arguments),
            zero=lambda *arguments: self.zeroed.append(arguments),
            fill_bytes=lambda *arguments: self.filled.append(arguments),
        )
        calls = itertools.count(1)
        self.counters = 128
        self.index_errors = SimpleNamespace(address=64, next_call=lambda: next(calls), expect=self._expect)
        self.storage_class = storage_class
        vars(self).update(libraries)
        self._next = 1 << 20

    def _expect(self):
        self.looks += 1

    def allocate(self, nbytes):
        address, self._next = self._next, self._next + -(-nbytes // 256) * 256
        return SimpleNamespace(address=address if nbytes else 0, nbytes=nbytes)

    def empty(self, dtype, count):
        return self.storage_class(self, dtype, count, self.allocate(count * dtype.itemsize))

    @property
    def names(self):
        return [name for _, name, _, _ in self.launches]


@pytest.fixture
def device():
    return Recorder()


def layout(shape, strides=None, offset=0):
    return Layout(Shape(shape), strides, offset) if strides is not None else Layout.contiguous(shape, offset)


def at(storage, *arguments):
    """What a layout of these arguments reaches in a storage."""
    return Operand(storage, layout(*arguments))


def places(dims, strides):
    """Where each element is, in row-major order."""
    return [sum(map(math.prod, zip(index, strides, strict=True))) for index in np.ndindex(*dims)]


def located(count, geometry, operands):
    """What kernels make of the elements of a geometry, rank, dims, multipliers, shifts and strides: their places."""
    rank, *rest = geometry
    dims, multipliers, shifts = (rest[start : start + RANK] for start in (0, RANK, 2 * RANK))
    strides = [rest[start : start + RANK] for start in range(3 * RANK, (3 + operands) * RANK, RANK)]
    for element in range(count):
        found, index = [0] * operands, element
        for dim in range(rank):
            quotient = ((index * multipliers[dim] >> 32) + index) >> shifts[dim]
            for operand in range(operands):
                found[operand] += (index - quotient * dims[dim]) * strides[operand][dim]
            index = quotient
        yield tuple(found)


shapes = st.lists(st.integers(1, 5), max_size=5).map(tuple)


@st.composite
def strided(draw, operands=2):
    """A shape and the strides of operands, which may broadcast, be permuted or skip."""
    shape = draw(shapes)
    strides = []
    for _ in range(operands):
        steps, step = [0] * len(shape), draw(st.sampled_from((1, 1, 1, 2)))
        for dim in draw(st.permutations(range(len(shape)))) if draw(st.booleans()) else reversed(range(len(shape))):
            steps[dim] = 0 if draw(st.integers(0, 5)) == 0 else step
            step *= shape[dim] * draw(st.sampled_from((1, 1, 1, 1, 2)))
        strides.append(tuple(steps))
    return shape, tuple(strides)


@given(st.integers(1, LIMIT - 1), st.integers(0, LIMIT - 1))
def test_a_product_divides(size, index):
    multiplier, shift = divisor(size)
    assert multiplier < 1 << 32
    assert ((index * multiplier >> 32) + index) >> shift == index // size


@given(strided(), st.integers(2, 40))
def test_parts_reach_every_element_in_order(drawn, limit):
    shape, strides = drawn
    found = []
    for part in parts(7, shape, strides, limit):
        count = part.elements
        assert part.first == len(found)
        assert 0 < count < limit
        assert part.blocks == -(-count // 7)
        offsets = part.offsets
        found += [tuple(map(sum, zip(offsets, place, strict=True))) for place in located(count, part.geometry, 2)]
    assert found == list(zip(*(places(shape, operand) for operand in strides), strict=True))


def test_a_part_begins_where_whole_accesses_fit():
    pieces = list(split((2 * LIMIT + 5,), [(1,)]))
    assert [piece.first % 16 for piece in pieces] == [0, 0, 0]
    assert sum(math.prod(piece.dims) for piece in pieces) == 2 * LIMIT + 5


@settings(max_examples=30)
@given(strided(operands=1), st.sampled_from((1, 2, 4, 8)), st.integers(16, 70), st.integers(16, 70))
def test_tiles_turn_every_element_once(drawn, itemsize, lines, columns):
    outer, (steps,) = drawn
    assume(len(outer) <= 3)
    dims = (*outer, lines, columns)
    strides = [copy.row_major(dims), (*(step * lines * columns for step in steps), 1, lines)]
    launches = tiled(dims, strides, 1, itemsize)
    assert launches is not None
    (part,) = launches
    side = {1: 128, 2: 64, 4: 32, 8: 32}[itemsize]
    assert (part.elements, part.blocks) == (0, math.prod(outer) * -(-lines // side) * -(-columns // side))
    count = math.prod(dims)
    assert part.geometry[1:3] == (columns, lines)
    assert sorted(located(count, part.geometry, 2)) == sorted(
        zip(*(places(dims, operand) for operand in strides), strict=True)
    )


def test_more_tiles_than_a_launch_has_blocks_are_several_launches():
    count = 2 * MOST_BLOCKS + 5
    dims = (count, 20, 30)
    launches = tiled(dims, [copy.row_major(dims), (600, 1, 20)], 1, 4)
    assert launches is not None
    assert [(part.elements, part.blocks) for part in launches] == [
        (0, MOST_BLOCKS),
        (MOST_BLOCKS, MOST_BLOCKS),
        (2 * MOST_BLOCKS, 5),
    ]
    assert {part.geometry for part in launches} == {launches[0].geometry}


@given(strided(), st.sampled_from((1, 2, 4, 8)), st.sampled_from((1, 2, 4, 8, 16)), st.sampled_from((1, 4, 16)))
def test_copies_move_the_same_bytes_in_wide_elements(drawn, itemsize, alignment, inner):
    shape, (_, source) = drawn
    alignment = max(alignment, itemsize)
    shape, source = (*shape, inner), (*(step * inner for step in source), 1)
    target = copy.row_major(shape)
    plan = copy._copy_plan(shape, target, source, itemsize, alignment, False)
    assert plan.kernel == f"copy_b{8 * plan.width}_strided"
    assert alignment % plan.width == 0
    moved = set()
    for part in plan.parts:
        for places_of in located(part.elements, part.geometry, 2):
            bytes_of = [(place + offset) * plan.width for place, offset in zip(places_of, part.offsets, strict=True)]
            moved |= {tuple(begin + byte for begin in bytes_of) for byte in range(plan.width)}
    both = zip(places(shape, target), places(shape, source), strict=True)
    assert moved == {(to * itemsize + i, from_ * itemsize + i) for to, from_ in both for i in range(itemsize)}


@given(strided(operands=1), st.sampled_from((1, 2, 4, 8)))
def test_fills_reach_what_the_layout_reaches(drawn, itemsize):
    shape, (strides,) = drawn
    plan = copy._fill_plan(shape, strides, itemsize, 16)
    assert plan.width <= 8
    written = {place * plan.width + byte for part in plan.parts for (place,) in located(part.elements, part.geometry, 1)
               for byte in range(plan.width)}  # fmt: skip
    assert written == {place * itemsize + byte for place in places(shape, strides) for byte in range(itemsize)}


def reduced(plan, elements, is_ordered):
    """Which (place, position) each output is made of, in a model of the two kernels of the first pass."""
    terms = [[] for _ in range(plan.outputs)]
    for kernel, _, offset, splits, packer in plan.passes:
        fields = packer.keywords
        outputs, length, chunk, reduced_rank = (fields[name] for name in ("outputs", "length", "chunk", "reduced_rank"))
        rank, *rest = fields["geometry"]
        if kernel == "rows":
            pack, inner, dense = 1, 1, fields["dense"]
        else:
            packs, per_row, inner = fields["packs"], fields["packs_per_row"], fields["inner"]
            pack, dense = {1: 8, 2: 8, 4: 4, 8: 2}[elements.itemsize], False
        dims, strides = rest[:RANK], rest[3 * RANK :]
        kept = [places(dims[reduced_rank:rank][::-1], strides[reduced_rank:rank][::-1])]
        rows = range(length) if dense else places(dims[:reduced_rank][::-1], strides[:reduced_rank][::-1])
        assert splits * chunk >= length
        for number, place in enumerate(kept[0]):
            column = 0 if kernel == "rows" else number % per_row * pack
            for i in range(pack if kernel == "rows" else min(pack, inner - column)):
                output = number if kernel == "rows" else number // per_row * inner + column + i
                terms[output] += [(offset + place + i + row, position) for position, row in enumerate(rows)]
        if kernel == "columns":
            assert len(kept[0]) == packs
        assert outputs == plan.outputs
    return [sorted(places_of) if is_ordered else sorted(place for place, _ in places_of) for places_of in terms]


@given(strided(operands=1), st.data(), st.sampled_from((1, 2, 4, 8)), st.booleans())
def test_reductions_take_every_element_of_an_output_once(drawn, data, itemsize, is_ordered):
    shape, (strides,) = drawn
    dims = tuple(data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True))) if shape else ()
    elements = reduce._Elements(itemsize, 8, is_ordered, 128)
    kept = [dim for dim in range(len(shape)) if dim not in dims]
    found = []
    for plan in reduce._plans(elements, shape, strides, dims, 4):
        assert plan.first == len(found)
        found += reduced(plan, elements, is_ordered)
    expected = []
    for index in product(*(range(shape[dim]) for dim in kept)):
        begin = sum(i * strides[dim] for i, dim in zip(index, kept, strict=True))
        inner = places([shape[dim] for dim in sorted(dims)], [strides[dim] for dim in sorted(dims)])
        terms = [(begin + place, position) for position, place in enumerate(inner)]
        expected.append(sorted(terms) if is_ordered else sorted(place for place, _ in terms))
    assert found == expected


def test_long_sums_are_split_and_joined(device):
    reduce.reduce(ReduceOp.SUM, at(device.empty(DType.F32, 1 << 22), (1 << 22,)), (0,))
    (_, first, blocks, packed), (_, last, _, finish) = device.launches
    assert (first, last) == ("sum_f32_rows", "sum_f32_finish")
    _, _, count, outputs, length, splits, chunk, team, dense, *_ = arguments.REDUCE_ROWS.unpack(packed)
    assert count == length
    assert (outputs, length, team, dense, blocks) == (1, 1 << 22, 256, 1, splits)
    assert splits == -(-length // chunk) > 1
    assert arguments.REDUCE_FINISH.unpack(finish)[1:5] == (arguments.REDUCE_ROWS.unpack(packed)[0], count, 1, splits)


# By the op and dtype of a reduction, the bytes of what the kernels keep of a part.
@pytest.mark.parametrize(
    ("op", "dtype", "itemsize"),
    [("sum", "u8", 1), ("sum", "bf16", 4), ("any", "bool", 1), ("any", "u8", 4), ("sum_i64", "u8", 8)],
)
def test_partial_results_have_the_room_that_kernels_take(device, op, dtype, itemsize):
    sizes = []
    allocate = device.allocate
    device.allocate = lambda nbytes: sizes.append(nbytes) or allocate(nbytes)
    x = device.empty(DType(dtype), 1 << 22)
    reduce.reduce(ReduceOp(op), at(x, (1 << 22,)), (0,))
    splits = arguments.REDUCE_ROWS.unpack(device.launches[0][3])[5]
    assert splits > 1
    assert sizes[-1] == splits * itemsize


def test_more_elements_than_32_bits_number_become_splits_of_several_launches(device):
    reduce.reduce(ReduceOp.SUM, at(device.empty(DType.F16, 16), (3, LIMIT, 2), (1, 0, 3)), (1,))
    assert device.names == ["sum_f16_rows"] * 2 + ["sum_f16_finish"]
    begins = [arguments.REDUCE_ROWS.unpack(packed) for _, name, _, packed in device.launches if name.endswith("rows")]
    assert sum(fields[4] for fields in begins) == LIMIT
    assert begins[1][0] - begins[0][0] == begins[0][5] * 6 * 4
    # What all launches reduced for an output, and in how many splits.
    _, _, count, _, splits, _, _ = arguments.REDUCE_FINISH.unpack(device.launches[-1][3])
    assert (count, splits) == (LIMIT, begins[0][5] + begins[1][5])


def test_positions_are_counted_over_one_dense_row(device):
    x = device.empty(DType.U8, 2)
    reduce.reduce(ReduceOp.ARGMAX, at(x, (LIMIT, 2), (0, 1)), (0,))
    assert device.names[0] == "copy_b8_strided"
    rows = next(packed for _, name, _, packed in device.launches if name == "argmax_u8_rows")
    assert arguments.REDUCE_ROWS.unpack(rows)[3:5] == (2, LIMIT)
    assert arguments.REDUCE_ROWS.unpack(rows)[8] == 1
    with pytest.raises(InvalidArgument):
        reduce.reduce(ReduceOp.ARGMAX, at(x, (2 * LIMIT,), (0,)), (0,))


def test_rows_are_joined_in_the_widest_elements_that_divide_all(device):
    def joined(*widths, dtype=DType.F16, rows=6, offset=0, dim=1):
        shapes = [(rows, width) if dim else (width, rows) for width in widths]
        sources = [
            at(device.empty(dtype, offset + rows * width), shape, None, offset)
            for width, shape in zip(widths, shapes, strict=True)
        ]
        device.launches.clear()
        copy.cat(sources[0], dim, *sources[1:])
        return device.names

    assert joined(8, 16, 8) == ["join_b128"]
    assert joined(8, 12, 8) == ["join_b64"]
    assert joined(8, 16, offset=1) == ["join_b16"]
    assert joined(3, 5) == ["join_b16"]
    assert joined(3, 5, dim=0, rows=8) == ["join_b128"]
    assert joined(*[8] * 17) == ["join_many_b128"]
    assert joined(*[8] * 100) == ["join_many_b128", "join_b128"]
    # What is one piece each, and long, the driver copies.
    device.copies.clear()
    assert joined(1 << 20, 3, 1 << 20, dim=0, rows=16) == ["join_b128"]
    assert len(device.copies) == 2
    assert joined(8, 0, 8) == ["join_b128"]
    assert joined(0, 0) == []


def test_no_elements_launch_nothing(device):
    x, indexes = device.empty(DType.F32, 0), at(device.empty(DType.U32, 0), (0, 3))
    empty, matrices, images = at(x, (0, 3)), at(x, (0, 3, 3)), at(x, (0, 1, 2, 2))
    elementwise.unary(UnaryOp.EXP, empty)
    elementwise.binary(BinaryOp.ADD, empty, empty)
    elementwise.cast(MethodOp.TO_DTYPE, empty, result=DType.U8)
    copy.const_set(empty, 1.0)
    copy.clone(empty)
    copy.copy_strided_src(empty, x, 0)
    copy.copy2d(x, x, 0, 4, 4, 4, 0, 0)
    matmul.matmul(matrices, matrices, (0, 3, 3, 3))
    pool.max_pool2d(images, (2, 2), (1, 1))
    upsample.upsample_nearest2d(images, 4, 4)
    gather(at(x, (3, 3)), indexes, 0)
    sums.scatter_add(empty, indexes, empty, 0)
    assert reduce.reduce(ReduceOp.SUM, empty, (0,)).length == 3
    # The sums of nothing are what a sum begins with.
    assert device.names == ["sum_f32_rows"]
    assert not device.copies
    assert not device.zeroed


def test_products_of_halves_have_narrower_tiles_where_these_are_fewer_than_multiprocessors(device):
    device.driver.multiprocessors = 132
    x = device.empty(DType.F16, 1 << 22)
    for side in (1024, 2048):
        matmul.matmul(at(x, (1, side, side)), at(x, (1, side, side)), (1, side, side, side))
    assert [(name, blocks) for _, name, blocks, _ in device.launches] == [
        ("matmul_f16_tiles_nn", 8 * 16),
        ("matmul_f16_tiles_nn", 16 * 16),
    ]


def test_few_rows_are_reduced_in_one_pass_by_blocks_of_few_columns(device):
    device.driver.multiprocessors = 132
    x = device.empty(DType.F16, 1 << 28)
    reduce.reduce(ReduceOp.SUM, at(x, (256, 256)), (0,))
    reduce.reduce(ReduceOp.SUM, at(x, (1 << 14, 1 << 14)), (0,))
    launched = [(name, blocks) for _, name, blocks, _ in device.launches]
    assert launched == [("sum_f16_columns", 8), ("sum_f16_columns", 512), ("sum_f16_finish", 128)]


def test_elementwise_variants(device):
    x, y = device.empty(DType.F32, 1 << 20), device.empty(DType.F32, 1 << 20)
    plain, transposed = at(x, (128, 48), None, 3), at(y, (128, 48), (1, 128))
    result = elementwise.binary(BinaryOp.ADD, plain, at(y, (128, 48), None, 3))
    elementwise.binary(BinaryOp.ADD, plain, at(y, (128, 48), (0, 1)))
    elementwise.binary(BinaryOp.SUB, plain, transposed)
    elementwise.compare(CmpOp.LT, plain, at(y, (128, 48), (0, 1)))
    assert device.names == ["add_f32_contiguous", "add_f32_strided", "sub_f32_transposed", "lt_f32_strided"]
    assert [blocks for _, _, blocks, _ in device.launches] == [3, 6, 8, 6]
    addresses = arguments.BINARY_CONTIGUOUS.unpack(device.launches[0][3])
    assert addresses[:4] == (result.memory.address, x.memory.address + 12, y.memory.address + 12, 128 * 48)
    transposed_fields = arguments.BINARY_TRANSPOSED.unpack(device.launches[2][3])
    assert transposed_fields[1:7] == (y.memory.address, x.memory.address + 12, 1, 0, 2, 48)


def test_gradients_of_both_operands_are_one_launch(device):
    x, y, g = (device.empty(DType.F32, 1 << 20) for _ in range(3))
    results = elementwise.joint(BinaryGradientsOp.MUL_GRADIENTS, *(at(it, (128, 48), None, 4) for it in (g, x, y)))
    elementwise.joint(BinaryGradientsOp.MUL_GRADIENTS, at(g, (128, 48), (0, 0)), at(x, (128, 48)), at(y, (128, 48)))
    assert device.names == ["mul_gradients_f32_contiguous", "mul_gradients_f32_strided"]
    starts = [it.memory.address + 16 for it in (g, x, y)]
    fields = arguments.BINARY_GRADIENTS_CONTIGUOUS.unpack(device.launches[0][3])
    assert fields[:6] == (*(result.memory.address for result in results), *starts, 128 * 48)


def test_a_step_takes_as_many_tensors_as_arguments_have_room_for(device):
    assert OPTIM_ROOM == ROOM
    sizes = [20, 0, *[5] * OPTIM_TENSORS, 1 << 12]
    tensors = [at(device.empty(DType.BF16, size), (size,)) for size in sizes]
    state, numbers = device.empty(DType.F32, sum(parts_of(sizes))), device.empty(DType.F32, 3)
    optim.sgd_step(tensors[0], state, numbers, False, *tensors[1:], *tensors)
    first, last = (arguments.OPTIM_STEP.unpack(packed) for *_, packed in device.launches)
    assert [blocks for *_, blocks, _ in device.launches] == [2, 3]
    counts, offsets = (first[place * OPTIM_TENSORS :][:OPTIM_TENSORS] for place in (2, 3))
    assert counts[:3] == (20, 5, 5) and offsets[:3] == (0, 2, 3)
    assert last[2 * OPTIM_TENSORS :][:3] == (5, 1 << 12, 0)
    assert last[3 * OPTIM_TENSORS :][:3] == (OPTIM_TENSORS + 1, OPTIM_TENSORS + 2, (1 << 32) - 1)


def test_few_elements_get_a_thread_each_as_far_as_one_block_on_each_multiprocessor_goes(device):
    device.driver.multiprocessors = 132
    x = device.empty(DType.F16, 1 << 20)
    for count in (256, 1 << 10, 1 << 16, 1 << 20):
        elementwise.unary(UnaryOp.EXP, at(x, (count,)))
    assert [blocks for _, _, blocks, _ in device.launches] == [1, 4, 132, 256]


def test_few_transposed_elements_are_read_as_they_lie_by_a_thread_each(device):
    device.driver.multiprocessors = 132
    x = device.empty(DType.F16, 1 << 16)
    plain, transposed = at(x, (256, 256)), at(x, (256, 256), (1, 256))
    elementwise.binary(BinaryOp.ADD, plain, transposed)
    elementwise.ternary(MethodOp.WHERE_COND, at(device.empty(DType.U8, 1 << 16), (256, 256)), plain, transposed)
    assert device.names == ["add_f16_strided", "where_cond_b8_b16_strided"]
    assert [blocks for _, _, blocks, _ in device.launches] == [256, 256]


def test_few_narrow_elements_are_transposed_without_a_tile(device):
    for dtype, size in ((DType.F16, 64), (DType.F32, 64), (DType.F16, 65)):
        copy.fresh(at(device.empty(dtype, size * 64), (size, 64), (1, size)))
    assert device.names == ["copy_b16_strided", "copy_b32_transposed", "copy_b16_transposed"]


def test_large_transposed_operands_are_transposed_by_tiles_first(device):
    transposed = at(device.empty(DType.F32, 1 << 16), (256, 256), (1, 256))
    elementwise.unary(UnaryOp.EXP, transposed)
    elementwise.binary(BinaryOp.ADD, transposed, transposed)
    assert device.names == ["copy_b32_transposed", "exp_f32_contiguous", "copy_b32_transposed", "add_f32_transposed"]


def test_more_elements_than_32_bits_number(device):
    x = device.empty(DType.U8, LIMIT)
    elementwise.unary(UnaryOp.NEG, at(x, (LIMIT,)))
    result = elementwise.unary(UnaryOp.NEG, at(x, (LIMIT, 2), (1, 0)))
    assert device.names == ["neg_u8_contiguous", "neg_u8_strided", "neg_u8_strided", "neg_u8_strided"]
    strided_fields = [arguments.UNARY_STRIDED.unpack(packed) for _, _, _, packed in device.launches[1:]]
    assert sum(fields[2] for fields in strided_fields) == 2 * LIMIT
    first, second, _ = strided_fields
    assert (second[0], second[1]) == (result.memory.address + first[2], x.memory.address + first[2] // 2)


def test_scalars_are_converted_as_to_dtype_does(device):
    for dtype, value, bits in (
        (DType.U8, 300.7, 255), (DType.U8, -1.5, 0), (DType.I16, -40000.0, 0x8000), (DType.I64, math.nan, 0),
        (DType.F32, -0.0, 0x80000000), (DType.F32, 0.0, 0), (DType.BF16, 1.00390625, 0x3F80), (DType.F16, 1e9, 0x7C00),
        (DType.F8E4M3, 1e9, 0x7E), (DType.I64, 2**63 - 1, 2**63 - 1), (DType.F64, 1.0, 0x3FF0000000000000),
    ):  # fmt: skip
        x = device.empty(dtype, 4)
        copy.const_set(at(x, (4,)), value)
        assert arguments.FILL_CONTIGUOUS.unpack(device.launches[-1][3]) == (x.memory.address, 4, bits, 0)
    elementwise.unary(MethodOp.AFFINE, at(device.empty(DType.I16, 4), (4,)), -2.9, 1e9)
    assert arguments.UNARY_CONTIGUOUS.unpack(device.launches[-1][3])[3:5] == (0xFFFE, 32767)


def test_dense_copies_need_no_kernel(device):
    x, y = device.empty(DType.F16, 100), device.empty(DType.F16, 100)
    copy.copy_strided_src(at(x, (4, 5), None, 3), y, 10)
    copy.copy2d(x, y, 4, 5, 5, 5, 0, 20)
    elementwise.cast(MethodOp.TO_DTYPE, at(x, (100,)), result=DType.F16)
    assert not device.launches
    assert device.copies[:2] == [
        (y.memory.address + 20, x.memory.address + 6, 40),
        (y.memory.address + 40, x.memory.address, 40),
    ]


def test_overlapping_copies_go_by_way_of_other_memory(device):
    x = device.empty(DType.F32, 100)
    copy.copy_strided_src(at(x, (50,)), x, 1)
    assert [to for to, _, _ in device.copies] != [x.memory.address + 4]
    assert len(device.copies) == 2
    copy.copy_strided_src(at(x, (50,)), x, 50)
    assert device.copies[2:] == [(x.memory.address + 200, x.memory.address, 200)]


def test_rows_are_gathered_in_wide_elements(device):
    x, indexes = device.empty(DType.F16, 1000), at(device.empty(DType.I64, 10), (10,))
    index_select(at(x, (10, 64)), indexes, 0)
    index_select(at(x, (10, 64), (65, 1)), indexes, 0)
    assert device.names == ["gather_b128", "gather_b16"]
    _, _, _, errors, size, call, *of_indexes, row_stride, count = arguments.GATHER.unpack(device.launches[0][3])[:12]
    assert (errors, size, call, row_stride, count) == (64, 10, 1, 8, 80)
    assert of_indexes == [(1 << 63) - 1, 8, 8, 0]
    assert device.looks == 2


def test_a_block_gathers_more_where_there_are_many_accesses_for_each_multiprocessor(device):
    x = device.empty(DType.F16, 640)
    for rows in (4095, 4096):
        index_select(at(x, (10, 64)), at(device.empty(DType.I64, rows), (rows,)), 0)
    assert [(name, blocks) for _, name, blocks, _ in device.launches] == [("gather_b128", 128), ("gather_b128", 32)]


def test_indexes_into_nothing_are_looked_at(device):
    x, indexes = device.empty(DType.F32, 0), device.empty(DType.I64, 10)
    index_select(at(x, (4, 0)), at(indexes, (10,)), 0)
    sums.index_add(at(x, (4, 0)), at(indexes, (10,)), at(x, (10, 0)), 0)
    assert device.names == ["index_check"] * 2
    index_select(at(x, (4, 0)), at(indexes, (0,)), 0)
    sums.index_add(at(x, (4, 0)), at(indexes, (0,)), at(x, (0, 0)), 0)
    assert device.looks == len(device.launches) == 2


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
def test_added_elements_are_sorted_or_walked_by_threads_or_waves(device, shape, dim, name):
    device.driver.multiprocessors = 132
    count = math.prod(shape)
    x, indexes, source = (at(device.empty(dtype, count), shape) for dtype in (DType.F32, DType.U32, DType.F32))
    sums.scatter_add(x, indexes, source, dim)
    assert device.names[-1] == f"scatter_add_f32_{name}"
    if name == "sorted":
        assert device.looks == 1
        return
    # Of few indexes every block looks at all, which saves a launch.
    assert device.names[:-1] == ["index_check"] * (count > 1024)
    assert device.looks == len(device.names)
    is_unchecked, lines, length = arguments.SCATTER_LINES.unpack(device.launches[-1][3])[13:16]
    assert (is_unchecked, lines * length) == (count <= 1024, count)


def test_an_index_that_positions_share_is_looked_at_once(device):
    device.driver.multiprocessors = 132
    x, indexes, source = (device.empty(dtype, 1 << 20) for dtype in (DType.F32, DType.I64, DType.F32))
    shape, shared = layout((1024, 1024)), layout((1024, 1024), (1, 0))
    sums.scatter_add(Operand(x, shape), Operand(indexes, shared), Operand(source, shape), 0)
    assert device.names[0] == "index_check"
    assert arguments.INDEX_CHECK.unpack(device.launches[0][3])[8:11] == (1024, 1, 1024)


def test_all_indexes_are_looked_at_before_anything_is_written(device):
    """Where the elements are more than one launch numbers."""
    x, indexes, source = (device.empty(dtype, 1 << 32) for dtype in (DType.U8, DType.U8, DType.U8))
    shape = layout((3, 1 << 30))
    scatter_set(*(Operand(storage, shape) for storage in (x, indexes, source)), 0)
    assert device.names == ["index_check"] * 2 + ["scatter_mark", "scatter_set_b8"] * 3
    assert {arguments.INDEX_CHECK.unpack(packed)[3] for *_, packed in device.launches[:2]} == {1}
    assert {arguments.SCATTER.unpack(packed)[6] for *_, packed in device.launches[2:]} == {1}


def test_sums_of_short_floats_are_kept_in_long_ones(device):
    half, indexes, source = (device.empty(dtype, 1 << 18) for dtype in (DType.F16, DType.U32, DType.F16))
    long = layout((128, 1025))
    sums.scatter_add(*(Operand(storage, long) for storage in (half, indexes, source)), 1)
    casts = ["to_dtype_f32_f16_contiguous", "to_dtype_f16_f32_contiguous"]
    assert device.names == ["index_check", casts[0], "scatter_add_f16_waves", casts[1]]
    device.launches.clear()
    # Not where they are in shared memory meanwhile.
    short = layout((128, 1024))
    sums.scatter_add(*(Operand(storage, short) for storage in (half, indexes, source)), 1)
    assert device.names == ["index_check", "scatter_add_f16_near"]


def test_no_more_waves_than_whose_lines_stay_in_a_cache(device, monkeypatch):
    monkeypatch.setattr(sums, "_SORT_PASS", math.inf)
    shape, x = (1 << 12, 1 << 14), device.empty(DType.F32, 1 << 26)
    indexes, source = device.empty(DType.I64, 1 << 26), device.empty(DType.F32, 1 << 26)
    sums.scatter_add(at(x, shape), at(indexes, shape), at(source, shape), 1)
    sums.scatter_add(at(x, (1 << 12, 1025)), at(indexes, (1 << 12, 64)), at(source, (1 << 12, 64)), 1)
    assert device.names == ["index_check", "scatter_add_f32_waves"] * 2
    # 8 waves a block: of 4 multiprocessors 32 each have room, of which 8 stay near where a line has 64 KiB.
    assert [blocks for _, _, blocks, _ in device.launches[1::2]] == [16, 16]
    device.driver.multiprocessors = 64
    sums.scatter_add(at(x, shape), at(indexes, shape), at(source, shape), 1)
    sums.scatter_add(at(x, (1 << 12, 1025)), at(indexes, (1 << 12, 64)), at(source, (1 << 12, 64)), 1)
    assert [blocks for _, _, blocks, _ in device.launches[5::2]] == [64, 256]


def test_few_indexes_are_looked_for_by_every_element_in_one_launch(device):
    x, indexes, source = (device.empty(dtype, 1 << 16) for dtype in (DType.F16, DType.I64, DType.F16))
    sums.index_add(at(x, (256, 256)), at(indexes, (256,), (3,)), at(source, (256, 256)), 0)
    assert [(name, blocks) for _, name, blocks, _ in device.launches] == [("index_add_f16_few", 256)]
    assert device.looks == 1
    fields = arguments.INDEX_ADD_FEW.unpack(device.launches[0][3])
    assert fields[11:17] == (3, 256, 256, 0, 1 << 16, 2)


def test_few_keys_are_sorted_by_one_block(device):
    x, indexes, source = (device.empty(dtype, 1 << 20) for dtype in (DType.F32, DType.U32, DType.F32))
    sums.index_add(at(x, (300, 8)), at(indexes, (4096,)), at(source, (4096, 8)), 0)
    assert device.names == ["sort_keys", "index_add_f32"]
    assert not device.filled
    fields = arguments.SORT_KEYS.unpack(device.launches[0][3])
    assert (fields[5], fields[11:15]) == (300, (1, 300, 9, 4096))
    sums.index_add(at(x, (1 << 15, 8)), at(indexes, (4096,)), at(source, (4096, 8)), 0)
    assert device.names[2:] == ["sort_keys", "index_add_f32"]
    assert device.filled[-1][1:] == (255, 1 << 17)
    assert arguments.SORT_KEYS.unpack(device.launches[2][3])[12:15] == (0, 16, 4096)
    sums.index_add(at(x, (300, 8)), at(indexes, (4097,)), at(source, (4097, 8)), 0)
    assert device.names[4:] == ["index_keys", *PASSES, "index_starts", "index_add_f32"]
    assert device.filled[-1][1:] == (255, 1200)
    sums.scatter_add(at(x, (9,)), at(indexes, (4096,)), at(source, (4096,)), 0)
    assert device.names[10:] == ["sort_keys", "scatter_add_f32_sorted"]


def added_in_order(target, indexes, source, dim):
    """The sums in the order of positions, in the compute dtype, rounded once."""
    compute = np.promote_types(target.dtype, np.float32) if target.dtype.kind == "f" else target.dtype
    totals = np.moveaxis(target.astype(compute), dim, -1)
    lines = np.indices(totals.shape[:-1])
    indexes, source = np.moveaxis(indexes, dim, -1), np.moveaxis(source.astype(compute), dim, -1)
    for position in range(indexes.shape[-1]):
        row = indexes[..., position]
        named = row != np.iinfo(row.dtype).max
        place = (*(line[named] for line in lines), row[named])
        totals[place] += source[..., position][named]
    return np.moveaxis(totals, -1, dim).astype(target.dtype)


def by_sorting(x, indexes, source, dim):
    sums._add_sorted(x, indexes, source, dim, x.layout.end - x.layout.start_offset)


ADDERS = {
    "sorted": by_sorting,
    "threads": partial(sums._add_by_lines, sums._Algorithm.THREADS, "scatter_add"),
    "waves": partial(sums._add_by_lines, sums._Algorithm.WAVES, "scatter_add"),
    "near": partial(sums._add_by_lines, sums._Algorithm.NEAR, "scatter_add"),
    "shared": partial(sums._add_by_lines, sums._Algorithm.SHARED, "scatter_add"),
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
        add(at(target, shape, strides), *(at(gpu.storage(array), index_shape) for array in (indexes, source)), dim)
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
        return index_select(at(gpu.storage(x), x.shape), at(gpu.storage(chosen), chosen.shape), 0)

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
    ADDERS[way](at(target, x.shape), at(gpu.storage(indexes), (6, 200)), source, 1)
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
        add(at(target, shape, strides), *(at(gpu.storage(array), index_shape) for array in (indexes, source)), dim)
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
        ADDERS[way](at(target, (3, 50)), at(places, (3, length)), source, 1)

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
    ("shape", "index_shape", "dim", "kernels"),
    [
        ((64, 100), (64, 200), 1, ["index_check", "scatter_add_f32_shared"]),
        ((4, 100), (4, 200), 1, ["scatter_add_f32_shared"]),
        ((64, 100), (200, 100), 0, ["index_check", "scatter_add_f32_atomic"]),
        ((1 << 20,), (5000,), 0, ["index_check", "scatter_add_f32_atomic"]),
        ((50,), (5000,), 0, ["index_check", "scatter_add_f32_atomic"]),
    ],
)
def test_in_any_order_blocks_take_lines_where_those_are_many_and_full(device, shape, index_shape, dim, kernels):
    x, source = (at(device.empty(DType.F32, math.prod(sizes)), sizes) for sizes in (shape, index_shape))
    indexes = at(device.empty(DType.I64, math.prod(index_shape)), index_shape)
    sums.scatter_add_in_any_order(x, indexes, source, dim)
    assert device.names == kernels


def test_a_scatter_of_several_parts_writes_nothing_where_an_index_is_out_of_range(gpu, monkeypatch):
    monkeypatch.setattr(
        "tallow.runtime.backends.gpu_backend.ops.index.parts", lambda *arguments: parts(*arguments, limit=16)
    )
    indexes = np.arange(50) % 10
    indexes[49] = 10
    target = gpu.storage(np.zeros(10, np.int32))
    chosen, source = at(gpu.storage(indexes), (50,)), at(gpu.storage(np.ones(50, np.int32)), (50,))
    scatter_set(at(target, (10,)), chosen, source, 0)
    with pytest.raises(InvalidIndex, match="scatter_set: index 10 is"):
        synchronize(gpu)
    assert target.to_numpy().tolist() == [0] * 10


def test_tiles_of_a_long_line_follow_each_other(gpu):
    """More of them than run at once."""
    numbers = np.random.default_rng(9).integers(0, 1 << 10, (2, 41 * SORT_TILE + 5)).astype(np.uint16)
    x = at(gpu.storage(numbers.ravel()), numbers.shape)
    elements, positions = sort.sort(x, False, numbers.shape[1])
    order = np.argsort(numbers, kind="stable")
    np.testing.assert_array_equal(positions.to_numpy().reshape(numbers.shape), order)
    np.testing.assert_array_equal(elements.to_numpy().reshape(numbers.shape), np.take_along_axis(numbers, order, 1))


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
    found = sums.index_add(*operands, 0).to_numpy().reshape(size, columns)
    expected = added_in_order(x, np.broadcast_to(indexes[:, None], source.shape), source, 0)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("is_interleaved", [False, True])
def test_however_many_heads_a_thread_turns_the_result_is_the_same(gpu, monkeypatch, is_interleaved):
    generator = np.random.default_rng(3)
    arrays = [generator.standard_normal(shape).astype(np.float32) for shape in ((2, 11, 5, 16), (7, 8), (7, 8))]
    operands = [at(gpu.storage(array), array.shape) for array in (*arrays, np.array([1, 2]))]
    found = []
    for busy_blocks in (1 << 30, 0):
        monkeypatch.setattr(rope, "_BUSY_BLOCKS", busy_blocks)
        rope._plan.cache_clear()
        found.append(rope.rope(*operands, is_interleaved).to_numpy())
    rope._plan.cache_clear()
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("shape", "kernels"),
    [
        ((4096, 1000), ["cross_entropy_f16"]),
        ((4096, 70_000), ["cross_entropy_f16"]),
        ((2, 70_000), ["cross_entropy_f16_measure", "cross_entropy_f16"]),
    ],
)
def test_losses_are_one_launch_and_two_where_rows_are_few_and_long(device, shape, kernels):
    logits, targets = device.empty(DType.F16, math.prod(shape)), device.empty(DType.I64, shape[0])
    cross_entropy(at(logits, shape), at(targets, shape[:1]), 1, -100)
    assert device.names == kernels
    assert device.looks == 1


@pytest.mark.parametrize(
    ("rows", "hidden", "joined"),
    [(1, 4096, True), (8, 4096, True), (9, 4096, True), (16, 4096, True), (17, 4096, False), (1, 8192, False)],
)
def test_few_rows_of_x_are_made_and_rounded_in_one_launch(device, rows, hidden, joined):
    memory = device.empty(DType.U8, 16 * hidden // 256 * 144).memory
    blocks = QGpuStorage(device, GgmlDType.Q4K, 16 * hidden, memory)
    x, y = (at(device.empty(DType.F32, rows * hidden), (rows, hidden)) for _ in range(2))
    quantized.fwd_rms_norm(blocks, x, None, y, 16, hidden, "q8_1", 1e-5)
    product = f"rounded_product_Q4K_{1 if rows == 1 else 8 if rows <= 8 else 16}"
    if joined:
        assert device.names == ["rms_norm_1_32_held4", product]
        # A block rounds a pack of each thread.
        assert device.launches[0][2] == 4 * rows
    else:
        assert device.names[0].startswith("norm_f32_")
    device.launches.clear()
    quantized.fwd_silu_mul(blocks, x, y, 16, hidden, "q8_1")
    if rows <= 16:
        assert device.names == ["silu_mul_1_32", product]
    else:
        assert device.names[0] == "silu_mul_f32_contiguous"


@pytest.mark.parametrize("count", [64, 7000, 1 << 20])
def test_the_mean_of_few_losses_is_one_launch(device, count):
    losses, counted = (at(device.empty(DType.F32, count), (count,)) for _ in range(2))
    ratio_of_sums(losses, counted)
    apart = ["sum_f32_rows", "sum_f32_finish"] * 2 + ["div_f32_contiguous", "recip_f32_contiguous"]
    assert device.names == (["ratio_of_sums_f32"] if count < 1 << 20 else apart)


def test_what_is_written_to_is_not_read(device):
    x = device.empty(DType.I64, 100)
    square = at(x, (5, 5))
    scatter_set(square, at(x, (5, 5), None, 50), square, 0)
    assert len(device.copies) == 1
    assert device.names == ["scatter_mark", "scatter_set_b64"]
    assert device.zeroed[0][1] == 100


class Library:
    """A BLAS that notes its calls."""

    def __init__(self):
        self.calls = []

    def multiply(self, dtype, bmnk, lhs, rhs, result, is_added=False, result_dtype=None):
        assert not is_added, "there is no bias"
        assert result_dtype is None, "products are in the dtype of their operands"
        self.calls.append((dtype, bmnk, lhs, rhs))


def device_with(library):
    """A device whose storages the dispatch takes for those of the backend, which has that BLAS alone."""
    backend.require_package()
    return Recorder(backend.own("Storage"), hipblas=library, cublas=library, cudnn=None, miopen=None)


def test_products_go_to_the_library_where_it_takes_them():
    library = Library()
    device = device_with(library)
    x, y = Storage(device.empty(DType.F32, 4096)), Storage(device.empty(DType.I32, 4096))
    a, b = layout((2, 8, 4)), layout((2, 4, 16), (0, 1, 4))
    x.matmul(x, (2, 8, 16, 4), a, b)
    x.matmul(x, (2, 8, 16, 4), layout((2, 8, 4), (64, 8, 2)), b)
    y.matmul(y, (2, 8, 16, 4), a, b)
    x.matmul(x, (2, 8, 16, 0), layout((2, 8, 0)), layout((2, 0, 16)))
    assert [call[3].step for call in library.calls] == [0, 0]
    assert device.names == ["copy_b32_strided", "matmul_i32"]
    assert device.zeroed[0][1] == 2 * 8 * 16 * 4
    assert arguments.MATMUL.unpack(device.launches[-1][3])[3:14] == (4, 1, 1, 4, 0, 0, 8, 16, 4, 2, 1)


def test_convolutions_are_products_where_these_pay():
    library = Library()
    device = device_with(library)
    x, image = Storage(device.empty(DType.F32, 1 << 16)), layout((2, 4, 8, 8))
    sizes = {"b_size": 2, "i_h": 8, "i_w": 8, "c_in": 4, "padding": 0, "stride": 1, "dilation": 1}
    for c_out, k in ((16, 3), (16, 1), (2, 3)):
        x.conv2d(image, x, layout((c_out, 4, k, k)), ParamsConv2D(**sizes, c_out=c_out, k_h=k, k_w=k))
    assert device.names == ["im2col_b32", "conv_f32_direct"]
    assert [call[1] for call in library.calls] == [(2, 16, 36, 36), (2, 16, 64, 4)]


class Images:
    """A library of images that notes its calls and takes kernels of one size."""

    def __init__(self, size):
        self.size = size
        self.calls = []

    def conv2d(self, dtype, params, source, kernel, result):
        self.calls.append((dtype, params.k_h))
        return params.k_h == self.size


def test_what_a_library_refuses_is_handed_on():
    """On AMD hardware to MIOpen, then to hipBLAS, then to the kernel."""
    pytest.importorskip("hip")
    from tallow.rocm_backend import RocmStorage

    images, blas = Images(5), Library()
    device = Recorder(RocmStorage, miopen=images, hipblas=blas)
    sizes = {"b_size": 2, "i_h": 8, "i_w": 8, "c_in": 4, "padding": 0, "stride": 1, "dilation": 1}
    for dtype, c_out, k in ((DType.F32, 16, 5), (DType.F32, 16, 1), (DType.F32, 2, 3), (DType.F64, 16, 1)):
        x = Storage(device.empty(dtype, 1 << 16))
        params = ParamsConv2D(**sizes, c_out=c_out, k_h=k, k_w=k)
        x.conv2d(layout((2, 4, 8, 8)), x, layout((c_out, 4, k, k)), params)
    assert images.calls == [(DType.F32, 5), (DType.F32, 1), (DType.F32, 3)]
    assert [call[0] for call in blas.calls] == [DType.F32, DType.F64]
    assert device.names == ["conv_f32_direct"]


class Heads:
    """A library that takes all attention that it is asked for, and notes it."""

    def __init__(self):
        self.calls = []

    def attention(self, dtype, params, *addresses):
        self.calls.append((dtype, params, addresses))
        return True

    attention_with_logsumexp = attention_gradient = attention


def test_the_splits_of_keys_are_joined_in_the_launch_that_makes_them(device):
    x = device.empty(DType.BF16, 1 << 20)
    query, keys = at(x, (1, 8, 1, 96)), at(x, (1, 2, 900, 96))
    attention.scaled_dot_product_attention(query, keys, keys, None, None, False, 0.125)
    ((_, name, blocks, packed),) = device.launches
    *_, parts, counters = arguments.ATTENTION.unpack(packed)[:8]
    assert (name, blocks, counters) == ("attention_bf16_128_rows4", 2 * 2, device.counters)
    assert parts not in (0, x.memory.address)
    # One split needs neither.
    attention.scaled_dot_product_attention(
        query, keys.relaid((1, 2, 60, 96), keys.strides), keys, None, None, False, 0.125
    )
    assert arguments.ATTENTION.unpack(device.launches[-1][3])[6:8] == (0, 0)


def test_attention_goes_to_a_library_as_it_lies_where_that_means_the_same(device):
    library = Heads()
    x, apart = device.empty(DType.F16, 1 << 20), (40 * 2 * 64, 64, 2 * 64, 1)
    query, keys = at(x, (2, 4, 40, 64)), at(x, (2, 2, 40, 64), apart, 64)

    def attend(query=query, keys=keys, mask=None, lengths=None, is_causal=True, scale=0.125):
        return attention.by_library(library, query, keys, keys, mask, lengths, is_causal, scale)

    result = attend()
    ((dtype, params, addresses),) = library.calls
    assert (dtype, params.is_causal, params.scale) == (DType.F16, True, 0.125)
    assert params.query == ((2, 4, 40, 64), (10240, 2560, 64, 1))
    assert params.keys == params.values == ((2, 2, 40, 64), apart)
    assert addresses == (*(operand.address for operand in (query, keys, keys)), result.memory.address)
    for refused in (
        {"mask": at(x, (2, 4, 40, 40))},
        {"lengths": at(device.empty(DType.I32, 1), (1,))},
        # Queries that see nothing are 0.
        {"query": at(x, (2, 4, 41, 64))},
        {"scale": -0.125},
        {"scale": math.inf},
        # What has too few rows to be worth it, and what lies where no whole access begins.
        {"query": at(x, (2, 4, 16, 64))},
        {"keys": at(x, (2, 2, 40, 64), None, 1)},
        {"keys": at(x, (2, 2, 0, 64)), "is_causal": False},
    ):
        assert attend(**refused) is None
    assert len(library.calls) == 1
    assert not device.names


def test_gradients_of_attention_go_to_a_library_with_what_it_left_for_them(device):
    library = Heads()
    x, apart = device.empty(DType.BF16, 1 << 20), (40 * 2 * 64, 64, 2 * 64, 1)
    query, keys = at(x, (2, 4, 40, 64)), at(x, (2, 2, 40, 64), apart, 64)
    result, logsumexp = attention.by_library_with_logsumexp(library, query, keys, keys, None, None, True, 0.125)
    assert (logsumexp.dtype, logsumexp.length) == (DType.F32, 2 * 4 * 40)
    assert library.calls[0][2][3:] == (result.memory.address, logsumexp.memory.address)

    rows = dense(logsumexp, (2, 4, 40))

    def change(by=attention_gradient.by_library, query=query, sums=rows, mask=None, lengths=None, **others):
        of_mask, scale = others.get("of_mask", False), others.get("scale", 0.125)
        made = dense(result, (2, 4, 40, 64))
        return by(library, query, keys, keys, made, query, sums, mask, lengths, True, of_mask, scale)

    for by, any_order in (
        (attention_gradient.by_library, False),
        (attention_gradient.by_library_in_any_order, True),
    ):
        made = change(by)
        dtype, params, addresses = library.calls[-1]
        assert (dtype, params.any_order, params.attention) == (DType.BF16, any_order, library.calls[0][1])
        assert params.result == params.gradient == params.attention.query
        given = [query.address, *[keys.address] * 2, result.memory.address, query.address, logsumexp.memory.address]
        assert addresses == (*given, *(each.memory.address for each in made))
        assert [each.length for each in made] == [2 * 4 * 40 * 64, *[2 * 2 * 40 * 64] * 2]
    # Libraries read the logarithms one behind the other.
    assert not device.names
    change(sums=at(logsumexp, (2, 4, 40), (160, 1, 4)))
    assert len(device.names) == 1
    assert library.calls[-1][2][5] not in (0, logsumexp.memory.address)
    calls = len(library.calls)
    for refused in (
        {"mask": at(x, (2, 4, 40, 40))},
        {"mask": at(x, (2, 4, 40, 40)), "of_mask": True},
        {"lengths": at(device.empty(DType.I32, 1), (1,))},
        {"scale": -0.125},
        {"query": at(x, (2, 4, 40, 64), None, 1)},
    ):
        assert change(**refused) is None
    assert len(library.calls) == calls


def test_a_plan_of_what_a_library_may_refuse_is_for_its_numbers():
    """A plan is found before anybody asks whether the library takes the scale of this call."""
    assert "scaled_dot_product_attention" not in Storage.numbers
    assert Storage.numbers["powf"] == 1


def test_images_too_large_for_a_kernel_are_refused(device):
    x = device.empty(DType.U8, 4)
    upsample.upsample_nearest2d(at(x, (3, 1, 2, 2), (0, 4, 2, 1)), 1 << 15, 1 << 15)
    assert len(device.launches) == 1
    with pytest.raises(InvalidArgument):
        upsample.upsample_nearest2d(at(x, (1, 1, 2, 2)), 1, 1 << 31)
