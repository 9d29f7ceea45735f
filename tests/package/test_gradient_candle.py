"""Candle's tests of gradients (candle-core/tests/grad_tests.rs), translated: the same calls give the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tallow import Device, Tensor, Var


def variable(numbers: object, device: Device) -> Var:
    return Var(Tensor(numbers, dtype="f32", device=device))


def near(tensor: Tensor, expected: object, digits: int = 4) -> None:
    np.testing.assert_allclose(tensor.numpy(), np.array(expected), rtol=2e-6, atol=0.51 * 10**-digits)


def test_simple_grad(device: Device) -> None:
    x = variable([3, 1, 4], device)
    y = x * x + x * 5.0 + 4.0
    gradient = y.sum().backward()[x]
    assert y.tolist() == [28, 10, 40]
    assert gradient.tolist() == [11, 7, 13]


def test_sum_grad(device: Device) -> None:
    x = variable([3, 1, 4], device)
    for y in (x.sqr().sum(0, keepdim=True) * 2.0, (x.sqr().sum(0, keepdim=True) * 2.0).squeeze(0)):
        assert y.numpy().reshape(-1).tolist() == [52]
        assert y.backward()[x].tolist() == [12, 4, 16]


def test_expand_grad(device: Device) -> None:
    x = variable(np.arange(24.0).reshape(1, 1, 4, 6), device)
    loss = x.unsqueeze(2).broadcast_as(1, 1, 3, 4, 6).sqr().sum() * 0.5
    np.testing.assert_array_equal(loss.backward()[x].numpy(), 3 * np.arange(24.0).reshape(1, 1, 4, 6))


def test_matmul_grad(device: Device) -> None:
    x = variable(np.arange(12.0).reshape(2, 2, 3), device)
    y = variable(np.arange(12.0).reshape(2, 3, 2), device)
    grads = (x @ y).sum().backward()
    assert grads[x].tolist() == [[[1, 5, 9], [1, 5, 9]], [[13, 17, 21], [13, 17, 21]]]
    assert grads[y].tolist() == [[[3, 3], [5, 5], [7, 7]], [[15, 15], [17, 17], [19, 19]]]


@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 0), (0, 3)), ((0, 2), (2, 3)), ((2, 3), (3, 0)), ((0, 2, 3), (0, 3, 4)), ((2, 3, 0), (2, 0, 4))],
)
def test_zero_matmul_grad(left: tuple[int, ...], right: tuple[int, ...], device: Device) -> None:
    x, y = Var(Tensor.zeros(left, device=device)), Var(Tensor.zeros(right, device=device))
    product = x @ y
    np.testing.assert_array_equal(product.numpy(), np.zeros((*left[:-1], right[-1])))
    grads = product.sum().backward()
    np.testing.assert_array_equal(grads[x].numpy(), np.zeros(left))
    np.testing.assert_array_equal(grads[y].numpy(), np.zeros(right))


def test_gradient_descent(device: Device) -> None:
    x = variable(0.0, device)
    for _ in range(100):
        grads = ((x - 4.2) * (x - 4.2)).backward()
        x.set_(x - grads[x] * 0.1)
    assert x.item() == pytest.approx(4.199999, abs=1e-5)


X = [3.0, 1.0, 4.0, 0.15]
UNARY: dict[str, tuple[Callable[[Tensor], Tensor], list[float], list[float], int]] = {
    "log": (lambda x: x.log() + 1.0, [2.0986, 1.0, 2.3863, -0.8971], [0.3333, 1.0, 0.25, 6.6667], 4),
    "exp": (lambda x: x.exp(), [20.0855, 2.7183, 54.5982, 1.1618], [20.0855, 2.7183, 54.5982, 1.1618], 4),
    "exp_sqr": (lambda x: x.exp().sqr(), [403.43, 7.39, 2980.96, 1.35], [806.86, 14.78, 5961.92, 2.7], 2),
    "sin": (lambda x: x.sin(), [0.1411, 0.8415, -0.7568, 0.1494], [-0.99, 0.5403, -0.6536, 0.9888], 4),
    "cos": (lambda x: x.cos(), [-0.99, 0.5403, -0.6536, 0.9888], [-0.1411, -0.8415, 0.7568, -0.1494], 4),
    "sqr": (lambda x: x.sqr(), [9, 1, 16, 0.0225], [6, 2, 8, 0.3], 4),
    "sqrt": (lambda x: x.sqr().sqrt(), X, [1, 1, 1, 1], 4),
    "neg": (lambda x: x.neg(), [-3, -1, -4, -0.15], [-1, -1, -1, -1], 4),
    "affine": (lambda x: x.affine(0.2, 1.0), [1.6, 1.2, 1.8, 1.03], [0.2] * 4, 4),
    "divide_1": (lambda x: 1.0 / x, [0.3333, 1, 0.25, 6.6667], [-0.1111, -1, -0.0625, -44.4444], 4),
    "divide": (lambda x: x / 0.5, [6, 2, 8, 0.3], [2, 2, 2, 2], 4),
    "powf": (lambda x: x.powf(2.5), [15.59, 1.0, 32.0, 0.01], [12.99, 2.5, 20.0, 0.15], 2),
    "tanh": (lambda x: x.tanh(), [1.0, 0.76, 1.0, 0.15], [0.01, 0.42, 0.0, 0.98], 2),
    "gelu": (lambda x: x.gelu(), [2.9964, 0.8412, 3.9999, 0.0839], [1.0116, 1.0830, 1.0003, 0.6188], 4),
    "erf": (lambda x: x.erf(), [1.0, 0.8427, 1.0, 0.168], [0.0001, 0.4151, 0.0, 1.1033], 4),
    "gelu_erf": (lambda x: x.gelu_erf(), [2.9960, 0.8413, 3.9999, 0.0839], [1.0119, 1.0833, 1.0005, 0.6188], 4),
    "silu": (lambda x: x.silu(), [2.8577, 0.7311, 3.9281, 0.0806], [1.0881, 0.9277, 1.0527, 0.5747], 4),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary_grad(name: str, device: Device) -> None:
    function, result, gradient, digits = UNARY[name]
    x = variable(X, device)
    y = function(x)
    near(y, result, digits)
    near(y.sum().backward()[x], gradient, digits)


def test_elu_grad(device: Device) -> None:
    x = variable([-1, 0, -2, 3], device)
    y = x.elu(2.0)
    near(y, [-1.2642, 0, -1.7293, 3])
    near(y.sum().backward()[x], [0.7358, 2, 0.2707, 1])


def weighted(y: Tensor) -> Tensor:
    """The sum of the elements times 1, 2, 3, .."""
    numbers = Tensor.arange(1.0, y.elem_count + 1, device=y.device)
    return y.reshape(1, -1).matmul(numbers.unsqueeze(1))


def test_interpolation_grad(device: Device) -> None:
    rows = np.arange(1.0, 10).reshape(1, 3, 3)
    x = variable(rows, device)
    gradient = weighted(x.upsample_nearest1d(12)).backward()[x]
    assert gradient.tolist() == [[[10, 26, 42], [58, 74, 90], [106, 122, 138]]]
    x = variable(rows[None], device)
    gradient = weighted(x.upsample_nearest2d(6, 6)).backward()[x]
    assert gradient.tolist() == [[[[18, 26, 34], [66, 74, 82], [114, 122, 130]]]]
    x = variable([[[[1, 2], [4, 5]]]], device)
    assert weighted(x.upsample_nearest2d(6, 6)).backward()[x].tolist() == [[[[72, 99], [234, 261]]]]
    expected = [[[14, 22], [46, 54]], [[78, 86], [110, 118]]]
    for shape in ((1, 2, 2, 2), (2, 1, 2, 2)):
        x = variable(np.array([1, 2, 4, 5, 6, 7, 8, 9.0]).reshape(shape), device)
        gradient = weighted(x.upsample_nearest2d(4, 4)).backward()[x]
        np.testing.assert_array_equal(gradient.numpy().reshape(2, 2, 2), expected)


def test_binary_grad(device: Device) -> None:
    x = variable([3, 1, -4, -1], device)
    for y, result, gradient in (
        (x.maximum(x * 0.1), [3, 1, -0.4, -0.1], [1, 1, 0.1, 0.1]),
        (x.minimum(x * 0.1), [0.3, 0.1, -4, -1], [0.1, 0.1, 1, 1]),
        (x.minimum(x), [3, 1, -4, -1], [1, 1, 1, 1]),
    ):
        near(y, result, 6)
        near(y.sum().backward()[x], gradient, 6)


def test_slice_scatter_grad(device: Device) -> None:
    x, y = variable([3, 1, -4, -1, 5, 9], device), variable([2, 7, 1], device)
    scattered = x.reshape(2, 3).copy().slice_set(y.reshape(1, 3), 0, 1).sqr()
    grads = scattered.sum().backward()
    assert scattered.tolist() == [[9, 1, 16], [4, 49, 1]]
    assert grads[x].tolist() == [6, 2, -8, 0, 0, 0]
    assert grads[y].tolist() == [4, 14, 2]


def test_flip_backprop(device: Device) -> None:
    x = Var(Tensor.ones((2, 2), dtype="f32", device=device))
    weights = Tensor([[1.0, 2.0], [3.0, 4.0]], dtype="f32", device=device)
    y = x @ weights
    assert y.flip(1).tolist() == [[6, 4], [6, 4]]
    expected = Tensor.ones((2, 2), dtype="f32", device=device) @ weights.flip(1).t()
    assert y.flip(1).sum().backward()[x].tolist() == expected.tolist()
