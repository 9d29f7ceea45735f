"""Gradients compared with differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from tallow import Device, DType, Tensor, Var

STEP = 1e-5
# Of larger arrays, gradients are compared along this many random directions: a wrong element changes each slope.
MAX_ELEMENTS = 4
MAX_ELEMENTS_FULL = 64
DIRECTIONS = 3
# How close gradients are to those of f64, if the largest is not above 1.
CLOSE = {"f64": 1e-10, "f32": 1e-5, "f16": 2**-8, "bf16": 2**-5}


def rand(*shape: int, low: float = -1.0, high: float = 1.0, seed: int = 0) -> Tensor:
    """Numbers of f64 on the CPU that are not close to each other, nor to 0."""
    count = int(np.prod(shape))
    generator = np.random.default_rng(seed)
    numbers = low + (high - low) * (generator.permutation(count) + generator.uniform(0.3, 0.7, count)) / max(count, 1)
    return Tensor(numbers.reshape(shape), dtype="f64")


def like(tensor: Tensor, x: Tensor) -> Tensor:
    """A constant of a function, on the device of its argument, and in its dtype if both are floats."""
    return tensor.to(x.device, x.dtype) if tensor.dtype.is_float else tensor.to(x.device)


def of_numbers(function: Callable[..., Tensor], arrays: Sequence[Any], weights: Any) -> float:
    result = function(*[Tensor(array, dtype="f64") for array in arrays])
    return float((result.numpy() * weights).sum())


def differences(
    function: Callable[..., Tensor],
    arrays: Sequence[Any],
    weights: Any,
    size: float = STEP,
    most: int = MAX_ELEMENTS,
) -> list[Any]:
    """The slopes of the weighted sum of what a function gives, by moving each of its arguments: see `slopes`."""
    results = []
    for index, array in enumerate(arrays):
        rates = []
        for direction in _directions(array.shape, most):
            at = []
            for step in (-size, size):
                moved = array + step * direction
                at.append(of_numbers(function, [*arrays[:index], moved, *arrays[index + 1 :]], weights))
            rates.append((at[1] - at[0]) / (2 * size))
        results.append(np.array(rates))
    return results


def slopes(gradient: Any, most: int = MAX_ELEMENTS) -> Any:
    """A gradient along the axes, or along a few directions if it has many elements."""
    if gradient.size <= most:
        return gradient.reshape(-1)
    return np.array([float((gradient * direction).sum()) for direction in _directions(gradient.shape, most)])


def _directions(shape: tuple[int, ...], most: int) -> Iterator[Any]:
    size = math.prod(shape)
    if size > most:
        generator = np.random.default_rng(size)
        yield from (generator.normal(size=shape) for _ in range(DIRECTIONS))
    else:
        for axis in range(size):
            yield (np.arange(size) == axis).reshape(shape) * 1.0


def gradients(function: Callable[..., Tensor], tensors: Sequence[Tensor], weights: Any) -> list[Any]:
    """The gradients of the weighted sum of what a function gives."""
    variables = [Var(tensor) for tensor in tensors]
    result = function(*variables)
    grads = result.backward(Tensor(weights, dtype=result.dtype, device=result.device))
    results = [grads.get(variable) for variable in variables]
    assert all(part is None or part.dtype == of.dtype for part, of in zip(results, variables, strict=True))
    return [
        np.zeros(variable.shape) if gradient is None else gradient.numpy()
        for variable, gradient in zip(variables, results, strict=True)
    ]


class Gradcheck:
    """Compares gradients that a device works out with differences on the CPU, or with what the CPU works out in f64."""

    def __init__(self, device: Device, full: bool = False) -> None:
        self.device, self.full = device, full
        self.most = MAX_ELEMENTS_FULL if full else MAX_ELEMENTS
        # What the CPU works out in f64 is compared with differences. On GPUs the rules are the same, and the dtypes of
        # their ops have tests of their own.
        if device.is_cpu():
            self.dtypes = [dtype for dtype in CLOSE if dtype != "f64"]
        elif full:
            self.dtypes = [dtype for dtype in CLOSE if dtype != "f64" or not device.is_metal()]
        else:
            self.dtypes = ["f32", "bf16"]

    def __call__(
        self,
        function: Callable[..., Tensor],
        *tensors: Tensor,
        second: bool = True,
        without: Collection[str] = (),
    ) -> None:
        """Compare those of a function of tensors of f64 on the CPU, and those of the gradients too.

        The function must take tensors of any device and dtype but those that it is `without`; f64 is never missing on
        the CPU.
        """
        weights = np.random.default_rng(1).normal(size=function(*tensors).shape)
        if self.device.is_cpu():
            arrays = [tensor.numpy() for tensor in tensors]
            expected = self.differences(function, arrays, weights)
            for actual, difference in zip(gradients(function, tensors, weights), expected, strict=True):
                np.testing.assert_allclose(slopes(actual, self.most), difference, rtol=1e-6, atol=1e-7)
        for dtype in self.dtypes:
            if dtype not in without or (dtype == "f64" and self.device.is_cpu()):
                self._compare(function, tensors, weights, dtype)
        if second:
            # The gradient of the result is an argument as well.
            seed = Tensor(weights, dtype="f64")
            # The ops of a gradient have cells in each dtype.
            without = without if self.full else {*without, *self.dtypes[1:]}
            self(lambda *inner: _first(function, *inner), *tensors, seed, second=False, without=without)

    def differences(self, function: Callable[..., Tensor], arrays: Sequence[Any], weights: Any) -> list[Any]:
        """Return the expected gradients."""
        return differences(function, arrays, weights, most=self.most)

    def _compare(self, function: Callable[..., Tensor], tensors: Sequence[Tensor], weights: Any, dtype: str) -> None:
        short = [tensor.to_dtype(dtype) for tensor in tensors]
        wide = [tensor.to_dtype("f64") for tensor in short]
        expected = gradients(function, wide, weights)
        actual = gradients(function, [tensor.to(self.device) for tensor in short], weights)
        # Intermediate results are rounded as operands are: what that changes is no error.
        moved = gradients(function, [_moved(tensor, DType(dtype)) for tensor in wide], weights)
        for one, other, near in zip(actual, expected, moved, strict=True):
            bound = CLOSE[dtype] * max(1.0, np.abs(other).max(initial=0)) + np.abs(near - other).max(initial=0)
            np.testing.assert_allclose(one.astype(np.float64), other, rtol=0, atol=bound, err_msg=dtype)


def _moved(tensor: Tensor, dtype: DType) -> Tensor:
    """A tensor with each element changed by as much as one of another dtype is rounded, up or down."""
    signs = np.random.default_rng(tensor.elem_count).choice([-1.0, 1.0], tensor.shape)
    return tensor * (1 + float(ml_dtypes.finfo(dtype.numpy).eps) * Tensor(signs, dtype="f64"))


def _first(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """A sum of all first gradients for that of the result, the last of the tensors; recorded where these are."""
    *variables, seed = [tensor if tensor.is_recorded else Var(tensor) for tensor in tensors]
    result = function(*variables)
    grads = result.backward(seed.to_dtype(result.dtype), create_graph=True)
    results = [grads.get(variable) for variable in variables]
    total = None
    for index, (variable, gradient) in enumerate(zip(variables, results, strict=True)):
        if gradient is not None:
            assert gradient.dtype == variable.dtype
            factors = np.random.default_rng(index + 2).normal(size=variable.shape)
            part = (gradient * Tensor(factors, dtype=gradient.dtype, device=gradient.device)).sum()
            total = part if total is None else total + part
    # Where first gradients do not depend on the tensors, second ones are zeros.
    return (variables[0] * 0).sum() + (total if total is not None else 0)
