"""Jacobians, Hessians and products with a vector, compared with differences and with what is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow import Device, Shape, Tensor, Var

from .gradcheck import rand
from .test_gradient_graphs import ONE, TWO

STEP = 1e-5


def columns(function: Callable[..., Tensor], tensors: list[Tensor], number: int) -> Any:
    """The Jacobian by differences, one column for each element of an argument."""
    array = tensors[number].numpy()
    results = []
    for index in np.ndindex(array.shape):
        at = []
        for step in (-STEP, STEP):
            moved = array.copy()
            moved[index] += step
            inputs = [*tensors[:number], Tensor(moved), *tensors[number + 1 :]]
            at.append(function(*inputs).numpy())
        results.append((at[1] - at[0]) / (2 * STEP))
    result = at[0].shape
    return np.stack(results, -1).reshape(*result, *array.shape)


FUNCTIONS = {**ONE, **TWO}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_derivatives_are_differences(function: Callable[..., Tensor]) -> None:
    tensors = [rand(3, 3, seed=seed) for seed in range(1 + (function in TWO.values()))]
    numbers = tuple(range(len(tensors)))
    expected = [columns(function, tensors, number) for number in numbers]
    for actual, of in zip(tl.jacobian(function, numbers)(*tensors), expected, strict=True):
        np.testing.assert_allclose(actual.numpy(), of, rtol=1e-5, atol=1e-6)
    tangents = [rand(3, 3, seed=seed + 7) for seed in numbers]
    value, product = tl.jvp(function, tuple(tensors), tuple(tangents))
    np.testing.assert_allclose(value.numpy(), function(*tensors).numpy())
    along = sum(np.tensordot(of, t.numpy(), 2) for of, t in zip(expected, tangents, strict=True))
    np.testing.assert_allclose(product.numpy(), along, rtol=1e-5, atol=1e-6)
    # That of the gradient is symmetric.
    second = tl.hessian(lambda *x: function(*x).sin().sum(), numbers)(*tensors)
    for i, j in np.ndindex(len(numbers), len(numbers)):
        slope = lambda *x, i=i: tl.value_and_grad(lambda *x: function(*x).sin().sum())(*x)[1][i]  # noqa: E731
        np.testing.assert_allclose(second[i][j].numpy(), columns(slope, tensors, j), rtol=1e-4, atol=1e-5)


def test_known_hessians(device: Device) -> None:
    x = Tensor([1.0, -2.0, 0.5], device=device)
    matrix = Tensor([[2.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 1.0]], device=device)
    assert tl.hessian(lambda x: (x * (matrix @ x)).sum() * 0.5)(x).tolist() == matrix.tolist()

    def rosenbrock(x: Tensor) -> Tensor:
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    expected = [[1200 + 800 + 2, -400, 0], [-400, 202 + 4800 - 200, 800], [0, 800, 200]]
    assert tl.hessian(rosenbrock)(x).tolist() == expected
    assert tl.hessian(lambda x: x.sum())(x).tolist() == [[0.0] * 3] * 3


def test_what_calls_record() -> None:
    x = Var(Tensor([1.0, 2.0], dtype="f64"))
    trace = tl.value_and_grad(lambda x: tl.jacobian(lambda x: x**3)(x).sum())(x)
    assert (trace[0].item(), trace[1][0].tolist()) == (15.0, [6.0, 12.0])
    third = tl.jacobian(tl.hessian(lambda x: (x**4).sum()))(x)
    assert third.shape == (2, 2, 2) and third[1, 1, 1].item() == 48.0
    assert not third.is_recorded
    w = Var(Tensor(2.0, dtype="f64"))
    assert tl.jacobian(lambda x: x * w)(x).backward(Tensor(np.ones((2, 2))))[w].item() == 2.0
    slope = tl.value_and_grad(lambda x: tl.jvp(lambda x: x**3, x, x.ones_like())[1].sum())(x)[1][0]
    assert slope.tolist() == [6.0, 12.0]
    # A product is linear in the tangent, of which a variable may be all that is recorded.
    along = Var(Tensor([1.0, 3.0], dtype="f64"))
    value, product = tl.jvp(lambda x: x**3, Tensor([1.0, 2.0], dtype="f64"), along)
    assert not value.is_recorded
    grads = product.sum().backward()
    assert (len(grads), grads[along].tolist()) == (1, [3.0, 12.0])
    square = along**2
    with tl.no_grad():
        assert not tl.jacobian(lambda x: x * w)(x).is_recorded
        value, product = tl.jvp(lambda x: x**3, x, square)
        assert (value.is_recorded, product.is_recorded, product.tolist()) == (False, False, [3.0, 108.0])
    assert square.sum().backward()[along].tolist() == [2.0, 6.0]
    assert tl.vmap(tl.jacobian(lambda x: x**2))(Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist() == [
        [[2.0, 0.0], [0.0, 4.0]],
        [[6.0, 0.0], [0.0, 8.0]],
    ]


class Doubled(tl.CustomOp1):
    name = "doubled"

    def cpu_fwd(self, storage: Any, layout: tl.Layout) -> tuple[Any, Shape]:
        result = Tensor.from_storage(tl.Storage(storage), layout) * 2
        return result.storage.inner, layout.shape

    def bwd(self, x: Tensor, result: Tensor, g: Tensor) -> Tensor:
        return g.apply_op1(Doubled())


def test_an_op_without_a_rule_takes_a_loop() -> None:
    x = Tensor([1.0, 2.0])
    with pytest.raises(tl.BatchingError, match="apply_op1"):
        tl.vmap(lambda x: x.apply_op1(Doubled()))(x.unsqueeze(1))
    assert tl.jacobian(lambda x: x.apply_op1(Doubled()))(x).tolist() == [[2.0, 0.0], [0.0, 2.0]]


def test_arguments() -> None:
    x, y = Tensor([1.0, 2.0]), Tensor([[3.0], [4.0]])
    assert tl.jacobian(lambda x, y, scale: x * y * scale, 1)(x, y, scale=2.0).shape == (2, 2, 2, 1)
    of_x, of_y = tl.jacobian(lambda x, y: x * y, (0, 1))(x, y)
    assert (of_x.shape, of_y.shape) == ((2, 2, 2), (2, 2, 2, 1))
    assert tl.jacobian(lambda x: x[:0])(x).shape == (0, 2)
    assert tl.jvp(lambda x: x.relu(), (x,), (x,))[1].tolist() == [1.0, 2.0]
    for call, text in [
        (lambda: tl.jacobian(3), "function must be a function"),
        (lambda: tl.hessian(abs, "x"), "argnums is a number"),
        (lambda: tl.jacobian(abs)(3), "argument 0 is a tensor"),
        (lambda: tl.jacobian(abs, 1)(x), "argument 1 is a tensor, whose derivatives are asked for, not missing"),
        (lambda: tl.jvp(abs, x, (x, x)), "1 primals have 2 tangents"),
        (lambda: tl.jvp(abs, x, y), "the shape of its primal"),
        (lambda: tl.jvp(abs, 3, x), "primals must be a sequence of Tensor"),
        (lambda: tl.jvp(abs, x, [3]), "each of tangents must be of type Tensor"),
        (lambda: tl.jvp(abs, x, x.to_dtype("complex64")), "a tangent has the dtype of its primal"),
        (lambda: tl.hessian(lambda x: x)(x), "hessian: .* gives one element"),
        (lambda: tl.jacobian(lambda x: 3)(x), "result must be a Tensor"),
        (lambda: tl.jacobian(lambda x: x.detach())(x), "jacobian: the result does not depend on the arguments"),
        (lambda: tl.hessian(lambda x: x.argmax().float())(x), "hessian: the result does not depend on the arguments"),
        (lambda: tl.jvp(lambda x: tl.ones(3), x, x), "jvp: the result does not depend on the arguments"),
        (lambda: tl.value_and_grad(lambda x: x)(x), "value_and_grad: .* gives one element"),
        (lambda: tl.value_and_grad(lambda x: x.detach().sum())(x), "does not depend on a Var"),
    ]:
        with pytest.raises(tl.TallowError, match=text):
            call()
