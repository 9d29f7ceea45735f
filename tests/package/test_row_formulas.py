"""Rules of ops of rows, given what no op of the spec has: several operands of elements, and vectors along any dim.

Derivatives are written by hand as opgen emits them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tallow import Device, ReduceOp, Tensor
from tallow.gradients.functors import Derivative
from tallow.op import MethodOp
from tallow.runtime.gradient import row_formulas
from tallow.storage import Storage

from .gradcheck import rand

OP, METHOD = MethodOp.SOFTMIN, "softmin_gradient"


def with_derivatives(monkeypatch: pytest.MonkeyPatch, derivatives: Mapping[str, Derivative]) -> None:
    monkeypatch.setattr(row_formulas, "ROW_DERIVATIVES", {OP: derivatives})


def summed(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    return x._reduce(ReduceOp.SUM, dims, True)


def close(actual: Tensor, expected: Any) -> None:
    # Terms are of the order of 1, and a sum of them that cancels is off by a rounding of a term.
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-6, atol=2**-23)


def test_gradients_op_by_op(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with_derivatives(
        monkeypatch,
        {
            "x": Derivative(("y", "weight", "position"), lambda g, y, weight, at: g * y * weight + at.sqrt()),
            "y": Derivative(("absent", "dims", "count"), lambda _, absent, dims, count: summed(absent, dims) * count),
            "weight": Derivative(("scale",), lambda g, scale: g * scale),
            "absent": Derivative((), lambda g: g),
        },
    )
    g, y, weight = (rand(*shape, seed=seed).to(device, "f32") for seed, shape in enumerate([(3, 2), (3, 2), (3,)]))
    tensors = {name: (it._storage, it._layout, None) for name, it in {"g": g, "y": y, "weight": weight}.items()}
    operands = {**tensors, "absent": (None, None, 2.0)}
    of_x, of_y, of_weight = row_formulas.row_by_ops(OP, operands, 0, {"scale": 0.5}, (True, False))
    positions = np.sqrt([[0], [1], [2]])
    close(Tensor.from_storage(of_x, (3, 2)), g.numpy() * y.numpy() * weight.numpy()[:, None] + positions)
    close(Tensor.from_storage(of_y, (3, 2)), np.full((3, 2), 3 * 2 * 3))
    close(Tensor.from_storage(of_weight, (3,)), g.numpy().sum(1) * 0.5)


def test_calls_of_gradient_ops(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    g, result = rand(2, 3).to(device, "f32"), rand(2, 3, seed=1).to(device, "f32")
    (alone,) = row_formulas.row_gradients(g, METHOD, (0,), (result,), (0,), (), (2.0,), adds=False)
    array = result.numpy()
    assert isinstance(alone, Tensor)
    close(alone, ((g.numpy() * array).sum(0) - g.numpy()) * array / 2)

    calls: list[tuple[Any, ...]] = []
    vector = Tensor.ones(3, device=device)

    def several(storage: Storage, *arguments: Any) -> tuple[Storage, ...]:
        calls.append(arguments)
        return storage, result._storage, vector._storage

    monkeypatch.setattr(Storage, METHOD, several)
    sources = (1, g, 0, 2, 3)
    first, second, third, fourth, fifth = row_formulas.row_gradients(
        g, METHOD, sources, (result,), (0,), (False, True), (2.0,), adds=False
    )
    assert calls == [(g._layout, result._storage, result._layout, 0, False, True, 2.0)]
    assert isinstance(first, Tensor)
    assert isinstance(third, Tensor)
    assert isinstance(fifth, Tensor)
    assert (first._storage, third._storage, fifth._storage) == (result._storage, g._storage, vector._storage)
    assert second is g
    assert fourth is None


def test_gradients_of_numbers_of_rows(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are the same along a row have its length nevertheless."""
    with_derivatives(
        monkeypatch,
        {
            "x": Derivative(("dims",), summed),
            "weight": Derivative(("dims",), summed),
            "gradient": Derivative(("x", "dims"), lambda g, x, dims: summed(g * x, dims)),
        },
    )
    g, x, weight = (rand(*shape, seed=seed).to(device, "f32") for seed, shape in enumerate([(3, 2), (3, 2), (3,)]))
    numbers = rand(2, seed=3).to(device, "f32")
    tensors: dict[str, Any] = {"x": x, "weight": (weight, None), "absent": (None, 2.0), "gradient": numbers}
    of_x, of_weight, of_absent, of_numbers = row_formulas.row_numbers_gradient(g, OP, tensors, None, 0, {})
    sums = g.numpy().sum(0)
    assert of_x is not None
    assert of_weight is not None
    assert of_absent is None
    assert of_numbers is not None
    close(of_x, np.tile(sums, (3, 1)))
    close(of_weight, np.full(3, sums.sum()))
    close(of_numbers, (g.numpy() * x.numpy()).sum(0))
    of_vector = row_formulas.row_vector(numbers, OP, "weight", {"x": x, "weight": (weight, None)}, None, 0, {})
    assert of_vector is not None
    close(of_vector, np.full(3, numbers.numpy().sum()))
