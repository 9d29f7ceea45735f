"""Gradients of methods that are composed of others follow from the parts: they agree with differences."""

from __future__ import annotations

import numpy as np
import own_spec
import pytest
import tallow
from tallow.examples import METHODS

STEP = 1e-6
COMPOSED = [method for method in own_spec.read().storage_methods() if method.body is not None]


@pytest.mark.parametrize("method", COMPOSED, ids=lambda method: method.name)
def test_gradients_agree_with_differences(method: object, device: tallow.Device) -> None:
    from opgen.gradients import differentiable
    from opgen.model.methods import Method

    assert isinstance(method, Method)
    cells = [cell for cell in tallow.support() if (cell.method, cell.backend) == (method.name, device.backend)]
    if not any(cell.dtype == "f64" and cell.status == "supported" for cell in cells):
        pytest.skip("the backend has no f64, in which differences have digits")
    front, call = method.tensor, METHODS[method.name].calls[0]
    assert front is not None, "tests call the tensor method"
    generator = np.random.default_rng(0)
    floats = [operand.name for operand in differentiable(own_spec.read(), method) if call[operand.name] is not None]
    numbers = {name: generator.uniform(0.5, 1.5, call[name]) for name in floats}
    directions = {name: generator.uniform(-1, 1, call[name]) for name in floats}
    others = {name: call[name] for name in front.arguments if name not in floats}
    for operand in (it.name for it in method.operands if it.name not in floats and call[it.name] is not None):
        others[operand] = tallow.Tensor.from_numpy(np.zeros(call[operand], np.int64), device=device)

    def loss(given: dict[str, tallow.Tensor]) -> tallow.Tensor:
        arguments = {name: {**others, **given}[name] for name in front.arguments}
        result: tallow.Tensor = getattr(given["self"], front.name)(**arguments)
        return (result * result).sum()

    def at(step: float) -> float:
        moved = {name: value + step * directions[name] for name, value in numbers.items()}
        given = {name: tallow.Tensor.from_numpy(value, device=device) for name, value in moved.items()}
        return float(loss(given).item())

    variables = {name: tallow.Var(tallow.Tensor.from_numpy(value, device=device)) for name, value in numbers.items()}
    gradients = loss(variables).backward()
    slope = sum(float((gradients[variables[name]].numpy() * directions[name]).sum()) for name in floats)
    assert slope == pytest.approx((at(STEP) - at(-STEP)) / (2 * STEP), rel=1e-6)
