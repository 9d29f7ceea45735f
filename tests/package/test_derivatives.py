"""The gradients of functors are those of what the ops compute: beside differences in f64, beside f64 elsewhere."""

import inspect
import math
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest
from tallow import Device, Tensor
from tallow.dtype import FLOAT, DType
from tallow.examples import METHODS
from tallow.gradients.functors import DERIVATIVES, Derivative
from tallow.op import BinaryOp, MethodOp, ReduceOp, UnaryOp

STEP = 1e-6
# Away from edges, at which there is no slope: each of x is another distance from each of y.
X = np.array([[-2.3, -0.45, 0.35], [0.8, 1.6, 2.9]])
Y = np.array([[1.7, 0.6, 1.2], [2.4, 0.9, 3.3]])
PARAMETERS = {
    "slope": 0.1,
    "lower": -1.1,
    "upper": 1.3,
    "mul": 1.5,
    "add": -0.5,
    "alpha": 1.7,
    "correction": 1.0,
    "delta": 0.5,
}
# Where a function is defined: for any numbers, positive ones, those between -1 and 1, above 1, and between 0 and 1.
RANGES = ((X, Y), (np.abs(X), Y), (X / 4, Y / 4), (1 + np.abs(X), Y), (np.abs(X) / 4, Y / 4))
OPS = [op for op, gradients in DERIVATIVES.items() if gradients is not None]
DIMS = (1,)


def arrays_of(op: object) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    """The first numbers of which the op has no NaN, by operand."""
    name = op.value  # type: ignore[attr-defined]
    if name == "where_cond":
        return {"on_true": X, "on_false": Y}
    for x, y in RANGES:
        arrays = {"x": x, "y": y} if isinstance(op, BinaryOp) or name == "huber" else {"x": x}
        result = computed(op, {operand: Tensor(array, "f64") for operand, array in arrays.items()})
        if not np.isnan(result.numpy()).any():
            return arrays
    raise AssertionError(f"{name} is NaN everywhere")


def computed(op: object, tensors: Mapping[str, Tensor]) -> Tensor:
    name = op.value  # type: ignore[attr-defined]
    if name == "where_cond":
        return condition().where(tensors["on_true"], tensors["on_false"])
    if isinstance(op, ReduceOp):
        return tensors["x"]._reduce(op, DIMS, True)
    if name in ("var", "std"):
        return getattr(tensors["x"], name)(*DIMS, keepdim=True)  # type: ignore[no-any-return]
    if isinstance(op, BinaryOp):
        return tensors["x"]._binary(op, tensors["y"])
    if name == "huber":
        return tensors["x"].huber_loss(tensors["y"], "none", PARAMETERS["delta"])
    if name == "to_dtype":
        return tensors["x"].to_dtype(tensors["x"].dtype)
    if isinstance(op, UnaryOp):
        return tensors["x"]._unary(op)
    x = tensors["x"]
    method = getattr(x._storage, name)
    parameters = [parameters_of(name)[each] for each in inspect.signature(method).parameters if each != "layout"]
    return x._new(method(x._layout, *parameters), x._layout.dense)


def parameters_of(name: str) -> dict[str, float]:
    """Those of the spec's example, but for the names that are listed."""
    return {**(METHODS[name].calls[0] if name in METHODS else {}), **PARAMETERS}


def condition() -> Tensor:
    return Tensor([[1, 0, 1], [0, 0, 1]], "u8")


def gradient(op: object, derivative: Derivative, tensors: Mapping[str, Tensor], g: Tensor) -> Tensor:
    known = {
        **parameters_of(op.value),  # type: ignore[attr-defined]
        **tensors,
        "condition": condition(),
        "result": computed(op, tensors),
        "dims": DIMS,
        "count": X.shape[DIMS[0]],
    }
    actual = derivative.function(g, **{name: known[name] for name in derivative.takes})
    return actual.broadcast_as(X.shape)


@pytest.mark.parametrize("op", OPS, ids=str)
def test_gradients_are_differences(op: BinaryOp | ReduceOp | UnaryOp | MethodOp) -> None:
    arrays = arrays_of(op)
    weights = np.array([[1.0, -2.0, 0.5], [3.0, 0.7, -1.1]])
    tensors = {name: Tensor(array, "f64") for name, array in arrays.items()}
    result = computed(op, tensors)
    g = Tensor(weights[:, : result.shape[1]].copy(), "f64")
    gradients = DERIVATIVES[op]
    assert gradients is not None
    for operand, array in arrays.items():
        expected = np.zeros(X.shape)
        for index in np.ndindex(*X.shape):
            sums = []
            for step in (STEP, -STEP):
                moved = array.copy()
                moved[index] += step
                outcome = computed(op, {**tensors, operand: Tensor(moved, "f64")})
                sums.append(float((outcome * g).sum().item()))
            expected[index] = (sums[0] - sums[1]) / (2 * STEP)
        actual = np.zeros(X.shape)
        derivative = gradients[operand]
        if derivative is not None:
            actual = gradient(op, derivative, tensors, g).numpy()
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7, err_msg=operand)


