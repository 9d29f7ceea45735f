"""Gradients of fused functions: kernels of their own, and what is recorded of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import tallow as tl
from tallow import Tensor
from tallow.backends import CpuDevice
from tallow.runtime.backends.gpu_backend.ops.fused_passes import schedule
from tallow.runtime.base.error import GradientError
from tallow.runtime.graph.fused_gradient import gradient_of
from tallow.runtime.program.fused_kernels import kernels_of

from .test_fused_rows import ROW_METHODS, ROWS_OF_64, launched, traced

Compute = Callable[..., Any]


@pytest.fixture(autouse=True)
def _recorded_as_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record fused functions as one op on the CPU too."""
    monkeypatch.setattr(CpuDevice, "has_fused_kernels", True)


GRADIENTS: Final[list[Compute]] = [
    lambda x, y: (x * 2 + y).softmax(-1),
    lambda x, y: (x + y).log_softmax(-1).gelu() * x,
    lambda x, y: x.silu() * y,
    lambda x, y: ((x * y).softmax(-1), x - y),
    lambda x, y: x.log_softmax(-1) + y * 3,
    lambda x, y: x.rms_norm().silu() * y,
    lambda x, y: (x + y).layer_norm(),
    lambda x, y: x.layer_norm(residual=y)[0].gelu() + y,
    lambda x, y: (x - x.mean(-1, keepdim=True)) / y.norm(-1, keepdim=True),
    lambda x, y: (x * y).logsumexp(-1),
    lambda x, y: x.log_softmax(-1).kl_div(y.softmax(-1), "none").sum(-1),
    lambda x, y: x.log_softmax(-1).kl_div(y.log_softmax(-1), "none", log_target=True).sum(-1),
    lambda x, y: (x + y).var(-1).sqrt().unsqueeze(-1) * x.exp() / x.exp().sum(-1, keepdim=True),
    *[lambda x, y, name=name: getattr(x * y, name)(-1) + x for name in ROW_METHODS if not name.endswith("gradient")],
]


def cast(x: Tensor, y: Tensor) -> Tensor:
    return x.to_dtype("bf16").to_dtype("f32").softmax(1) * y.exp()


@pytest.mark.parametrize("function", [*GRADIENTS, cast])
def test_gradients_of_maps_rows_and_reductions_are_one_kernel(function: Compute) -> None:
    of = traced(function, ROWS_OF_64, ROWS_OF_64)
    gradient = gradient_of(of, (0, 1), (), tuple(of.layouts), ())
    assert gradient is not None
    assert gradient.function is not None
    assert len(launched(gradient.function)) == 1


@pytest.mark.parametrize("function", GRADIENTS)
def test_gradients_of_variables_are_results_of_their_own(function: Compute) -> None:
    of = traced(function, ROWS_OF_64, ROWS_OF_64)
    for variables in ((0, 1), (1,), ()):
        gradient = gradient_of(of, (0, 1), variables, tuple(of.layouts), ())
        assert gradient is not None
        assert gradient.function is not None
        assert len(launched(gradient.function)) == 1
        results = gradient.function.results
        if len(variables) > 1:
            assert len({(position, number) for _, position, number in gradient.gradients}) == 2
        else:
            assert len(results) == len({*results})


def test_gradients_of_variables_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = variables()
    result = tl.fuse(lambda x, y: (x + y).layer_norm())(x, y)
    monkeypatch.setattr(Tensor, "copy", None)
    actual = result.backward(Tensor(np.ones((3, 8))))
    np.testing.assert_array_equal(actual[x].numpy(), actual[y].numpy())
    actual[x].zero_()
    assert actual[y].numpy().any()


def test_a_gradient_that_the_caller_has_is_written_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = variables()
    seed = Tensor(np.arange(24.0).reshape(3, 8))
    result = tl.fuse(lambda x, y: x.layer_norm().gelu() + y)(x, y)
    monkeypatch.setattr(Tensor, "copy", None)
    actual = result.backward(seed)
    np.testing.assert_array_equal(actual[y].numpy(), seed.numpy())
    actual[y].zero_()
    assert seed.numpy().any()


@pytest.mark.parametrize(
    ("function", "passes"),
    [
        # Those of the norm itself, and then both sums that its gradient adds.
        (lambda x, y: x.layer_norm().gelu() + y, [1, 1, 2]),
        (lambda x, y: x.rms_norm().silu() * y, [1, 1]),
        # The sum and the mean are one number; the sum of the squares is another one.
        (lambda x, y: x / x.sum(-1, keepdim=True) + y / x.mean(-1, keepdim=True) * x.sqr().sum(-1, keepdim=True), None),
    ],
)
def test_equal_sums_of_a_row_are_computed_once(function: Compute, passes: list[int] | None) -> None:
    of = traced(function, ROWS_OF_64, ROWS_OF_64)
    if passes is not None:
        gradient = gradient_of(of, (0, 1), (), tuple(of.layouts), ())
        assert gradient is not None
        assert gradient.function is not None
        of = gradient.function
    (kernel,) = kernels_of(of)
    scheduled, known = schedule(kernel.function.steps)
    assert [len(each.joins) for each in scheduled] == (passes or [2])
    assert all(each.join in scheduled[each.after].joins for own in known.values() for of in own for each in of)


