"""What the ops of the GPU backends launch: which kernels, on how many blocks, with which arguments. No GPU needed."""

import math

import numpy as np
import pytest
from tallow.dtype import DType
from tallow.ggml_dtype import GgmlDType
from tallow.kernels import arguments
from tallow.kernels import launches as emitted
from tallow.kernels.constants import OPTIM_ALIGNMENT, OPTIM_TENSORS, SORT_TILE
from tallow.op import BinaryGradientsOp, BinaryOp, CmpOp, MethodOp, ReduceOp, UnaryOp
from tallow.runtime.backends.gpu_backend.ops import (
    copy,
    elementwise,
    matmul,
    optim,
    quantized,
    reduce,
    rope,
    row,
    scan,
    sort,
    sums,
)
from tallow.runtime.backends.gpu_backend.ops.geometry import LIMIT
from tallow.runtime.backends.gpu_backend.ops.index import gather
from tallow.runtime.backends.gpu_backend.ops.loss import ratio_of_sums
from tallow.runtime.base.error import InvalidArgument
from tallow.runtime.core.optim import ALIGNMENT, parts_of
from tallow.runtime.program.program import Allocate, Copy

from .programs import FACTS, LARGE, Run, Stored, at, built, expected_errors, grids, kernels, launches


def test_long_sums_are_split_and_joined():
    x = Stored(DType.F32, 1 << 22)
    first, last = Run(built(reduce.reduce, ReduceOp.SUM, at(x, (1 << 22,)), (0,))).launches
    assert (first.kernel, last.kernel) == ("sum_f32_rows", "sum_f32_finish")
    to, _, count, outputs, length, splits, chunk, team, dense, *_ = arguments.REDUCE_ROWS.unpack(first.packed)
    assert count == length
    assert (outputs, length, team, dense, first.blocks) == (1, 1 << 22, 256, 1, splits)
    assert splits == -(-length // chunk) > 1
    assert arguments.REDUCE_FINISH.unpack(last.packed)[1:5] == (to, count, 1, splits)


# By the op and dtype of a reduction, the bytes of what kernels store of a part.
@pytest.mark.parametrize(
    ("op", "dtype", "itemsize"),
    [("sum", "u8", 1), ("sum", "bf16", 4), ("any", "bool", 1), ("any", "u8", 4), ("sum_i64", "u8", 8)],
)
def test_partial_results_have_the_memory_that_kernels_take(op, dtype, itemsize):
    x = Stored(DType(dtype), 1 << 22)
    program = built(reduce.reduce, ReduceOp(op), at(x, (1 << 22,)), (0,))
    splits = arguments.REDUCE_ROWS.unpack(Run(program).launches[0].packed)[5]
    assert splits > 1
    # They come first; the result is allocated in front of the launch that writes it.
    assert next(step.memory.nbytes for step in program.steps if isinstance(step, Allocate)) == splits * itemsize


@pytest.mark.parametrize(
    ("op", "dtype", "itemsize"),
    [
        *(("cumsum", "u8", 1), ("cumsum", "bf16", 4), ("cumprod", "complex128", 16), ("logcumsumexp", "f16", 8)),
        *(("cummax", "u8", 8), ("cummin", "f32", 8), ("cummax", "i64", 16)),
    ],
)
def test_totals_of_scans_have_the_room_that_kernels_take(op, dtype, itemsize):
    count = 1 << 22
    program = built(scan.scan, MethodOp(op), at(Stored(DType(dtype), count), (count,)), 0, False)
    splits = arguments.SCAN_ROWS.unpack(Run(program).launches[0].packed)[7]
    assert splits > 1
    assert splits * itemsize in [step.memory.nbytes for step in program.steps if isinstance(step, Allocate)]


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
        (copy.clone, x, empty.layout),
        (copy.copy_strided_src, empty, x, 0),
        (copy.copy2d, x, x, 0, 4, 4, 4, 0, 0),
        (matmul.matmul, matrices, matrices, (0, 3, 3, 3)),
        (emitted.max_pool2d, images, (2, 2), (1, 1)),
        (emitted.upsample_nearest2d, images, 4, 4),
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
    gradients, op = elementwise.binary_gradients, BinaryGradientsOp.MUL_GRADIENTS
    program = built(gradients, op, *(at(it, (128, 48), None, 4) for it in (g, x, y)))
    broadcast = built(gradients, op, at(g, (128, 48), (0, 0)), at(x, (128, 48)), at(y, (128, 48)))
    assert kernels(program) == ["mul_gradients_f32_contiguous"]
    assert kernels(broadcast) == ["mul_gradients_f32_strided"]
    run = Run(program)
    fields = arguments.BINARY_GRADIENTS_CONTIGUOUS.unpack(run.launches[0].packed)
    assert fields[:6] == (*run.results, *(address + 16 for address in run.arguments), 128 * 48)


def test_a_step_takes_as_many_tensors_as_arguments_have_room_for():
    assert OPTIM_ALIGNMENT == ALIGNMENT
    sizes = [20, 0, *[5] * OPTIM_TENSORS, 1 << 12]
    tensors = [at(Stored(DType.BF16, size), (size,)) for size in sizes]
    state, numbers = Stored(DType.F32, sum(parts_of(sizes))), Stored(DType.F32, 3)
    program = built(optim.sgd_step, tensors[0], state, numbers, False, *tensors[1:], *tensors)
    first, last = (arguments.OPTIM_STEP.unpack(launch.packed) for launch in Run(program).launches)
    assert [blocks for _, blocks in grids(program)] == [2, 3]
    counts, offsets = (first[index * OPTIM_TENSORS :][:OPTIM_TENSORS] for index in (2, 3))
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


def test_tiles_of_a_long_line_follow_each_other(gpu):
    """More of them than run at once."""
    numbers = np.random.default_rng(9).integers(0, 1 << 10, (2, 41 * SORT_TILE + 5)).astype(np.uint16)
    x = at(gpu.storage(numbers.ravel()), numbers.shape)
    elements, positions = gpu.run(sort.sort, x, False, numbers.shape[1])
    order = np.argsort(numbers, kind="stable")
    np.testing.assert_array_equal(positions.to_numpy().reshape(numbers.shape), order)
    np.testing.assert_array_equal(elements.to_numpy().reshape(numbers.shape), np.take_along_axis(numbers, order, 1))


@pytest.mark.parametrize("is_interleaved", [False, True])
def test_however_many_heads_a_thread_turns_the_result_is_the_same(gpu, monkeypatch, is_interleaved):
    generator = np.random.default_rng(3)
    arrays = [generator.standard_normal(shape).astype(np.float32) for shape in ((2, 11, 5, 16), (7, 8), (7, 8))]
    operands = [at(gpu.storage(array), array.shape) for array in (*arrays, np.array([1, 2]))]
    results = []
    for busy_blocks in (1 << 30, 0):
        monkeypatch.setattr(rope, "_BUSY_BLOCKS", busy_blocks)
        rope._plan.cache_clear()
        results.append(gpu.run(emitted.rope, *operands, is_interleaved).to_numpy())
    rope._plan.cache_clear()
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(
    ("op", "name", "parameters", "stages"),
    [
        (MethodOp.CROSS_ENTROPY, "cross_entropy", (False,), 1),
        (MethodOp.SMOOTHED_CROSS_ENTROPY, "smoothed_cross_entropy_without_weight", (True, 0.1), 2),
    ],
)
@pytest.mark.parametrize(("shape", "kernel"), [((4096, 1000), "vector4"), ((4096, 70_000), "vector_long")])
def test_losses_are_one_launch_and_several_where_rows_are_few_and_long(op, name, parameters, stages, shape, kernel):
    logits, targets = Stored(DType.F16, math.prod(shape)), Stored(DType.I64, shape[0])
    program = built(row.row, op, at(logits, shape), None, at(targets, shape[:1]), 1, -100, *parameters)
    assert kernels(program) == [f"{name}_f16_{kernel}"]
    few = at(logits, (2, shape[1]))
    program = built(row.row, op, few, None, at(targets, (2,)), 1, -100, *parameters)
    assert kernels(program) == [f"{name}_f16_{kernel}"] * (1 if kernel == "vector4" else 1 + stages)
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
        assert kernels(normed) == ["rms_norm_1_32_vector4", product]
        # A block rounds a pack of each thread.
        assert launches(normed)[0].blocks == 4 * rows
    else:
        assert kernels(normed)[0].startswith("rms_norm_f32_")
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


def test_the_splits_of_keys_are_joined_in_the_launch_that_makes_them():
    x = Stored(DType.BF16, 1 << 20)
    query, keys = at(x, (1, 8, 1, 96)), at(x, (1, 2, 900, 96))

    def attended(keys):
        (launch,) = Run(
            built(emitted.scaled_dot_product_attention, query, keys, keys, None, None, False, 0.125)
        ).launches
        return launch, arguments.ATTENTION.unpack(launch.packed)[6:8]

    launch, (parts, counters) = attended(keys)
    assert (launch.kernel, launch.blocks, counters) == ("attention_bf16_128_rows4", 2 * 2, FACTS.counters)
    assert parts != 0
    # One split needs neither.
    assert attended(keys.as_strided((1, 2, 60, 96), keys.strides))[1] == (0, 0)


def test_images_too_large_for_a_kernel_are_refused():
    x = Stored(DType.U8, 12)
    nearest = emitted.upsample_nearest2d
    assert len(kernels(built(nearest, at(x, (3, 1, 2, 2), (0, 4, 2, 1)), 1 << 15, 1 << 15))) == 1
    with pytest.raises(InvalidArgument):
        built(nearest, at(x, (1, 1, 2, 2)), 1, 1 << 31)
