"""Fused functions of maps and row ops: the bits of their ops one by one, and which of them share a kernel."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
import tallow as tl
from tallow import DType, Tensor
from tallow.backends import CpuDevice
from tallow.kernels.constants import FUSED_ROW_SOURCES, ROW_REDUCTIONS, ROWS
from tallow.runtime.backends.gpu_backend.ops import fused
from tallow.runtime.graph.traced import Trace
from tallow.runtime.program.fused_function import FusedFunction
from tallow.runtime.program.fused_kernels import kernels_of
from tallow.runtime.program.values import Operand, Parameter

from .programs import Stored, built, kernels

Compute = Callable[..., Any]
# The row ops of one operand and a dim, which are tensor methods.
ROW_METHODS: Final = [
    name
    for name, facts in ROWS.items()
    if facts.absent == (None,)
    and facts.outputs == 1
    and not (facts.last_dim or facts.has_numbers)
    and hasattr(Tensor, name)
]
MAPS: Final[list[Compute]] = [
    lambda x: x.exp().clamp(0, 10),
    lambda x: x * 0.5,
    lambda x: x.silu(),
    lambda x: -x,
    lambda x: x.sqr().clamp(0, 9),
    lambda x: x.gelu(),
]
PAIRS: Final[list[Compute]] = [
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: x.maximum(y),
    lambda x, y: (x > y).where(x, y),
    lambda x, y: (x < y).to_dtype(x.dtype) * y,
]
ROUNDING: Final = {"f64": 1e-14, "f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}
SHAPES: Final = [(4, 16), (7, 33), (3, 1), (2, 5000), (5, 1024), (3, 40, 8), (2, 9, 6), (1, 70001), (33, 37), (0, 5)]


class Case(NamedTuple):
    """A function of four tensors and a number, and arguments for it."""

    function: Compute
    arguments: list[Any]


def case(device: tl.Device, seed: int) -> Case:
    """A function of maps and row ops in any order, of operands of any layouts."""
    chosen, normal = random.Random(seed), np.random.default_rng(seed)
    dtype, shape = chosen.choice(["f32", "bf16", "f16", "f64"]), chosen.choice(SHAPES)
    dims = chosen.choice([(-1,), (-1,), (0, -1)])
    others = ["f64", "f32"] if dtype == "f64" else ["f32", "bf16", "f16"]
    steps = [
        (chosen.choice(["map", "map", "pair", "pair", "row", "row", "cast"]), chosen.random(), chosen.random())
        for _ in range(chosen.randrange(2, 9))
    ]
    count, numbers = chosen.randrange(1, 4), [chosen.random() for _ in steps]

    def pick(values: Sequence[Any], number: float) -> Any:
        return values[int(number * len(values))]

    def function(*given: Any) -> tuple[Any, ...]:
        *values, scale = given
        for (kind, first, second), number in zip(steps, numbers, strict=True):
            # Most often what was computed last.
            x, y = values[-1 - int(first**2 * len(values))], pick(values, second)
            if kind == "map":
                values.append(pick(MAPS, number)(x))
            elif kind == "pair":
                values.append(pick(PAIRS, number)(x, y.to_dtype(x.dtype)))
            elif kind == "row":
                values.append(getattr(x, pick(ROW_METHODS, number))(pick(dims, second)) * scale)
            else:
                values.append(x.to_dtype(pick(others, number)))
        return tuple(values[-count:])

    def tensor(*sizes: int) -> Tensor:
        return Tensor(normal.standard_normal(sizes).astype("f4"), device=device).to_dtype(dtype)

    *outer, length = shape
    x = {
        "dense": lambda: tensor(*shape),
        "sliced": lambda: tensor(*outer, length + 3).narrow(-1, 1, length),
        "transposed": lambda: tensor(*shape[::-1]).permute(*reversed(range(len(shape)))),
    }[chosen.choice(["dense", "sliced", "transposed"])]()
    row, column = tensor(*[1] * len(outer), length).broadcast_as(shape), tensor(*outer, 1).broadcast_as(shape)
    return Case(function, [x, row, column, tensor(*shape), 0.75])


def check(device: tl.Device, seed: int) -> None:
    function, arguments = case(device, seed)
    compiled, expected = tl.fuse(function), function(*arguments)
    for _ in range(2):
        for result, right in zip(compiled(*arguments), expected, strict=True):
            assert result.dtype is right.dtype
            np.testing.assert_array_equal(result.to_dtype("f64").numpy(), right.to_dtype("f64").numpy())
    for result, right in zip(gradients(compiled, arguments, seed), gradients(function, arguments, seed), strict=True):
        assert result.dtype is right.dtype
        # What is computed twice is one step, whose gradients are added up before they go back through it.
        actual, reference = result.to_dtype("f64").numpy(), right.to_dtype("f64").numpy()
        tolerance = ROUNDING[result.dtype.value] * np.abs(reference).max(initial=0)
        np.testing.assert_allclose(actual, reference, rtol=0, atol=tolerance)


def gradients(function: Compute, arguments: Sequence[Any], seed: int) -> list[Tensor]:
    """The gradients of the tensors among the arguments, of a weighted sum of all results."""
    normal = np.random.default_rng(seed)
    variables = [tl.Var(each) if isinstance(each, Tensor) else each for each in arguments]
    results = function(*variables)
    weights = [Tensor(normal.standard_normal(result.shape), device=result.device) for result in results]
    losses = [(result.to_dtype("f64") * each).sum() for result, each in zip(results, weights, strict=True)]
    actual = sum(losses[1:], losses[0]).backward()
    return [actual[each] for each in variables if isinstance(each, Tensor) and each in actual]


@pytest.mark.parametrize("seed", range(40))
def test_fused_rows_give_the_bits_of_their_ops_on_the_cpu(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(CpuDevice, "has_fused_kernels", True)
    check(tl.Device.cpu(), seed)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(3, 120))])
def test_fused_rows_give_the_bits_of_their_ops(gpu: Any, seed: int) -> None:
    check(tl.Device(gpu), seed)


def traced(function: Compute, *shapes: Sequence[int], dtype: str = "f32") -> FusedFunction:
    """What a function of tensors of some shapes computes, broadcast to the first shape, and of vectors."""
    trace = Trace("composed", tl.Device.cpu(), ())
    tensors = [
        Tensor(np.zeros(shape), dtype=dtype).broadcast_as(shapes[0] if len(shape) > 1 else shape) for shape in shapes
    ]
    result = function(*trace.proxies(tensors))
    return trace.function(result if isinstance(result, tuple) else [result])


def launched(function: FusedFunction) -> list[str]:
    """The kernels of a function, by how their names end."""
    tensors = [Operand(Stored(DType.F32, 1 << 20), layout) for layout in function.tensors]
    numbers = [Parameter(len(tensors) + index) for index in range(len(function.computed_numbers))]
    return [name.rpartition("_")[2] for name in kernels(built(fused.fused, function, *tensors, *numbers))]


NORMS: Final[list[Compute]] = [
    lambda x, y, weight: x.rms_norm(weight).silu() * y,
    lambda x, y, weight: (x + y).layer_norm().to_dtype("bf16"),
    lambda x, y, weight: x.layer_norm(weight, weight * 2).gelu() + y,
    lambda x, y, weight: x.rms_norm(weight * 2, residual=y),
    lambda x, y, weight: x.layer_norm(None, weight, residual=y)[0].softmax(-1),
]


def compared(device: tl.Device, function: Compute, dtype: str, shape: tuple[int, ...]) -> list[tuple[Any, Any]]:
    """What a function of two tensors and a weight gives fused and op by op, and its gradients, as f64."""
    normal = np.random.default_rng(0)
    shapes = shape, shape, shape[-1:]
    x, y, weight = (Tensor(normal.standard_normal(each), device=device).to_dtype(dtype) for each in shapes)
    pairs = []
    for of in (tl.fuse(function), function):

        def several(*arguments: Tensor, of: Compute = of) -> Sequence[Tensor]:
            results: Any = of(*arguments)
            return results if isinstance(results, tuple) else (results,)

        outputs = [*several(x, y, weight), *gradients(several, [x, y, weight], 0)]
        pairs.append([output.to_dtype("f64").numpy() for output in outputs])
    return [*zip(*pairs, strict=True)]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("function", NORMS)
def test_fused_norms_give_the_bits_of_their_ops_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, function: Compute, dtype: str
) -> None:
    for shape in ((3, 40), (2, 3, 33), (7,), (0, 5), (2, 0)):
        for actual, expected in compared(tl.Device.cpu(), function, dtype, shape):
            np.testing.assert_array_equal(actual, expected)
    monkeypatch.setattr(CpuDevice, "has_fused_kernels", True)
    for actual, expected in compared(tl.Device.cpu(), function, dtype, (3, 40)):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=ROUNDING[dtype] * np.abs(expected).max(initial=0))


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        pytest.param(number, dtype, marks=[] if (number, dtype) == (3, "bf16") else pytest.mark.full)
        for number in range(len(NORMS))
        for dtype in ("f32", "bf16", "f64")
    ],
)
def test_fused_norms(gpu: Any, number: int, dtype: str) -> None:
    """Results have the bits of op by op; gradients of several uses are added in another order."""
    for shape in ((3, 64), (2, 33), (2, 5000)) if dtype == "f32" else ((3, 64),):
        *results, of_x, of_y, of_weight = compared(tl.Device(gpu), NORMS[number], dtype, shape)
        for actual, expected in results:
            np.testing.assert_array_equal(actual, expected)
        for actual, expected in (of_x, of_y, of_weight):
            np.testing.assert_allclose(actual, expected, rtol=0, atol=ROUNDING[dtype] * np.abs(expected).max(initial=0))


REDUCTIONS: Final = [name for name in ROW_REDUCTIONS if hasattr(Tensor, name)]


def of_numbers(name: str, dim: int, keepdim: bool) -> Compute:
    """Elements with a reduction of rows, a map of their numbers, and numbers with an argument that has one a row."""

    def function(x: Tensor, y: Tensor, row: Tensor) -> tuple[Tensor, ...]:
        number, row = getattr(x * y, name)(dim, keepdim=keepdim), row.narrow(dim, 0, 1)
        other = (number * 0.5 + row if keepdim else number * 0.5 + row.squeeze(dim).exp()).silu()
        return (
            x - (number if keepdim else number.unsqueeze(dim)),
            number,
            (other if keepdim else other.unsqueeze(dim)) * y,
            other,
        )

    return function


def check_reductions(device: tl.Device, function: Compute, dim: int, shape: tuple[int, ...], dtype: str) -> None:
    """Compare results and gradients with those op by op, whose sums are in another order on GPUs."""
    normal = np.random.default_rng(0)
    numbers = [size if axis != dim % len(shape) else 1 for axis, size in enumerate(shape)]
    arguments = [
        Tensor(normal.standard_normal(each), device=device).to_dtype(dtype) for each in (shape, shape, numbers)
    ]
    pairs = [[*of(*arguments), *gradients(of, arguments, 0)] for of in (tl.fuse(function), function)]
    for result, right in zip(*pairs, strict=True):
        assert (result.dtype, result.shape) == (right.dtype, right.shape)
        actual, expected = result.to_dtype("f64").numpy(), right.to_dtype("f64").numpy()
        tolerance = 2 * ROUNDING[dtype] * np.abs(expected).max(initial=1)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_fused_reductions_are_those_of_the_ops_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, name: str, keepdim: bool
) -> None:
    monkeypatch.setattr(CpuDevice, "has_fused_kernels", True)
    for shape, dim in (((3, 40), -1), ((2, 3, 33), 1), ((7,), 0), ((3, 1), 1), ((0, 5), 1)):
        for dtype in ROUNDING:
            check_reductions(tl.Device.cpu(), of_numbers(name, dim, keepdim), dim, shape, dtype)


@pytest.mark.parametrize(
    ("name", "dim", "shape", "dtype"),
    [
        pytest.param(name, dim, shape, dtype, marks=[] if (name, dtype) == ("std", "bf16") else pytest.mark.full)
        for name in REDUCTIONS
        for dtype in ROUNDING
        for shape, dim in (((3, 64), -1), ((2, 33), -1), ((2, 9, 24), 1), ((1, 5000), 1), ((1, 70001), 1))
        if dtype != "bf16" or shape == (3, 64)
    ],
)
def test_fused_reductions(gpu: Any, name: str, dim: int, shape: tuple[int, ...], dtype: str) -> None:
    check_reductions(tl.Device(gpu), of_numbers(name, dim, len(shape) < 3), dim, shape, dtype)


@pytest.mark.parametrize("dtype", ["bf16", pytest.param("f16", marks=pytest.mark.full)])
def test_quotients_of_elements_and_a_number_of_their_row_are_rounded_once(gpu: Any, dtype: str) -> None:
    """Of any numbers: they are computed by a reciprocal where that rounds to the same."""
    bits = np.random.default_rng(0).integers(0, 1 << 16, (1 << 12, 64)).astype(np.uint16)
    x = Tensor((bits.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else bits.view(np.float16))
    x = x.to_dtype(dtype).to_device(tl.Device(gpu))

    def function(x: Tensor) -> Tensor:
        return x / x.max(-1, keepdim=True).minimum(x.abs().min(-1, keepdim=True) * 4)

    np.testing.assert_array_equal(*[each(x).to_dtype("f64").numpy() for each in (tl.fuse(function), function)])


EXTREME_ROWS: Final = [
    [3e30, 4e30, 0.0, -1e29],
    [3e-30, 4e-30, 0.0, -1e-31],
    [np.inf, 1.0, 2.0, 3.0],
    [-np.inf, -np.inf, -np.inf, -np.inf],
    [np.nan, 1.0, -np.inf, 2.0],
    [0.1, 0.1, 0.1, 0.1],
    [0.0, -0.0, 0.0, -0.0],
    [1000.0, 1000.0, -1000.0, 999.0],
]


@pytest.mark.full
@pytest.mark.parametrize("names", [REDUCTIONS[:4], REDUCTIONS[4:]])
def test_fused_reductions_of_extreme_rows(gpu: Any, names: Sequence[str]) -> None:
    """No square overflows or underflows, and equal elements have no spread."""
    x = Tensor(np.array(EXTREME_ROWS, "f4"), device=tl.Device(gpu))

    def function(x: Tensor) -> tuple[Tensor, ...]:
        return tuple([getattr(x, name)(-1) for name in names])

    for name, actual, expected in zip(names, tl.fuse(function)(x), function(x), strict=True):
        np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_of_no_elements_is_that_of_the_op(name: str) -> None:
    """An error, where it is one."""
    x, function = Tensor(np.zeros((3, 0))), lambda x: getattr(x, name)(1)
    try:
        expected = function(x)
    except tl.TallowError as error:
        with pytest.raises(type(error)):
            tl.fuse(function)(x)
    else:
        np.testing.assert_array_equal(tl.fuse(function)(x).numpy(), expected.numpy())


ROWS_OF_64: Final = (128, 64)
ONE_KERNEL: Final[list[Compute]] = [
    lambda x, y: (x * 2 + y).softmin(-1),
    lambda x, y: (x + y).softmin(-1).silu() * y,
    lambda x, y: (x.softmin(-1) * y).softmin(1),
    lambda x, y: x.softmin(-1) - y.exp().softmin(-1),
    lambda x, y: (x + y, (x + y).softmin(-1).to_dtype("bf16")),
    lambda x, y: (x > y).where(x, y).to_dtype("f16").to_dtype("f32").softmin(-1) > 0.5,
]


@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_and_what_is_computed_of_them_are_one_kernel(name: str, keepdim: bool) -> None:
    for dtype in ("f32", "bf16"):
        function = traced(of_numbers(name, -1, keepdim), ROWS_OF_64, ROWS_OF_64, (128, 1), dtype=dtype)
        assert launched(function) == ["vector2"]


@pytest.mark.parametrize("function", ONE_KERNEL)
def test_maps_and_rows_of_one_dim_and_shape_are_one_kernel(function: Compute) -> None:
    for other in (ROWS_OF_64, (1, 64), (128, 1)):
        assert launched(traced(function, ROWS_OF_64, other)) == ["vector2"]


@pytest.mark.parametrize("function", NORMS)
def test_norms_and_the_maps_around_them_are_one_kernel(function: Compute) -> None:
    assert launched(traced(function, ROWS_OF_64, ROWS_OF_64, (64,))) == ["vector2"]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        # Rows along another dim read what was written.
        (lambda x: (x * 2).softmin(1).exp().softmin(0) + x, ["vector2", "columns8"]),
        (lambda x: x.softmin(1) + x.softmin(0), ["vector2", "columns8"]),
        # The order of a sum follows from the dtype.
        (lambda x: x.to_dtype("bf16").softmin(1).to_dtype("f32").softmin(1), 2),
        # What rows of f32 have no room for.
        (lambda x: x.to_dtype("i64").to_dtype("f32").softmin(1).to_dtype("f64"), 3),
        (lambda x: (x.softmin(1), x.narrow(0, 1, 5)), ["vector2", "contiguous"]),
    ],
)
def test_a_function_is_divided_where_rows_differ(function: Compute, expected: list[str] | int) -> None:
    actual = launched(traced(function, ROWS_OF_64))
    assert (len(actual) if isinstance(expected, int) else actual) == expected


def test_numbers_that_many_elements_share_are_computed_once() -> None:
    def shapes(side: int) -> list[tuple[int, ...]]:
        trace = Trace("f", tl.Device.cpu(), [])
        x, *vectors = trace.proxies([tl.zeros((1, 64, side, side)), *[tl.ones(64) for _ in range(4)]])
        return [kernel.shape for kernel in kernels_of(trace.function([x.batch_norm(*vectors).relu()]))]

    assert shapes(64) == [(1, 64, 1, 1), (1, 64, 64, 64)]
    assert shapes(32) == [(1, 64, 32, 32)]


def test_many_operands_are_several_kernels() -> None:
    def total(*tensors: Tensor) -> Tensor:
        return sum(tensors[1:], tensors[0]).softmin(-1)

    for count, kernel_count in ((FUSED_ROW_SOURCES, 1), (FUSED_ROW_SOURCES + 1, 2)):
        assert len(launched(traced(total, *[ROWS_OF_64] * count))) == kernel_count


def test_a_program_of_rows_is_readable() -> None:
    function = traced(lambda x: (x * 2).softmin(1), ROWS_OF_64)
    text = str(built(fused.fused, function, Operand(Stored(DType.F32, 128 * 64), function.tensors[0])))
    assert text.splitlines()[0] == "fused(x0: f32[8192]):"
    assert "_f32_vector2 on " in text
