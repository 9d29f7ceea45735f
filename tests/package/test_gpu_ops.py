"""What the ops of the GPU backends launch: which kernels, on how many blocks, with which arguments. No GPU needed."""

import math
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tallow import Device, Storage
from tallow.dtype import DType
from tallow.ggml_dtype import GgmlDType
from tallow.kernels import arguments
from tallow.kernels.constants import OPTIM_ROOM, OPTIM_TENSORS, SORT_TILE
from tallow.op import BinaryGradientsOp, BinaryOp, CmpOp, MethodOp, ReduceOp, UnaryOp
from tallow.runtime.backends.gpu_backend.driver.grid import MOST_BLOCKS
from tallow.runtime.backends.gpu_backend.ops import (
    attention,
    attention_gradient,
    conv,
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
from tallow.runtime.base.error import InvalidArgument, InvalidIndex
from tallow.runtime.core.conv import ParamsConv2D
from tallow.runtime.core.layout import Layout
from tallow.runtime.core.optim import ROOM, parts_of
from tallow.runtime.program.operand import Operand
from tallow.runtime.program.steps import Allocate, Copy, Fill, Launch, LibraryCall

from .programs import FACTS, Observer, Run, Stored, at, built, call_of, expected_errors, kernels, launches, layout

RANK = 8
# A device with room for more blocks.
LARGE = FACTS._replace(multiprocessors=132)


def grids(program):
    """The kernels that a program launches, and on how many blocks."""
    return [(step.kernel, step.blocks) for step in launches(program)]


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


def test_long_sums_are_split_and_joined():
    x = Stored(DType.F32, 1 << 22)
    first, last = Run(built(reduce.reduce, ReduceOp.SUM, at(x, (1 << 22,)), (0,))).launches
    assert (first.kernel, last.kernel) == ("sum_f32_rows", "sum_f32_finish")
    to, _, count, outputs, length, splits, chunk, team, dense, *_ = arguments.REDUCE_ROWS.unpack(first.packed)
    assert count == length
    assert (outputs, length, team, dense, first.blocks) == (1, 1 << 22, 256, 1, splits)
    assert splits == -(-length // chunk) > 1
    assert arguments.REDUCE_FINISH.unpack(last.packed)[1:5] == (to, count, 1, splits)


# By the op and dtype of a reduction, the bytes of what the kernels keep of a part.
@pytest.mark.parametrize(
    ("op", "dtype", "itemsize"),
    [("sum", "u8", 1), ("sum", "bf16", 4), ("any", "bool", 1), ("any", "u8", 4), ("sum_i64", "u8", 8)],
)
def test_partial_results_have_the_room_that_kernels_take(op, dtype, itemsize):
    x = Stored(DType(dtype), 1 << 22)
    program = built(reduce.reduce, ReduceOp(op), at(x, (1 << 22,)), (0,))
    splits = arguments.REDUCE_ROWS.unpack(Run(program).launches[0].packed)[5]
    assert splits > 1
    assert [step.memory.nbytes for step in program.steps if isinstance(step, Allocate)][-1] == splits * itemsize


def test_more_elements_than_32_bits_number_become_splits_of_several_launches():
    x = Stored(DType.F16, 3 * LIMIT)
    program = built(reduce.reduce, ReduceOp.SUM, at(x, (3, LIMIT, 2), (1, 0, 3)), (1,))
    assert kernels(program) == ["sum_f16_rows"] * 2 + ["sum_f16_finish"]
    *rows, finish = Run(program).launches
    begins = [arguments.REDUCE_ROWS.unpack(launch.packed) for launch in rows]
    assert sum(fields[4] for fields in begins) == LIMIT
    assert begins[1][0] - begins[0][0] == begins[0][5] * 6 * 4
    # What all launches reduced for an output, and in how many splits.
    _, _, count, _, splits, _, _ = arguments.REDUCE_FINISH.unpack(finish.packed)
    assert (count, splits) == (LIMIT, begins[0][5] + begins[1][5])


def test_positions_are_counted_over_one_dense_row():
    x = Stored(DType.U8, 2)
    program = built(reduce.reduce, ReduceOp.ARGMAX, at(x, (LIMIT, 2), (0, 1)), (0,))
    assert kernels(program)[0] == "copy_b8_strided"
    rows = next(launch.packed for launch in Run(program).launches if launch.kernel == "argmax_u8_rows")
    assert arguments.REDUCE_ROWS.unpack(rows)[3:5] == (2, LIMIT)
    assert arguments.REDUCE_ROWS.unpack(rows)[8] == 1
    with pytest.raises(InvalidArgument):
        built(reduce.reduce, ReduceOp.ARGMAX, at(x, (2 * LIMIT,), (0,)), (0,))


def test_rows_are_joined_in_the_widest_elements_that_divide_all():
    def joined(*widths, dtype=DType.F16, rows=6, offset=0, dim=1):
        shapes = [(rows, width) if dim else (width, rows) for width in widths]
        sources = [
            at(Stored(dtype, offset + rows * width), shape, None, offset)
            for width, shape in zip(widths, shapes, strict=True)
        ]
        program = built(copy.cat, sources[0], dim, *sources[1:])
        return kernels(program) + [Copy] * sum(isinstance(step, Copy) for step in program.steps)

    assert joined(8, 16, 8) == ["join_b128"]
    assert joined(8, 12, 8) == ["join_b64"]
    assert joined(8, 16, offset=1) == ["join_b16"]
    assert joined(3, 5) == ["join_b16"]
    assert joined(3, 5, dim=0, rows=8) == ["join_b128"]
    assert joined(*[8] * 17) == ["join_many_b128"]
    assert joined(*[8] * 100) == ["join_many_b128", "join_b128"]
    # What is one piece each, and long, the driver copies.
    assert joined(1 << 20, 3, 1 << 20, dim=0, rows=16) == ["join_b128", Copy, Copy]
    assert joined(8, 0, 8) == ["join_b128"]
    assert joined(0, 0) == []


def test_no_elements_launch_nothing():
    x, indexes = Stored(DType.F32, 0), at(Stored(DType.U32, 0), (0, 3))
    empty, matrices, images = at(x, (0, 3)), at(x, (0, 3, 3)), at(x, (0, 1, 2, 2))
    for op, *operands in (
        (elementwise.unary, UnaryOp.EXP, empty),
        (elementwise.binary, BinaryOp.ADD, empty, empty),
        (copy.const_set, empty, 1.0),
        (copy.clone, empty),
        (copy.copy_strided_src, empty, x, 0),
        (copy.copy2d, x, x, 0, 4, 4, 4, 0, 0),
        (matmul.matmul, matrices, matrices, (0, 3, 3, 3)),
        (pool.max_pool2d, images, (2, 2), (1, 1)),
        (upsample.upsample_nearest2d, images, 4, 4),
        (gather, at(x, (3, 3)), indexes, 0),
        (sums.scatter_add, empty, indexes, empty, 0),
    ):
        assert all(isinstance(step, Allocate) for step in built(op, *operands).steps), op
    assert not kernels(built(elementwise.cast, MethodOp.TO_DTYPE, empty, result=DType.U8))
    # The sums of nothing are what a sum begins with.
    program = built(reduce.reduce, ReduceOp.SUM, empty, (0,))
    assert kernels(program) == ["sum_f32_rows"]
    assert program.result.length == 3


def test_products_of_halves_have_narrower_tiles_where_these_are_fewer_than_multiprocessors():
    x = Stored(DType.F16, 1 << 22)
    for side, blocks in ((1024, 8 * 16), (2048, 16 * 16)):
        square = at(x, (1, side, side))
        program = built(matmul.matmul, square, square, (1, side, side, side), facts=LARGE)
        assert grids(program) == [("matmul_f16_tiles_nn", blocks)]


def test_few_rows_are_reduced_in_one_pass_by_blocks_of_few_columns():
    x = Stored(DType.F16, 1 << 28)
    few = built(reduce.reduce, ReduceOp.SUM, at(x, (256, 256)), (0,), facts=LARGE)
    many = built(reduce.reduce, ReduceOp.SUM, at(x, (1 << 14, 1 << 14)), (0,), facts=LARGE)
    assert grids(few) == [("sum_f16_columns", 8)]
    assert grids(many) == [("sum_f16_columns", 512), ("sum_f16_finish", 128)]


def test_elementwise_variants():
    x, y = Stored(DType.F32, 1 << 20), Stored(DType.F32, 1 << 20)
    plain, transposed = at(x, (128, 48), None, 3), at(y, (128, 48), (1, 128))
    contiguous = built(elementwise.binary, BinaryOp.ADD, plain, at(y, (128, 48), None, 3))
    broadcast = built(elementwise.binary, BinaryOp.ADD, plain, at(y, (128, 48), (0, 1)))
    by_tiles = built(elementwise.binary, BinaryOp.SUB, plain, transposed)
    compared = built(elementwise.compare, CmpOp.LT, plain, at(y, (128, 48), (0, 1)))
    assert [grids(program) for program in (contiguous, broadcast, by_tiles, compared)] == [
        [("add_f32_contiguous", 3)],
        [("add_f32_strided", 6)],
        [("sub_f32_transposed", 8)],
        [("lt_f32_strided", 6)],
    ]
    run = Run(contiguous)
    addresses = arguments.BINARY_CONTIGUOUS.unpack(run.launches[0].packed)
    assert addresses[:4] == (*run.results, *(address + 12 for address in run.arguments), 128 * 48)
    run = Run(by_tiles)
    fields = arguments.BINARY_TRANSPOSED.unpack(run.launches[0].packed)
    assert fields[1:7] == (run.arguments[1], run.arguments[0] + 12, 1, 0, 2, 48)


def test_gradients_of_both_operands_are_one_launch():
    x, y, g = (Stored(DType.F32, 1 << 20) for _ in range(3))
    joint, op = elementwise.joint, BinaryGradientsOp.MUL_GRADIENTS
    program = built(joint, op, *(at(it, (128, 48), None, 4) for it in (g, x, y)))
    broadcast = built(joint, op, at(g, (128, 48), (0, 0)), at(x, (128, 48)), at(y, (128, 48)))
    assert kernels(program) == ["mul_gradients_f32_contiguous"]
    assert kernels(broadcast) == ["mul_gradients_f32_strided"]
    run = Run(program)
    fields = arguments.BINARY_GRADIENTS_CONTIGUOUS.unpack(run.launches[0].packed)
    assert fields[:6] == (*run.results, *(address + 16 for address in run.arguments), 128 * 48)


def test_a_step_takes_as_many_tensors_as_arguments_have_room_for():
    assert OPTIM_ROOM == ROOM
    sizes = [20, 0, *[5] * OPTIM_TENSORS, 1 << 12]
    tensors = [at(Stored(DType.BF16, size), (size,)) for size in sizes]
    state, numbers = Stored(DType.F32, sum(parts_of(sizes))), Stored(DType.F32, 3)
    program = built(optim.sgd_step, tensors[0], state, numbers, False, *tensors[1:], *tensors)
    first, last = (arguments.OPTIM_STEP.unpack(launch.packed) for launch in Run(program).launches)
    assert [blocks for _, blocks in grids(program)] == [2, 3]
    counts, offsets = (first[place * OPTIM_TENSORS :][:OPTIM_TENSORS] for place in (2, 3))
    assert counts[:3] == (20, 5, 5) and offsets[:3] == (0, 2, 3)
    assert last[2 * OPTIM_TENSORS :][:3] == (5, 1 << 12, 0)
    assert last[3 * OPTIM_TENSORS :][:3] == (OPTIM_TENSORS + 1, OPTIM_TENSORS + 2, (1 << 32) - 1)


def test_few_elements_get_a_thread_each_as_far_as_one_block_on_each_multiprocessor_goes():
    x = Stored(DType.F16, 1 << 20)
    for count, blocks in ((256, 1), (1 << 10, 4), (1 << 16, 132), (1 << 20, 256)):
        program = built(elementwise.unary, UnaryOp.EXP, at(x, (count,)), facts=LARGE)
        assert grids(program) == [("exp_f16_contiguous", blocks)]


def test_few_transposed_elements_are_read_as_they_lie_by_a_thread_each():
    x = Stored(DType.F16, 1 << 16)
    plain, transposed = at(x, (256, 256)), at(x, (256, 256), (1, 256))
    sums_of_both = built(elementwise.binary, BinaryOp.ADD, plain, transposed, facts=LARGE)
    condition = at(Stored(DType.U8, 1 << 16), (256, 256))
    chosen = built(elementwise.ternary, MethodOp.WHERE_COND, condition, plain, transposed, facts=LARGE)
    assert grids(sums_of_both) == [("add_f16_strided", 256)]
    assert grids(chosen) == [("where_cond_b8_b16_strided", 256)]


@pytest.mark.parametrize(
    ("dtype", "size", "kernel"),
    [
        (DType.F16, 64, "copy_b16_strided"),
        (DType.F32, 64, "copy_b32_transposed"),
        (DType.F16, 65, "copy_b16_transposed"),
    ],
)
def test_few_narrow_elements_are_transposed_without_a_tile(dtype, size, kernel):
    assert kernels(built(copy.fresh, at(Stored(dtype, size * 64), (size, 64), (1, size)))) == [kernel]


def test_large_transposed_operands_are_transposed_by_tiles_first():
    transposed = at(Stored(DType.F32, 1 << 16), (256, 256), (1, 256))
    exp = built(elementwise.unary, UnaryOp.EXP, transposed)
    add = built(elementwise.binary, BinaryOp.ADD, transposed, transposed)
    assert kernels(exp) == ["copy_b32_transposed", "exp_f32_contiguous"]
    assert kernels(add) == ["copy_b32_transposed", "add_f32_transposed"]


def test_more_elements_than_32_bits_number():
    x = Stored(DType.U8, LIMIT)
    assert kernels(built(elementwise.unary, UnaryOp.NEG, at(x, (LIMIT,)))) == ["neg_u8_contiguous"]
    run = Run(built(elementwise.unary, UnaryOp.NEG, at(x, (LIMIT, 2), (1, 0))))
    assert [launch.kernel for launch in run.launches] == ["neg_u8_strided"] * 3
    first, second, third = (arguments.UNARY_STRIDED.unpack(launch.packed) for launch in run.launches)
    assert first[2] + second[2] + third[2] == 2 * LIMIT
    assert second[:2] == (run.results[0] + first[2], run.arguments[0] + first[2] // 2)


def test_scalars_are_converted_as_to_dtype_does():
    for dtype, value, bits in (
        (DType.U8, 300.7, 255), (DType.U8, -1.5, 0), (DType.I16, -40000.0, 0x8000), (DType.I64, math.nan, 0),
        (DType.F32, -0.0, 0x80000000), (DType.F32, 0.0, 0), (DType.BF16, 1.00390625, 0x3F80), (DType.F16, 1e9, 0x7C00),
        (DType.F8E4M3, 1e9, 0x7E), (DType.I64, 2**63 - 1, 2**63 - 1), (DType.F64, 1.0, 0x3FF0000000000000),
    ):  # fmt: skip
        target = at(Stored(dtype, 4), (4,))
        # A number of the program, and one of each run.
        for run in (
            Run(built(copy.const_set, target, value)),
            Run(built(copy.const_set, target, value, numbers=1), [value]),
        ):
            assert arguments.FILL_CONTIGUOUS.unpack(run.launches[0].packed) == (run.arguments[0], 4, bits, 0)
    (launch,) = Run(built(elementwise.unary, MethodOp.AFFINE, at(Stored(DType.I16, 4), (4,)), -2.9, 1e9)).launches
    assert arguments.UNARY_CONTIGUOUS.unpack(launch.packed)[3:5] == (0xFFFE, 32767)


def test_dense_copies_need_no_kernel():
    x, y = Stored(DType.F16, 100), Stored(DType.F16, 100)
    run = Run(built(copy.copy_strided_src, at(x, (4, 5), None, 3), y, 10))
    source, target = run.arguments
    assert (run.launches, run.copies) == ([], [(target + 20, source + 6, 40)])
    run = Run(built(copy.copy2d, x, y, 4, 5, 5, 5, 0, 20))
    assert (run.launches, run.copies) == ([], [(target + 40, source, 40)])
    run = Run(built(elementwise.cast, MethodOp.TO_DTYPE, at(x, (100,)), result=DType.F16))
    assert (run.launches, run.copies) == ([], [(*run.results, source, 200)])


def test_overlapping_copies_go_by_way_of_other_memory():
    x = Stored(DType.F32, 100)
    run = Run(built(copy.copy_strided_src, at(x, (50,)), x, 1))
    (between, source, _), (target, again, _) = run.copies
    assert (target, source) == (run.arguments[0] + 4, run.arguments[0])
    assert between == again
    run = Run(built(copy.copy_strided_src, at(x, (50,)), x, 50))
    assert run.copies == [(run.arguments[0] + 200, run.arguments[0], 200)]


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
        place = (*(line[named] for line in lines), row[named])
        totals[place] += source[..., position][named]
    return np.moveaxis(totals, -1, dim).astype(target.dtype)


def by_sorting(build, x, indexes, source, dim):
    sums._add_sorted(build, x, indexes, source, dim, x.layout.end - x.layout.start_offset)


def by_lines(way):
    def add(build, x, indexes, source, dim):
        sums._add_by_lines(build, way, "scatter_add", x, indexes, source, dim)

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


def test_tiles_of_a_long_line_follow_each_other(gpu):
    """More of them than run at once."""
    numbers = np.random.default_rng(9).integers(0, 1 << 10, (2, 41 * SORT_TILE + 5)).astype(np.uint16)
    x = at(gpu.storage(numbers.ravel()), numbers.shape)
    elements, positions = gpu.run(sort.sort, x, False, numbers.shape[1])
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
    found = gpu.run(sums.index_add, *operands, 0).to_numpy().reshape(size, columns)
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
        found.append(gpu.run(rope.rope, *operands, is_interleaved).to_numpy())
    rope._plan.cache_clear()
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        ((4096, 1000), ["cross_entropy_f16"]),
        ((4096, 70_000), ["cross_entropy_f16"]),
        ((2, 70_000), ["cross_entropy_f16_measure", "cross_entropy_f16"]),
    ],
)
def test_losses_are_one_launch_and_two_where_rows_are_few_and_long(shape, names):
    logits, targets = Stored(DType.F16, math.prod(shape)), Stored(DType.I64, shape[0])
    program = built(cross_entropy, at(logits, shape), at(targets, shape[:1]), 1, -100)
    assert kernels(program) == names
    assert expected_errors(program) == 1


@pytest.mark.parametrize(
    ("rows", "hidden", "joined"),
    [(1, 4096, True), (8, 4096, True), (9, 4096, True), (16, 4096, True), (17, 4096, False), (1, 8192, False)],
)
def test_few_rows_of_x_are_made_and_rounded_in_one_launch(rows, hidden, joined):
    blocks = Stored(GgmlDType.Q4K, 16 * hidden)
    x, y = (at(Stored(DType.F32, rows * hidden), (rows, hidden)) for _ in range(2))
    normed = built(quantized.fwd_rms_norm, blocks, x, None, y, 16, hidden, "q8_1", 1e-5)
    product = f"rounded_product_Q4K_{1 if rows == 1 else 8 if rows <= 8 else 16}"
    if joined:
        assert kernels(normed) == ["rms_norm_1_32_held4", product]
        # A block rounds a pack of each thread.
        assert launches(normed)[0].blocks == 4 * rows
    else:
        assert kernels(normed)[0].startswith("norm_f32_")
    gated = kernels(built(quantized.fwd_silu_mul, blocks, x, y, 16, hidden, "q8_1"))
    if rows <= 16:
        assert gated == ["silu_mul_1_32", product]
    else:
        assert gated[0] == "silu_mul_f32_contiguous"


@pytest.mark.parametrize("count", [64, 7000, 1 << 20])
def test_the_mean_of_few_losses_is_one_launch(count):
    losses, counted = (at(Stored(DType.F32, count), (count,)) for _ in range(2))
    apart = ["sum_f32_rows", "sum_f32_finish"] * 2 + ["div_f32_contiguous", "recip_f32_contiguous"]
    assert kernels(built(ratio_of_sums, losses, counted)) == (["ratio_of_sums_f32"] if count < 1 << 20 else apart)


def test_what_is_written_to_is_not_read():
    x = Stored(DType.I64, 100)
    square = at(x, (5, 5))
    program = built(scatter_set, square, at(x, (5, 5), None, 50), square, 0)
    run = Run(program)
    assert len(run.copies) == 1
    assert kernels(program) == ["scatter_mark", "scatter_set_b64"]
    assert [nbytes for _, _, nbytes in run.fills] == [100]


class Library:
    """A BLAS that describes its calls."""

    def multiply(self, dtype, bmnk, lhs, rhs, result, is_added=False, result_dtype=None):
        assert not is_added, "there is no bias"
        assert result_dtype is None, "products are in the dtype of their operands"
        return LibraryCall(self.multiply, (dtype, bmnk, lhs, rhs, result))


def test_products_go_to_a_library_where_it_takes_them():
    x, y = Stored(DType.F32, 4096), Stored(DType.I32, 4096)
    sizes, right = (2, 8, 16, 4), layout((2, 4, 16), (0, 1, 4))
    for left, copies in ((layout((2, 8, 4)), []), (layout((2, 8, 4), (64, 8, 2)), ["copy_b32_strided"])):
        program = built(matmul.by_library, Library(), Operand(x, left), Operand(x, right), sizes)
        assert kernels(program) == copies
        ((_, (_, _, _, rhs, result)),) = (run := Run(program)).calls
        assert (rhs.address, rhs.step, [result]) == (run.arguments[1], 0, run.results)
    nothing = at(x, (2, 8, 0)), at(x, (2, 0, 16))
    assert call_of(matmul.by_library, Library(), *nothing, (2, 8, 16, 0)).program(FACTS, may_refuse=True) is None
    run = Run(built(matmul.matmul, *nothing, (2, 8, 16, 0)))
    assert (run.launches, run.fills) == ([], [(*run.results, 0, 2 * 8 * 16 * 4)])
    (launch,) = Run(built(matmul.matmul, Operand(y, layout((2, 8, 4))), Operand(y, right), sizes)).launches
    assert launch.kernel == "matmul_i32"
    assert arguments.MATMUL.unpack(launch.packed)[3:14] == (4, 1, 1, 4, 0, 0, 8, 16, 4, 2, 1)


def test_convolutions_are_products_where_these_pay():
    x = Stored(DType.F32, 1 << 16)
    sizes = {"b_size": 2, "i_h": 8, "i_w": 8, "c_in": 4, "padding": 0, "stride": 1, "dilation": 1}
    image, found = at(x, (2, 4, 8, 8)), []
    for c_out, k in ((16, 3), (16, 1), (2, 3)):
        params = ParamsConv2D(**sizes, c_out=c_out, k_h=k, k_w=k)
        operands = image, at(x, (c_out, 4, k, k)), params
        program = call_of(conv.conv2d_by_product, Library(), *operands).program(FACTS, may_refuse=True)
        if program is None:
            found.append((kernels(built(conv.conv2d, *operands)), []))
        else:
            found.append((kernels(program), [call.arguments[1] for call in Run(program).calls]))
    assert found == [
        (["im2col_b32"], [(2, 16, 36, 36)]),
        ([], [(2, 16, 64, 4)]),
        (["conv_f32_direct"], []),
    ]


class Images(Library):
    """A library of images that refuses kernels but of one size, some when it is called."""

    def conv2d(self, dtype, params, source, kernel, result):
        return LibraryCall(self._run, (params.k_h,)) if dtype is DType.F32 else None

    def _run(self, size):
        return size == 5


@pytest.mark.parametrize(
    ("dtype", "c_out", "k", "steps"),
    [
        (DType.F32, 16, 5, ["_run"]),
        (DType.F32, 16, 1, ["_run", "multiply"]),
        (DType.F32, 2, 3, ["_run", "conv_f32_direct"]),
        (DType.F64, 16, 1, ["multiply"]),
    ],
)
def test_what_a_library_refuses_is_handed_on(rocm, monkeypatch, dtype, c_out, k, steps):
    """To MIOpen, then to hipBLAS, then to the kernel."""
    monkeypatch.setattr(type(rocm), "miopen", Images())
    monkeypatch.setattr(type(rocm), "hipblas", Library())
    sizes = {"b_size": 2, "i_h": 8, "i_w": 8, "c_in": 4, "padding": 0, "stride": 1, "dilation": 1}
    params = ParamsConv2D(**sizes, c_out=c_out, k_h=k, k_w=k)
    image, kernel = (Device(rocm).zeros(shape, dtype) for shape in ((2, 4, 8, 8), (c_out, 4, k, k)))
    observer = Observer()
    rocm.plans.clear()
    with rocm.plans.observed_by(observer):
        image.conv2d(layout((2, 4, 8, 8)), kernel, layout((c_out, 4, k, k)), params)
    rocm.plans.clear()
    taken = [step for program in observer.programs for step in program.steps if isinstance(step, Launch | LibraryCall)]
    assert [getattr(step, "kernel", None) or step.function.__name__ for step in taken] == steps


class Heads:
    """A library that takes all attention that it is asked for."""

    def attention(self, dtype, params, *addresses):
        return LibraryCall(self.attention, (dtype, params, *addresses))

    attention_with_logsumexp = attention_gradient = attention


def test_the_splits_of_keys_are_joined_in_the_launch_that_makes_them():
    x = Stored(DType.BF16, 1 << 20)
    query, keys = at(x, (1, 8, 1, 96)), at(x, (1, 2, 900, 96))

    def attended(keys):
        (launch,) = Run(
            built(attention.scaled_dot_product_attention, query, keys, keys, None, None, False, 0.125)
        ).launches
        return launch, arguments.ATTENTION.unpack(launch.packed)[6:8]

    launch, (parts, counters) = attended(keys)
    assert (launch.kernel, launch.blocks, counters) == ("attention_bf16_128_rows4", 2 * 2, FACTS.counters)
    assert parts != 0
    # One split needs neither.
    assert attended(keys.relaid((1, 2, 60, 96), keys.strides))[1] == (0, 0)


def test_attention_goes_to_a_library_as_it_lies_where_that_means_the_same():
    x, apart = Stored(DType.F16, 1 << 20), (40 * 2 * 64, 64, 2 * 64, 1)
    query, keys = at(x, (2, 4, 40, 64)), at(x, (2, 2, 40, 64), apart, 64)

    def attend(query=query, keys=keys, mask=None, lengths=None, is_causal=True, scale=0.125):
        operands = query, keys, keys, mask, lengths, is_causal, scale
        return call_of(attention.by_library, Heads(), *operands).program(FACTS, may_refuse=True)

    run = Run(attend())
    ((_, (dtype, params, *addresses)),) = run.calls
    assert not run.launches
    assert (dtype, params.is_causal, params.scale) == (DType.F16, True, 0.125)
    assert params.query == ((2, 4, 40, 64), (10240, 2560, 64, 1))
    assert params.keys == params.values == ((2, 2, 40, 64), apart)
    start, *_ = run.arguments
    assert addresses == [start, start + 128, start + 128, *run.results]
    for refused in (
        {"mask": at(x, (2, 4, 40, 40))},
        {"lengths": at(Stored(DType.I32, 1), (1,))},
        # Queries that see nothing are 0.
        {"query": at(x, (2, 4, 41, 64))},
        {"scale": -0.125},
        {"scale": math.inf},
        # What has too few rows to be worth it, and what lies where no whole access begins.
        {"query": at(x, (2, 4, 16, 64))},
        {"keys": at(x, (2, 2, 40, 64), None, 1)},
        {"keys": at(x, (2, 2, 0, 64)), "is_causal": False},
    ):
        assert attend(**refused) is None, refused


def test_gradients_of_attention_go_to_a_library_with_what_it_left_for_them():
    x, apart = Stored(DType.BF16, 1 << 20), (40 * 2 * 64, 64, 2 * 64, 1)
    query, keys = at(x, (2, 4, 40, 64)), at(x, (2, 2, 40, 64), apart, 64)
    forward = built(attention.by_library_with_logsumexp, Heads(), query, keys, keys, None, None, True, 0.125)
    assert [(each.dtype, each.length) for each in forward.result] == [(DType.BF16, 2 * 4 * 40 * 64), (DType.F32, 320)]
    run = Run(forward)
    ((_, (_, of_forward, *addresses)),) = run.calls
    assert addresses[3:] == run.results

    result, logsumexp = at(Stored(DType.BF16, 2 * 4 * 40 * 64), (2, 4, 40, 64)), Stored(DType.F32, 4 * 320)

    def change(by=attention_gradient.by_library, query=query, sums=((2, 4, 40),), mask=None, lengths=None, **others):
        of_mask, scale = others.get("of_mask", False), others.get("scale", 0.125)
        operands = query, keys, keys, result, query, at(logsumexp, *sums), mask, lengths, True, of_mask, scale
        return call_of(by, Heads(), *operands).program(FACTS, may_refuse=True)

    for by, any_order in (
        (attention_gradient.by_library, False),
        (attention_gradient.by_library_in_any_order, True),
    ):
        program = change(by)
        run = Run(program)
        ((_, (dtype, params, *addresses)),) = run.calls
        assert (dtype, params.any_order, params.attention) == (DType.BF16, any_order, of_forward)
        assert params.result == params.gradient == params.attention.query
        start, of_result, of_sums = run.arguments[0], run.arguments[3], run.arguments[5]
        assert addresses == [start, *[start + 128] * 2, of_result, start, of_sums, *run.results]
        assert [each.length for each in program.result] == [2 * 4 * 40 * 64, *[2 * 2 * 40 * 64] * 2]
        assert not run.launches
    # Libraries read the logarithms one behind the other.
    run = Run(change(sums=((2, 4, 40), (160, 1, 4))))
    assert len(run.launches) == 1
    assert run.calls[0].arguments[7] not in (0, run.arguments[5])
    for refused in (
        {"mask": at(x, (2, 4, 40, 40))},
        {"mask": at(x, (2, 4, 40, 40)), "of_mask": True},
        {"lengths": at(Stored(DType.I32, 1), (1,))},
        {"scale": -0.125},
        {"query": at(x, (2, 4, 40, 64), None, 1)},
    ):
        assert change(**refused) is None, refused


def test_a_plan_of_what_a_library_may_refuse_is_for_its_numbers():
    """A plan is found before anybody asks whether the library takes the scale of this call."""
    assert "scaled_dot_product_attention" not in Storage.numbers
    assert Storage.numbers["powf"] == 1


def test_images_too_large_for_a_kernel_are_refused():
    x = Stored(DType.U8, 12)
    nearest = upsample.upsample_nearest2d
    assert len(kernels(built(nearest, at(x, (3, 1, 2, 2), (0, 4, 2, 1)), 1 << 15, 1 << 15))) == 1
    with pytest.raises(InvalidArgument):
        built(nearest, at(x, (1, 1, 2, 2)), 1, 1 << 31)
