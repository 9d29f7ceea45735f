"""Row formulas of any kind by the kernels that take any functor, on the GPU of --device, and on the HIP runtime for the
CPU."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tallow import Device, DType, Storage, Tensor
from tallow.dtype import Array
from tallow.kernels import arguments
from tallow.kernels.constants import ROWS as ROW_OPS
from tallow.op import MethodOp
from tallow.runtime.backends.gpu_backend.ops import row, row_formula
from tallow.runtime.base.error import InvalidArgument
from tallow.runtime.base.row_facts import RowFacts
from tallow.runtime.program.program import Allocate
from tallow.runtime.program.values import Buffer, Operand

from . import backend
from .programs import FACTS, LARGE, Observer, Run, Stored, at, built, grids, kernels
from .row_functors import FUNCTORS, LAYER_NORM, LESS_HIGHEST, NORM_GRADIENT, SOFTMIN, Functor

backend.require_package()

TOLERANCES = {"f64": 1e-13, "f32": 3e-6, "f16": 2e-3, "bf16": 1.6e-2}


def numbers(functor: Functor, shape: tuple[int, ...], dim: int, dtype: str) -> list[Tensor]:
    """Operands of a functor, of which rows are along a dim of a shape, rounded to a dtype."""
    generator = np.random.default_rng(sum(shape))
    dims = {"rl": shape, "l": (1,) * dim + (shape[dim],) + (1,) * (len(shape) - dim - 1)}
    dims["r"] = tuple(1 if d == dim else size for d, size in enumerate(shape))
    return [Tensor(generator.normal(size=dims[each])).to_dtype(dtype) for each in functor.operands]


def run(gpu: Any, functor: Functor, dim: int, operands: list[Tensor]) -> tuple[list[Tensor], list[str]]:
    """The results of a functor, and the kernels that were launched for them."""
    formula = functor.composed()

    def along(build: Any, *given: Operand) -> tuple[Buffer, ...]:
        return row.along(build, formula, dim, given, functor.parameters)

    observer = Observer()
    given = [Operand(each.storage.inner, each.layout) for each in operands]
    with gpu.plans.observed_by(observer):
        result = gpu.run(along, *given)
    shape = operands[0].shape
    results = [Tensor.from_storage(Storage(each), shape) for each in result]
    return results, kernels(observer.programs[0])


def check(
    gpu: Any, functor: Functor, shape: tuple[int, ...], dim: int, dtype: str, ends: str | None = None
) -> list[str]:
    """Compare a functor's results with those of NumPy; its kernels' names are given back."""
    inputs = numbers(functor, shape, dim, dtype)
    broadcast = [each.to_device(Device(gpu)).broadcast_as(shape) for each in inputs]
    results, names = run(gpu, functor, dim, broadcast)
    at_end = [np.moveaxis(np.broadcast_to(each.to_dtype("f64").numpy(), shape), dim, -1) for each in inputs]
    expected: Any = functor.oracle(*at_end, *functor.parameters)
    for result, right in zip(results, expected if functor.results > 1 else [expected], strict=True):
        compare(result, np.moveaxis(right, -1, dim), dtype)
    if ends is not None:
        assert names[0].endswith(ends), names
    return names


def compare(result: Tensor, expected: Array, dtype: str) -> None:
    """Compare with a tolerance that grows with the largest number; NaN is where NaN is expected."""
    output = result.to_dtype("f64").numpy()
    assert output.shape == expected.shape
    tolerance = TOLERANCES[dtype] * max(np.nanmax(np.abs(expected), initial=0), 1)
    np.testing.assert_allclose(output, expected, rtol=0, atol=tolerance)


# Shapes and dims, and the ends of the kernels of 4 and of 2 bytes that rows of them take.
ROWS: Final = [
    ((3, 64), 1, "vector2", "vector2"),
    ((2, 1000), 1, "vector4", "vector4"),
    ((2, 9000), 1, "vector_long", "vector8"),
    ((2, 3, 5000), 2, "vector8", "vector4"),
    ((5, 3), 1, "scalar4", "pair4"),
    ((4, 1), 1, "scalar4", "pair4"),
    ((1,), 0, "scalar4", "pair4"),
    ((2, 101), 1, "scalar4", "pair4"),
    ((5, 333), 1, "scalar16", "pair16"),
    ((3, 1001), 1, "scalar16", "pair16"),
    ((3, 4097), 1, "scalar32", "pair16"),
    ((2, 8195), 1, "scalar_long", "pair32"),
    ((9, 16384 + 8), 1, "vector_long", "vector_long"),
    ((2, 40001), 1, "scalar_long", "pair_long"),
]
COLUMNS: Final = [
    ((2, 20, 64), 1, "columns8", "columns8"),
    ((3, 300, 32), 1, "vector_columns", "vector_columns"),
    ((33, 37), 0, "scalar_columns", "scalar_columns"),
    # Moved last and copied.
    ((2, 50, 3), 1, "strided", "strided"),
]


@pytest.mark.parametrize(("functor", "dtype"), [(SOFTMIN, "f32"), (NORM_GRADIENT, "bf16")])
@pytest.mark.parametrize(("shape", "dim", "wide", "narrow"), ROWS + COLUMNS)
def test_every_kernel_of_a_functor(
    gpu: Any, functor: Functor, dtype: str, shape: tuple[int, ...], dim: int, wide: str, narrow: str
) -> None:
    check(gpu, functor, shape, dim, dtype, wide if dtype == "f32" else narrow)


@pytest.mark.parametrize("functor", FUNCTORS, ids=lambda functor: functor.name)
def test_functors_along_rows_and_columns(gpu: Any, full: bool, functor: Functor) -> None:
    for dtype in ("f32", "bf16", "f16", "f64") if full else ("f32",):
        for shape, dim, *_ in ROWS + COLUMNS if full else [ROWS[0], COLUMNS[0]]:
            check(gpu, functor, shape, dim, dtype)


def test_operands_lie_anywhere(gpu: Any) -> None:
    device = Device(gpu)
    generator = np.random.default_rng(0)
    x, weight, bias = (Tensor(generator.normal(size=size).astype("f4")) for size in ((4, 6, 21), (20,), (4, 20)))
    # Rows that begin anywhere, weights too, and a bias that rows of one image share.
    inputs = [x.to_device(device).narrow(2, 1, 20), weight.to_device(device), bias.to_device(device).unsqueeze(1)]
    at_end = [x.numpy()[:, :, 1:], weight.numpy(), bias.numpy()[:, None]]
    for views, arrays in (
        (inputs, at_end),
        (
            [inputs[0].transpose(0, 1), *inputs[1:2], inputs[2].transpose(0, 1)],
            [np.swapaxes(at_end[0], 0, 1), at_end[1], np.swapaxes(at_end[2], 0, 1)],
        ),
        ([each.narrow(-1, 3, 16) for each in inputs], [each[..., 3:19] for each in at_end]),
        ([each.narrow(-1, 3, 7) for each in inputs], [each[..., 3:10] for each in at_end]),
    ):
        shape = views[0].shape
        (result,), _ = run(gpu, LAYER_NORM, 2, [each.broadcast_as(shape) for each in views])
        compare(result, LAYER_NORM.oracle(*arrays, 1e-5), "f32")
    # A weight along a dim that is not the last, and of each column.
    (result,), names = run(
        gpu,
        LAYER_NORM,
        0,
        [
            x.to_device(device),
            inputs[2].narrow(1, 0, 1).narrow(2, 0, 1).broadcast_as(x.shape),
            inputs[0].narrow(0, 0, 1).narrow(2, 0, 1).broadcast_as(x.shape),
        ],
    )
    right = LAYER_NORM.oracle(
        np.moveaxis(x.numpy(), 0, -1), bias.numpy()[:, 0], x.numpy()[0, :, 1][:, None, None], 1e-5
    )
    compare(result, np.moveaxis(right, -1, 0), "f32")
    assert names[-1].endswith("scalar_columns")


@pytest.mark.parametrize(
    ("dtype", "width"),
    [*(("f32", width) for width in (3, 64, 67, 1000, 1001, 5000, 5001)), ("bf16", 9), ("bf16", 1001), ("bf16", 9001)],
)
def test_the_bits_of_a_row_depend_on_its_width_alone(gpu: Any, dtype: str, width: int) -> None:
    numbers = np.random.default_rng(0).normal(size=(5, width)).astype("f4")
    alone = [Tensor(row).to_dtype(dtype).to_device(Device(gpu)) for row in numbers]
    expected = np.stack([run(gpu, SOFTMIN, 0, [own])[0][0].to_dtype("f32").numpy() for own in alone])
    # Rows that begin anywhere, the last of which ends where memory does; what lies between them is not read.
    for before, behind in ((0, 0), (1, 0), (3, 0), (0, 3), (6, 2)):
        spread = np.pad(numbers, ((0, 0), (before, behind)), constant_values=np.nan)
        x = Tensor(spread).to_dtype(dtype).to_device(Device(gpu)).narrow(1, before, width)
        (together,), _ = run(gpu, SOFTMIN, 1, [x])
        assert np.array_equal(together.to_dtype("f32").numpy(), expected)


@pytest.mark.parametrize("shape", [(3, 64), (3, 67), (2, 20, 16)])
def test_rows_of_what_is_no_number(gpu: Any, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype("f4")
    x[(0, 5)], x[(1, ...)] = np.nan, -np.inf
    (result,), _ = run(gpu, LESS_HIGHEST, 1, [Tensor(x).to_device(Device(gpu))])
    with np.errstate(invalid="ignore"):
        compare(result, x.astype("f8") - x.max(1, keepdims=True), "f32")


# Many rows, of a block each, and few, which are split.
@pytest.mark.parametrize(("width", "rows"), [(9000, 64), (1 << 16, 6)])
def test_long_rows_find_a_maximum_and_the_sum_of_exponentials_in_one_pass(gpu: Any, width: int, rows: int) -> None:
    facts = ROW_OPS[MethodOp.SOFTMIN.value]
    assert (facts.results, facts.passes, facts.rescaled, facts.stages) == (1, ((1, 0), (1, 0)), 0b10, 1)
    x = np.random.default_rng(0).normal(size=(rows, width)).astype("f4") * 20
    # Maxima that are late, of which there are many, that are infinite, or NaN.
    x[0, -1], x[1], x[2], x[3], x[4, 100], x[5, 0] = -1000, 3, np.inf, -np.inf, -np.inf, np.nan
    observer = Observer()
    with gpu.plans.observed_by(observer):
        result = Tensor(x).to_device(Device(gpu)).softmin(1).numpy()
    launched = [name for program in observer.programs for name in kernels(program) if "softmin" in name]
    assert launched == ["softmin_f32_vector_long"] * (2 if rows < 64 else 1)
    with np.errstate(invalid="ignore"):
        z = -x.astype("f8") - (-x.astype("f8")).max(1, keepdims=True)
        expected = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("shape", [(20000, 1), (20001, 1), (600, 64)])
def test_long_rows_that_begin_with_infinities(gpu: Any, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype("f4")
    # Some threads find no finite maximum, others find it late.
    x[: shape[0] * 2 // 3] = np.inf
    (result,), _ = run(gpu, SOFTMIN, 0, [Tensor(x).to_device(Device(gpu))])
    compare(result, SOFTMIN.oracle(x.astype("f8").T, *SOFTMIN.parameters).T, "f32")


# The widths of rows in registers and of longer ones, some of which are split, with complete vectors and without.
EPSILON: Final = 1e-3
NORM_SHAPES: Final = [(70, 64), (33, 333), (3, 5, 4100), (12, 16_400), (5, 16_403), (2, 70_000), (0, 4), (3, 0)]


@pytest.mark.parametrize("dtype", ["f32", "bf16", *(pytest.param(it, marks=pytest.mark.full) for it in ("f64", "f16"))])
def test_operands_of_norms_are_optional_and_shared_by_rows(gpu: Any, dtype: str, pytestconfig: pytest.Config) -> None:
    generator = np.random.default_rng(0)
    for number, shape in enumerate(NORM_SHAPES if pytestconfig.getoption("full") else NORM_SHAPES[:5]):
        x, g, weight, bias, residual = (
            Tensor(generator.normal(size=size)).to_dtype(dtype)
            for size in (shape, shape, shape[-1:], shape[-1:], shape)
        )
        vectors = [each if number + index & 1 else None for index, each in enumerate((weight, bias))]
        added, asked = residual if number & 2 else None, [True, number % 3 > 0]
        for op, operands, flags in (
            (MethodOp.RMS_NORM, (x, vectors[0], added), []),
            (MethodOp.LAYER_NORM, (x, *vectors, added), []),
            (MethodOp.RMS_NORM_GRADIENT, (g, x, vectors[0], added), asked[:1]),
            (MethodOp.LAYER_NORM_GRADIENT, (g, x, vectors[0], added), asked),
        ):
            inputs = [
                part
                for each in operands[1:]
                for part in ((None, None) if each is None else (each.storage, each.layout))
            ]
            reference = getattr(operands[0].storage, op.value)(operands[0].layout, *inputs, *flags, EPSILON)

            def along(build: Any, *stored: Operand, op: Any = op, operands: Any = operands, flags: Any = flags) -> Any:
                elements = iter(stored)
                return row.row(
                    build, op, *[None if each is None else next(elements) for each in operands], *flags, EPSILON
                )

            moved = [each.to_device(Device(gpu)) for each in operands if each is not None]
            output = gpu.run(along, *[Operand(each.storage.inner, each.layout) for each in moved])
            for actual, expected in zip(output, reference, strict=True):
                result = Tensor.from_storage(Storage(actual), expected.length)
                numbers = Tensor.from_storage(expected, expected.length).to_dtype("f64").numpy()
                assert_allclose(
                    result.to_dtype("f64").numpy(), numbers, rtol=TOLERANCES[dtype], atol=40 * TOLERANCES[dtype]
                )


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 5)])
def test_empty_rows(gpu: Any, shape: tuple[int, ...]) -> None:
    for dim in range(len(shape)):
        results, names = run(gpu, NORM_GRADIENT, dim, [Tensor(np.zeros(shape, "f4")).to_device(Device(gpu))] * 4)
        assert [result.shape for result in results] == [shape] * 3
        assert names == []


def along(build: Any, formula: row_formula.RowFormula, dim: int, *operands: Operand) -> tuple[Buffer, ...]:
    return row.along(build, formula, dim, operands)


ROW_FACTS: Final = RowFacts(results=1, passes=((2, 0), (1, 0)), rescaled=0, absent=(None,))
FORMULA: Final = row_formula.RowFormula("row", "any", ROW_FACTS)


def test_rows_beyond_32_bits_take_several_launches() -> None:
    rows = 5 << 29
    x = Stored(DType.BF16, 8 * rows)
    program = built(along, FORMULA, 1, at(x, (rows, 8)))
    assert kernels(program) == ["any_bf16_vector2"] * 2
    first, second = (arguments.ALONG_ROWS.unpack(launch.packed) for launch in Run(program).launches)
    assert first[10] + second[10] == rows
    # Results and sources begin behind those of the first launch, of 8 elements of 2 bytes each.
    assert [second[field] - first[field] for field in (0, 3)] == [first[10] * 16] * 2
    with pytest.raises(InvalidArgument):
        built(along, FORMULA, 0, at(x, (8 * rows,)))


def test_few_long_rows_are_split() -> None:
    x = Stored(DType.F32, 1 << 22)
    program = built(along, FORMULA, 1, at(x, (2, 1 << 21)), facts=LARGE)
    # A launch for each pass, and one for the results.
    assert [kernel for kernel, _ in grids(program)] == ["any_f32_vector_long"] * 3
    fields = [arguments.ALONG_ROWS.unpack(launch.packed) for launch in Run(program).launches]
    rows, length, _, _, team, splits, chunk, _ = fields[0][10:18]
    assert [each[17] for each in fields] == [0, 1, 2]
    assert (rows, length, team) == (2, 1 << 21, 0)
    assert splits * chunk >= length // 4 > (splits - 1) * chunk
    assert [blocks for _, blocks in grids(program)] == [rows * splits] * 3
    assert [step.memory.nbytes for step in program.steps if isinstance(step, Allocate)][-1] == rows * splits * 3 * 4
    assert kernels(built(along, FORMULA, 1, at(x, (1 << 10, 1 << 12)), facts=LARGE)) == ["any_f32_vector4"]
    assert len(kernels(built(along, FORMULA, 1, at(x, (1 << 8, 1 << 14)), facts=LARGE))) == 3
    assert len(kernels(built(along, FORMULA, 1, at(x, (1 << 9, 1 << 13)), facts=FACTS))) == 1