SUMS_OVER_ROWS: Final[list[tuple[Compute, int]]] = [
    (lambda x, y, weight, bias: x.rms_norm(weight).silu() * y * bias, 1),
    (lambda x, y, weight, bias: x.layer_norm(weight, bias).gelu() + y, 1),
    (lambda x, y, weight, bias: (x * weight).softmax(-1) * y + bias, 1),
    # What is computed of a vector is no vector of the function, and one of two ops has two sums.
    (lambda x, y, weight, bias: x.rms_norm(weight * 2) + y + bias, 0),
    (lambda x, y, weight, bias: x.layer_norm(weight, weight) + y + bias, 0),
]


@pytest.mark.parametrize(("function", "launches"), SUMS_OVER_ROWS)
def test_gradients_of_vectors_along_rows_are_summed_by_the_kernel_of_the_others(
    function: Compute, launches: int
) -> None:
    of = traced(function, ROWS_OF_64, ROWS_OF_64, (64,), (64,))
    gradient = gradient_of(of, (0, 1, 2, 3), (), tuple(of.layouts), ())
    if not launches:
        assert gradient is None
        return
    assert gradient is not None
    assert gradient.function is not None
    # The last one joins the sums of all blocks.
    assert launched(gradient.function) == ["vector2", "f32"]


def variables() -> tuple[tl.Var, tl.Var]:
    normal = np.random.default_rng(0)
    return tl.Var(Tensor(normal.standard_normal((3, 8)))), tl.Var(Tensor(normal.standard_normal((3, 8))))


def test_what_gradients_need_is_read_or_computed_again_whichever_reads_less() -> None:
    def positions(function: Compute) -> list[int]:
        of = traced(function, ROWS_OF_64, ROWS_OF_64)
        gradient = gradient_of(of, (0, 1), (), tuple(of.layouts), ())
        assert gradient is not None
        return gradient.positions

    # Two arguments, the gradient of the result, and the result.
    assert positions(lambda x, y: (x + y).softmax(-1)) == [2, 3]
    assert positions(lambda x, y: (x * y).silu()) == [0, 1, 2]
    assert positions(lambda x, y: x + y) == []


@pytest.mark.parametrize("function", GRADIENTS)
def test_second_gradients_are_those_of_the_ops(function: Compute) -> None:
    actual = []
    for each in (tl.fuse(function), function):
        x, y = variables()
        result = each(x, y)
        results = result if isinstance(result, tuple) else (result,)
        first = sum(part.sqr().sum() for part in results).backward(create_graph=True)
        second = (first[x] * first[y]).sum().backward()
        actual.append([first[x].detach(), first[y].detach(), second[x], second[y]])
    for got, expected in zip(*actual, strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-12, atol=1e-12)


def test_a_call_is_one_op_that_is_recorded() -> None:
    @tl.fuse
    def weights(x: Tensor, y: Tensor, scale: float) -> Tensor:
        return (x * scale + y).softmax(-1)

    x, y = variables()
    for scale in (0.5, 2.0):
        result = weights(x, y.narrow(0, 1, 1), scale=scale)
        assert result.is_recorded
        assert result._storage.inner.name == "weights"
        actual = (result * x.detach()).sum().backward()
        expected = (weights.__wrapped__(x, y.narrow(0, 1, 1), scale) * x.detach()).sum().backward()
        np.testing.assert_array_equal(actual[x].numpy(), expected[x].numpy())
        np.testing.assert_allclose(actual[y].numpy(), expected[y].numpy(), rtol=1e-14, atol=1e-16)
    with tl.no_grad():
        assert not weights(x, y, 1.0).is_recorded


def test_gradients_of_some_results_and_of_some_arguments() -> None:
    both = tl.fuse(lambda x, y: (x * y, x.exp() - y, x > y))
    x, y = variables()
    product, difference, is_more = both(x, y.detach())
    assert not is_more.is_recorded
    actual = difference.sum().backward(keep=True)
    np.testing.assert_array_equal(actual[x].numpy(), x.exp().numpy())
    assert y not in actual
    np.testing.assert_array_equal(product.sum().backward()[x].numpy(), y.numpy())


def test_what_gradients_need_must_not_be_overwritten() -> None:
    squares = tl.fuse(lambda x, y: x * x * y)
    x, _ = variables()
    y = x.detach().copy()
    result = squares(x, y)
    y += 1
    with pytest.raises(GradientError, match="needs elements for its gradient that"):
        result.sum().backward()
    result = squares(x, x.detach())
    result.sum().backward()
    with pytest.raises(GradientError, match="went back through"):
        result.sum().backward()


def test_ops_are_recorded_one_by_one_where_gradients_are_sums() -> None:
    """Of a vector that is computed with and then broadcast."""
    scaled = tl.fuse(lambda x, y: x * (y * y))
    x, y = variables()
    row = y.narrow(0, 0, 1)
    actual = []
    for function in (scaled, scaled.__wrapped__):
        result = function(x, row)
        assert result._storage.inner.name == "mul"
        gradients = result.sum().backward()
        actual.append((gradients[x].numpy(), gradients[y].numpy()))
    for got, expected in zip(*actual, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_gradients_of_a_batch_are_those_of_the_ops() -> None:
    """A Jacobian is one backward of a batch of seeds."""
    function = GRADIENTS[0]
    x, y = (each.detach() for each in variables())
    got, expected = (tl.jacobian(each)(x, y) for each in (tl.fuse(function), function))
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-12, atol=1e-15)
    got, expected = (tl.vmap(each)(x, y) for each in (tl.fuse(function), function))
    np.testing.assert_array_equal(got.numpy(), expected.numpy())
