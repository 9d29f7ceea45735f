"""Gradients where slopes are infinite, factors 0, elements equal or NaN, or where there are none."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tallow as tl
from tallow import Device, Tensor, Var, array_api
from tallow.gradients.functors import DERIVATIVES
from tallow.op import BinaryOp, MethodOp, ReduceOp, UnaryOp

REDUCTIONS = [op for op in DERIVATIVES if isinstance(op, ReduceOp) or op in (MethodOp.VAR, MethodOp.STD)]
DIFFERENTIABLE = [op for op in REDUCTIONS if any((DERIVATIVES[op] or {}).values())]
INF, NAN = math.inf, math.nan


def var(numbers: Any, device: Device, dtype: str = "f64") -> Var:
    return Var(Tensor(np.array(numbers, np.float64), dtype=dtype, device=device))


def wide(device: Device) -> str:
    return "f32" if device.is_metal() else "f64"


def reduced(op: ReduceOp | MethodOp, x: Tensor) -> Tensor:
    parameters = (1.0,) if isinstance(op, MethodOp) else ()
    return x._reduce(op, 0, False, None, None, *parameters)


def gradient(result: Tensor, x: Var, **options: bool) -> Tensor:
    actual = result.backward(**options).get(x)
    return actual if actual is not None else x.zeros_like()


def hessian(function: Callable[[Tensor], Tensor], x: Var) -> np.ndarray:  # type: ignore[type-arg]
    first = gradient(function(x), x, create_graph=True).reshape(-1)
    rows = [
        gradient(first.narrow(0, index, 1).sum(), x, keep=True).numpy().reshape(-1)
        if first.is_recorded
        else np.zeros(first.elem_count)
        for index in range(first.elem_count)
    ]
    return np.array(rows)


# The first gradient, and the second one of the sum of the first.
EDGES: list[tuple[str, Callable[[Tensor], Tensor], list[Any], list[Any] | None, list[list[float]] | None]] = [
    ("prod", lambda x: x.prod(), [0, 2, 3], [6, 0, 0], [[0, 3, 2], [3, 0, 0], [2, 0, 0]]),
    ("prod", lambda x: x.prod(), [0, 0, 3], [0, 0, 0], [[0, 3, 0], [3, 0, 0], [0, 0, 0]]),
    ("cumprod", lambda x: x.cumprod(0).sum(), [0, 2, 3], [9, 0, 0], [[0, 4, 2], [4, 0, 0], [2, 0, 0]]),
    ("cumprod", lambda x: x.cumprod(0).sum(), [2, 0, 0], [1, 2, 0], [[0, 1, 0], [1, 0, 2], [0, 2, 0]]),
    ("logsumexp", lambda x: x.logsumexp(0), [0, 0], [0.5, 0.5], [[0.25, -0.25], [-0.25, 0.25]]),
    ("logsumexp", lambda x: x.logsumexp(0), [-INF, -INF], [0.5, 0.5], None),
    ("logsumexp", lambda x: x.logsumexp(0), [INF, 1], [1, 0], None),
    ("logaddexp", lambda x: x[0].logaddexp(x[1]), [3, 3], [0.5, 0.5], [[0.25, -0.25], [-0.25, 0.25]]),
    ("logaddexp", lambda x: x[0].logaddexp(x[1]), [INF, INF], [0.5, 0.5], None),
    ("logaddexp", lambda x: x[0].logaddexp(x[1]), [-INF, -INF], [0.5, 0.5], None),
    ("logaddexp", lambda x: x[0].logaddexp(x[1]), [INF, -INF], [1, 0], None),
    ("elu", lambda x: x.elu(1.0).sum(), [1000, -INF, 0], [1, 0, 1], [[0, 0, 0], [0, 0, 0], [0, 0, 1]]),
    ("max", lambda x: x.max(), [1, NAN, 3, NAN], [0, 0.5, 0, 0.5], np.zeros((4, 4)).tolist()),
    ("min", lambda x: x.min(), [NAN, INF, 3], [1, 0, 0], np.zeros((3, 3)).tolist()),
    ("maximum", lambda x: x[0].maximum(x[1]), [NAN, 2], [1, 0], np.zeros((2, 2)).tolist()),
    ("maximum", lambda x: x[0].maximum(x[1]), [2, NAN], [0, 1], np.zeros((2, 2)).tolist()),
    ("minimum", lambda x: x[0].minimum(x[1]), [NAN, NAN], [0.5, 0.5], np.zeros((2, 2)).tolist()),
    ("minimum", lambda x: x[0].minimum(x[1]), [INF, INF], [0.5, 0.5], np.zeros((2, 2)).tolist()),
    ("relu", lambda x: x.relu().sum(), [NAN, 0, -INF, INF], [1, 0, 0, 1], np.zeros((4, 4)).tolist()),
    ("std", lambda x: x.std(), [0.5, 0.5, 0.5], [0, 0, 0], np.zeros((3, 3)).tolist()),
    ("var", lambda x: x.var(), [0.5, 0.5, 0.5], [0, 0, 0], (np.eye(3) - 1 / 3).tolist()),
    ("hypot", lambda x: x[0].hypot(x[1]), [0, 0], [0, 0], np.zeros((2, 2)).tolist()),
    ("atan2", lambda x: x[0].atan2(x[1]), [0, 0], [0, 0], np.zeros((2, 2)).tolist()),
    ("pow", lambda x: x[0].pow(x[1]), [0, 2], [0, 0], [[2, 0], [0, 0]]),
    ("gelu_erf", lambda x: x.gelu_erf().sum(), [0], [0.5], [[math.sqrt(2 / math.pi)]]),
]


@pytest.mark.parametrize(("name", "function", "x", "first", "second"), EDGES, ids=[edge[0] for edge in EDGES])
def test_gradients_at_edges(
    name: str,
    function: Callable[[Tensor], Tensor],
    x: list[float],
    first: list[float],
    second: list[list[float]] | None,
    device: Device,
) -> None:
    variable = var(x, device, wide(device))
    np.testing.assert_allclose(gradient(function(variable), variable).numpy(), first, rtol=1e-6)
    if second is not None:
        np.testing.assert_allclose(hessian(function, variable), second, rtol=1e-5, atol=1e-7)


def test_clip_has_the_gradient_of_clamp(device: Device) -> None:
    numbers = [0.0, 1.0, 0.5, -2.0, 3.0, NAN, INF]
    for bounds in ((0, 1), (0.0, None), (None, 1.0), (1, 0)):
        x = var(numbers, device, wide(device))
        results = array_api.clip(x, *bounds), x.clamp(*bounds)
        np.testing.assert_array_equal(*(result.numpy() for result in results))
        np.testing.assert_array_equal(*(gradient(result.sum(), x).numpy() for result in results))


# Functions of one element with cases, and of which a case has an infinite slope where it is not chosen.
CASES: dict[str, tuple[Callable[[Tensor], Tensor], list[float]]] = {
    "elu": (lambda x: x.elu(1.5), [1000.0, 0.5]),
    "leaky_relu": (lambda x: x.leaky_relu(0.1), [1e30, -2.0]),
    "gelu_erf": (lambda x: x.gelu_erf(), [0.0, 1e30]),
    "clamp": (lambda x: x.clamp(-1.0, 2.0), [INF, -INF]),
    "powf": (lambda x: x.powf(3.0), [0.0, 1.0]),
    "powf of 1": (lambda x: x.powf(1.0), [0.0, INF]),
    "silu": (lambda x: x.silu(), [1e30, -1e30]),
    "nan_to_num": (lambda x: x.nan_to_num(), [NAN, INF]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_case_that_is_not_chosen_reaches_no_gradient_of_any_order(name: str, device: Device) -> None:
    function, numbers = CASES[name]
    x = var(numbers, device, wide(device))
    result = function(x).sum()
    for order in range(1, 5):
        result = gradient(result, x, create_graph=True).sum()
        assert math.isfinite(result.item()), order
        if not result.is_recorded:
            break


MAPS = [op for op in DERIVATIVES if isinstance(op, UnaryOp | BinaryOp) and any((DERIVATIVES[op] or {}).values())]
FAR = [0.0, 0.5, 1.0, -1.0, 1e4, -1e4, 1e100, -1e100, 1e-30]
# The square overflows, and of exponents of `pow` the product with others.
FARTHER = [*FAR, 1e200, -1e200]


@pytest.mark.parametrize("op", MAPS, ids=lambda op: op.value)
def test_higher_gradients_of_finite_ones_are_no_nan(op: UnaryOp | BinaryOp, device: Device) -> None:
    if device.is_metal():
        pytest.skip("metal has no f64")
    pairs = [np.ravel(axis) for axis in np.meshgrid(*[FARTHER, FAR][: 1 + isinstance(op, BinaryOp)])]
    for name in (name for name, derivative in (DERIVATIVES[op] or {}).items() if derivative is not None):
        operands = [var(numbers, device) for numbers in pairs]
        x = operands["xy".index(name)]
        result = operands[0]._binary(op, operands[1]) if isinstance(op, BinaryOp) else x._unary(op)
        slopes = gradient(result.sum(), x, create_graph=True)
        are_finite, actual = np.isfinite(slopes.numpy()), slopes.sum()
        for order in range(2, 5):
            if not actual.is_recorded:
                break
            slopes = gradient(actual, x, create_graph=True)
            bad = np.isnan(slopes.numpy()) & are_finite
            assert not bad.any(), (name, order, [numbers[bad] for numbers in pairs])
            are_finite &= np.isfinite(slopes.numpy())
            actual = slopes.sum()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.value)
def test_gradients_of_many_short_floats_are_those_of_f64(op: ReduceOp | MethodOp, dtype: str, device: Device) -> None:
    # A count of these is no f16, nor is the product of the deviation with it.
    many = 70_000
    numbers = np.random.default_rng(0).normal(size=many) * 60
    if op in (ReduceOp.PROD, ReduceOp.PROD_SLOPE):
        # The product is no f16 either, and that of two is.
        numbers = np.concatenate([[300.0, 400.0, 0.01], np.ones(many - 3)])
        numbers[-1] = 0 if op is ReduceOp.PROD_SLOPE else 1
    if op in (ReduceOp.MAX, ReduceOp.MIN, ReduceOp.LOGSUMEXP, ReduceOp.SUM_POWERS):
        numbers = np.full(many, 2.5)
    x = Var(Tensor(numbers, device=device).to_dtype(dtype))
    exact = Var(x.detach().to_dtype(wide(device)))
    g = 0.5 if op in (ReduceOp.PROD, ReduceOp.PROD_SLOPE) else 64.0
    actual = gradient(reduced(op, x) * g, x).to_dtype("f32").numpy()
    expected = gradient(reduced(op, exact) * g, exact).numpy().astype(np.float64)
    info = ml_dtypes.finfo(x.dtype.numpy)
    np.testing.assert_allclose(actual, expected, rtol=float(info.eps), atol=float(info.smallest_subnormal))
    assert op is ReduceOp.SUM_POWERS or np.abs(expected).max() > 0


EMPTY = (0, 2)


@pytest.mark.parametrize("op", [op for op in dir(Tensor) if op.startswith("conv") and op.endswith("d")])
def test_gradients_of_convolutions_of_no_elements_are_zeros(op: str, device: Device) -> None:
    dims, is_transposed = int(op[-2]), "transpose" in op
    for batch, inner, outer, length, padding, stride in itertools.product(EMPTY, EMPTY, EMPTY, (0, 3), (0, 1), EMPTY):
        x = Var(Tensor.ones((batch, inner, *[length] * dims), device=device))
        channels = (inner, outer) if is_transposed else (outer, inner)
        kernel = Var(Tensor.ones((*channels, *[2] * dims), device=device))
        try:
            result = getattr(x, op)(kernel, padding=padding, stride=stride or 1)
        except tl.InvalidArgument:
            # No window fits, or nothing is left of the padding.
            assert length == 0
            continue
        grads = result.sum().backward(create_graph=True)
        for variable in (x, kernel):
            assert grads[variable].shape == variable.shape
            assert 0 not in (batch, inner, outer, length) or not np.any(grads[variable].numpy())


@pytest.mark.parametrize("lowest", [-INF, NAN, 0.0, -1.0])
def test_padding_takes_no_gradient_of_max_pooling(lowest: float, device: Device) -> None:
    numbers = np.full((1, 2, 4, 5), lowest)
    numbers[0, 1, 0, 0] = 3.0
    x = var(numbers, device, wide(device))
    result = x.max_pool2d(3, 2, 1)
    weights = np.arange(1.0, 1 + result.elem_count).reshape(result.shape)
    actual = result.backward(Tensor(weights, dtype=x.dtype, device=device))[x].numpy()
    expected = np.zeros(numbers.shape)
    for b, c, i, j in np.ndindex(*result.shape):
        rows, columns = (slice(max(2 * at - 1, 0), 2 * at + 2) for at in (i, j))
        window = numbers[b, c, rows, columns]
        chosen = np.isnan(window) if np.isnan(window).any() else window == window.max()
        expected[b, c, rows, columns] += chosen * weights[b, c, i, j] / chosen.sum()
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def cofactors(x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    size = len(x)
    result = np.empty((size, size))
    for i, j in np.ndindex(size, size):
        minor = np.delete(np.delete(x, i, 0), j, 1)
        result[i, j] = (-1) ** (i + j) * (np.linalg.det(minor) if size > 1 else 1)
    return result


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
def test_gradients_of_determinants_are_cofactors(size: int, device: Device) -> None:
    generator = np.random.default_rng(size)
    full = generator.normal(size=(size, size))
    matrices = [full]
    for rank in range(size - 1, max(size - 3, -1), -1):
        left, right = generator.normal(size=(size, rank)), generator.normal(size=(rank, size))
        matrices.append(left @ right)
    x = var(np.array(matrices), device, wide(device))
    det = x.__array_namespace__().linalg.det
    expected = np.array(list(map(cofactors, matrices)))
    np.testing.assert_allclose(gradient(det(x).sum(), x).numpy(), expected, atol=1e-4 if device.is_metal() else 1e-10)
    if 1 < size < 9:
        first = gradient(det(x).sum(), x, create_graph=True)
        np.testing.assert_allclose(first.numpy(), expected, atol=1e-4 if device.is_metal() else 1e-10)
        factors = generator.normal(size=expected.shape)
        second = gradient((first * Tensor(factors, dtype=x.dtype, device=device)).sum(), x).numpy()
        step = 1e-5
        for index, (matrix, factor) in enumerate(zip(matrices, factors, strict=True)):
            moved = (cofactors(matrix + step * factor) - cofactors(matrix - step * factor)) / (2 * step)
            np.testing.assert_allclose(second[index], moved, atol=1e-2 if device.is_metal() else 1e-7)


def test_second_gradients_of_large_singular_matrices_are_refused(device: Device) -> None:
    x = Var(Tensor(np.ones((9, 9)), dtype=wide(device), device=device))
    det = x.__array_namespace__().linalg.det
    with pytest.raises(tl.GradientError, match="second gradient"):
        det(x).backward(create_graph=True)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_binary_cross_entropy_is_finite_at_0_and_1(dtype: str, device: Device) -> None:
    if dtype == "f64" and device.is_metal():
        pytest.skip("metal has no f64")
    p, y = np.meshgrid([0.0, 1e-3, 0.5, 1.0], [0.0, 0.25, 1.0])
    x, target = var(p, device, dtype), Tensor(y, dtype=dtype, device=device)
    losses = x.binary_cross_entropy(target, "none")
    with np.errstate(divide="ignore"):
        terms = y * np.maximum(np.log(p), -100), (1 - y) * np.maximum(np.log1p(-p), -100)
    np.testing.assert_allclose(losses.numpy(), -sum(terms), rtol=1e-5, atol=1e-7)
    actual = losses.sum().backward(create_graph=True)[x]
    np.testing.assert_allclose(actual.numpy(), (p - y) / np.maximum(p * (1 - p), 1e-12), rtol=1e-4)
    assert np.isfinite(gradient(actual.sum(), x).numpy()).all()


def test_no_elements_have_no_gradients(device: Device) -> None:
    for op in DIFFERENTIABLE:
        if op not in (ReduceOp.MAX, ReduceOp.MIN):
            x = var([], device, "f32")
            actual = gradient(reduced(op, x), x, create_graph=True)
            assert actual.shape == (0,)


def constants() -> Sequence[tuple[float, int]]:
    return [*itertools.product((0.1, 1.7, 1e30, 1e-30), (1, 2, 3, 6, 7, 1000))]


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_deviations_of_equal_elements_are_0_and_so_are_their_gradients(dtype: str, device: Device) -> None:
    if dtype == "f64" and device.is_metal():
        pytest.skip("metal has no f64")
    for value, count in constants():
        if dtype == "f16" and not 1e-4 < value < 1e4:
            continue
        for name in ("var", "std"):
            x = var(np.full(count, value), device, dtype)
            result = getattr(x, name)(correction=0)
            assert result.item() == 0, (name, value, count)
            first = gradient(result, x, create_graph=True)
            assert not first.numpy().any()
            # The rows of the second derivative of a variance add up to 0.
            bound = 0 if name == "std" else 4 * float(ml_dtypes.finfo(tl.DType(dtype).numpy).eps)
            assert np.abs(gradient((first * first).sum() + first.sum(), x).numpy()).max() <= bound


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_a_variance_is_quadratic_wherever_it_is(dtype: str, device: Device) -> None:
    """Its second derivative is 2 / (n - correction) * (1 - 1 / n) on the diagonal, also where it vanishes or is 0."""
    if dtype == "f64" and device.is_metal():
        pytest.skip("metal has no f64")
    info = ml_dtypes.finfo(tl.DType(dtype).numpy)
    tiny = 2.0 ** (info.minexp // 2 - 8)
    # The mean of equal elements may be rounded, and the sum of large ones overflow.
    for numbers in ([0.1] * 6, [0.5, -1.25, 2.0, 3.5], [tiny, 2 * tiny, 4 * tiny], [float(info.max) / 2] * 3):
        for correction in (0, 1, 1.5):
            x, count = var(numbers, device, dtype), len(numbers)
            stored = x.to_dtype(wide(device)).numpy().astype(np.float64)
            factor = 2 / (count - correction)
            slopes = gradient(x.var(correction=correction), x).to_dtype(wide(device)).numpy()
            distances = stored - (stored[0] + (stored - stored[0]).mean())
            scale = float(info.eps) * np.abs(factor * distances).max()
            np.testing.assert_allclose(slopes, factor * distances, rtol=4 * float(info.eps), atol=4 * scale)
            expected = factor * (np.eye(count) - 1 / count)
            actual = hessian(lambda x, by=correction: x.var(correction=by), x).astype(np.float64)  # type: ignore[misc]
            np.testing.assert_allclose(actual, expected, rtol=4 * float(info.eps), atol=float(info.eps))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("name", ["std", "norm", "hypot"])
def test_gradients_of_lengths_have_no_unit(name: str, dtype: str, device: Device) -> None:
    if dtype == "f64" and device.is_metal():
        pytest.skip("metal has no f64")
    info = ml_dtypes.finfo(tl.DType(dtype).numpy)
    # Enough that the largest deviations times their number leave the dtype.
    numbers = np.tile([3.0, -4.0, 1.0, 2.0], 16)

    def computed(unit: float) -> tuple[Tensor, Tensor]:
        x = var(numbers * unit, device, dtype)
        result = x[0].hypot(x[1]) if name == "hypot" else getattr(x, name)(0)
        return result, gradient(result, x)

    expected, slopes = (each.to_dtype(wide(device)).numpy() for each in computed(1.0))
    # Powers of two, so that numbers have the same digits.
    for exponent in (info.minexp + 4, info.minexp // 2 - 3, info.maxexp // 2 + 3, info.maxexp - 8):
        result, actual = (each.to_dtype(wide(device)).numpy() for each in computed(2.0**exponent))
        tolerance = 4 * float(info.eps)
        np.testing.assert_allclose(np.ldexp(result, -exponent), expected, rtol=tolerance)
        np.testing.assert_allclose(actual, slopes, rtol=tolerance)


LOSSES = [
    name
    for name, method in inspect.getmembers(Tensor, inspect.isfunction)
    if name[0] != "_" and {"target", "reduction"} <= inspect.signature(method).parameters.keys()
]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_many_short_floats_are_rounded_once(name: str, reduction: str, dtype: str, device: Device) -> None:
    # 1 over so many is a subnormal f16 of five bits, and a loss alone may be no f16.
    generator, many = np.random.default_rng(0), 1 << 16
    numbers, targets = generator.uniform(0.1, 0.9, (2, many))
    if not name.startswith("binary"):
        numbers *= 400.0
    x, target = Var(Tensor(numbers, device=device).to_dtype(dtype)), Tensor(targets, device=device).to_dtype(dtype)
    wider = [tensor.to_dtype(wide(device)) for tensor in (x.detach(), target)]
    exact = Var(wider[0])
    losses = getattr(x, name)(target, reduction), getattr(exact, name)(wider[1], reduction)
    info = ml_dtypes.finfo(x.dtype.numpy)
    expected = losses[1].item()
    if abs(expected) > float(info.max):
        expected = math.copysign(INF, expected)
    assert losses[0].item() == pytest.approx(expected, rel=float(info.eps))
    actual = [
        gradient(loss, variable).to_dtype("f32").numpy() for loss, variable in zip(losses, (x, exact), strict=True)
    ]
    np.testing.assert_allclose(*actual, rtol=2 * float(info.eps), atol=float(info.smallest_subnormal))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["avg_pool2d", "max_pool2d", "cumprod", "prod"])
def test_gradients_of_short_floats_that_several_results_share_are_rounded_once(
    name: str, dtype: str, device: Device
) -> None:
    numbers = np.random.default_rng(0).integers(1, 4, (1, 1, 12, 12)) / 2.0
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "avg_pool2d": lambda x: x.avg_pool2d(5, 1),
        "max_pool2d": lambda x: x.max_pool2d(5, 1),
        "cumprod": lambda x: x.cumprod(3),
        "prod": lambda x: x.prod(3),
    }
    x = Var(Tensor(numbers, device=device).to_dtype(dtype))
    exact = Var(x.detach().to_dtype(wide(device)))
    info = ml_dtypes.finfo(x.dtype.numpy)
    for create_graph in (False, True):
        expected = gradient(functions[name](exact).sum(), exact).numpy().astype(np.float64)
        actual = gradient(functions[name](x).sum(), x, create_graph=create_graph)
        assert actual.dtype == x.dtype
        np.testing.assert_allclose(actual.to_dtype("f32").numpy(), expected, rtol=0.51 * float(info.eps))
