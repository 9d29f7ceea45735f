"""Gradients compared with differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tallow import Device, Tensor, Var

STEP = 1e-5


def rand(*shape: int, device: Device | str = "cpu", low: float = -1.0, high: float = 1.0, seed: int = 0) -> Tensor:
    """Numbers of f64 that are not close to each other, nor to 0."""
    count = int(np.prod(shape))
    generator = np.random.default_rng(seed)
    numbers = low + (high - low) * (generator.permutation(count) + generator.uniform(0.3, 0.7, count)) / max(count, 1)
    return Tensor(numbers.reshape(shape), dtype="f64", device=device)


def of_numbers(function: Callable[..., Tensor], arrays: Sequence[Any], weights: Any, device: Any) -> float:
    result = function(*[Tensor(array, dtype="f64", device=device) for array in arrays])
    return float((result.numpy() * weights).sum())


def differences(function: Callable[..., Tensor], arrays: Sequence[Any], weights: Any, device: Any) -> list[Any]:
    """The gradients of the weighted sum of what a function gives, by moving each number of its arguments."""
    found = []
    for place, array in enumerate(arrays):
        gradient = np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            at = []
            for step in (-STEP, STEP):
                moved = array.copy()
                moved[index] += step
                at.append(of_numbers(function, [*arrays[:place], moved, *arrays[place + 1 :]], weights, device))
            gradient[index] = (at[1] - at[0]) / (2 * STEP)
        found.append(gradient)
    return found


def gradients(function: Callable[..., Tensor], tensors: Sequence[Tensor], weights: Any) -> list[Any]:
    """The gradients of the weighted sum of what a function gives."""
    variables = [Var(tensor) for tensor in tensors]
    result = function(*variables)
    grads = result.backward(Tensor(weights, dtype=result.dtype, device=result.device))
    found = [grads.get(variable) for variable in variables]
    return [
        np.zeros(variable.shape) if gradient is None else gradient.numpy()
        for variable, gradient in zip(variables, found, strict=True)
    ]


def gradcheck(function: Callable[..., Tensor], *tensors: Tensor, second: bool = True) -> None:
    """Compare the gradients of a function of tensors of f64 with differences, and those of the gradients too."""
    device = tensors[0].device
    arrays = [tensor.numpy() for tensor in tensors]
    plain = function(*tensors)
    weights = np.random.default_rng(1).normal(size=plain.shape)
    for found, expected in zip(
        gradients(function, tensors, weights), differences(function, arrays, weights, device), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    if second:
        gradcheck(lambda *inner: _first(function, inner, weights), *tensors, second=False)


def _first(function: Callable[..., Tensor], tensors: Sequence[Tensor], weights: Any) -> Tensor:
    """All first gradients in one vector, which are recorded where the tensors are."""
    variables = [tensor if tensor.is_recorded else Var(tensor) for tensor in tensors]
    result = function(*variables)
    seed = Tensor(weights, dtype=result.dtype, device=result.device)
    grads = result.backward(seed, create_graph=True)
    found = [grads.get(variable) for variable in variables]
    total = None
    for place, (variable, gradient) in enumerate(zip(variables, found, strict=True)):
        if gradient is not None:
            factors = np.random.default_rng(place + 2).normal(size=variable.shape)
            part = (gradient * Tensor(factors, dtype="f64", device=result.device)).sum()
            total = part if total is None else total + part
    # Where first gradients do not depend on the tensors, second ones are zeros.
    return (variables[0] * 0).sum() + (total if total is not None else 0)