OTHER_DTYPES = [(op, dtype) for op in OPS for dtype in DType if dtype in FLOAT & op.dtypes and dtype is not DType.F64]


@pytest.mark.parametrize(("op", "dtype"), OTHER_DTYPES, ids=str)
def test_gradients_of_other_dtypes_are_those_of_f64(op: BinaryOp | ReduceOp | UnaryOp | MethodOp, dtype: DType) -> None:
    rounded = {name: Tensor(array, "f64").to_dtype(dtype) for name, array in arrays_of(op).items()}
    wide = {name: tensor.to_dtype(DType.F64) for name, tensor in rounded.items()}
    result = computed(op, rounded)
    weights = np.array([[1.0, -2.0, 0.5], [3.0, 0.75, -1.0]])[:, : result.shape[1]].copy()
    unit = float(ml_dtypes.finfo(dtype.numpy).eps)
    gradients = DERIVATIVES[op]
    assert gradients is not None
    for operand, derivative in gradients.items():
        if derivative is None:
            continue
        actual = gradient(op, derivative, rounded, Tensor(weights, dtype)).to_dtype(DType.F64).numpy()
        expected = gradient(op, derivative, wide, Tensor(weights, "f64")).numpy()
        # Each of the steps of a reduction's formula rounds once; others are one op, which does, or without kernels a
        # function of NumPy's and a product with it.
        is_reduction = isinstance(op, ReduceOp) or op.value in ("var", "std")
        steps = 24 if is_reduction else 1 if Device.cpu().inner.kernels is not None else 2
        # In its x - y + 1 the difference, which is rounded, may cancel.
        absolute = steps * unit if op.value == "kl_divergence_of_logs" else steps * unit / 2
        np.testing.assert_allclose(actual, expected, rtol=steps * unit, atol=absolute, err_msg=operand)


def test_an_op_has_gradients_unless_it_gives_no_floats() -> None:
    lacking = {op.value for op, gradients in DERIVATIVES.items() if gradients is None}
    predicates = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "signbit", "any", "all"}
    predicates |= {"argmin", "argmax"}
    bits = {f"bitwise_{name}" for name in ("and", "or", "xor", "invert", "left_shift", "right_shift")}
    assert lacking == {*predicates, *bits, "real", "imag", "conj", "angle", "sum_i64", "prod_i64"}


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("norm", [[0.0, 0.0]], [[0.0, 0.0]]),
        ("std", [[1.0, 1.0]], [[0.0, 0.0]]),
        ("max", [[2.0, 2.0, 1.0]], [[0.5, 0.5, 0.0]]),
        ("min", [[2.0, 1.0, 1.0, 1.0]], [[0.0, 1 / 3, 1 / 3, 1 / 3]]),
        ("prod", [[0.0, 3.0, 2.0]], [[6.0, 0.0, 0.0]]),
        ("prod", [[0.0, 0.0, 2.0]], [[0.0, 0.0, 0.0]]),
        ("prod", [[2.0, 3.0, -1.0]], [[-3.0, -2.0, 6.0]]),
    ],
)
def test_gradients_of_reductions_at_their_edges(name: str, x: list[list[float]], expected: list[list[float]]) -> None:
    tensor = Tensor(x, "f64")
    op = next(op for op in DERIVATIVES if op.value == name and isinstance(op, ReduceOp | MethodOp))
    gradients = DERIVATIVES[op]
    assert gradients is not None
    result = getattr(tensor, name)(1, keepdim=True)
    known = {"x": tensor, "result": result, "dims": (1,), "count": len(x[0]), "correction": 1.0}
    derivative = gradients["x"]
    assert derivative is not None
    actual = derivative.function(Tensor([[1.0]], "f64"), **{key: known[key] for key in derivative.takes})
    np.testing.assert_allclose(actual.broadcast_as(tensor.shape).numpy(), expected, rtol=1e-12)
    assert math.isfinite(float(actual.sum().item()))
