"""Sums of f32 are accumulated in f64 where the spec says so, in blocks elsewhere, however their elements lie."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import own_spec
import pytest
from tallow import Device, Tensor

# What is the same of arrays and of tensors: views with strides of both signs, gaps, and strides of 0.
VIEWS: dict[str, Callable[[Any], Any]] = {
    "dense": lambda x: x,
    "transposed": lambda x: x.permute(2, 0, 1) if isinstance(x, Tensor) else x.transpose(2, 0, 1),
    "reversed": lambda x: x[::-1, ::-1],
    "narrowed": lambda x: x[:, 1::2, 3:],
    "repeated rows": lambda x: expanded(x[:, :1], x.shape),
    "repeated elements": lambda x: expanded(x[:, :, :1], x.shape),
}


def expanded(x: Any, shape: tuple[int, ...]) -> Any:
    return x.broadcast_as(shape) if isinstance(x, Tensor) else np.broadcast_to(x, shape)


def sums() -> Iterator[str]:
    """The tensor methods that add up what elements contribute, in f64 where they can."""
    from opgen.model.reductions import Monoid
    from opgen.monoids import is_sum

    for functor in own_spec.read().functors["reduce"].functors:
        monoid = functor.reduction
        if isinstance(monoid, Monoid) and monoid.accumulate == "f64" and is_sum(monoid):
            method = getattr(Tensor, functor.name, None)
            if method is not None and "dim" in inspect.signature(method).parameters:
                yield functor.name


def exact(name: str, x: np.ndarray) -> float:  # type: ignore[type-arg]
    """A sum of all elements of one of these kinds, rounded once to f64 or twice."""
    numbers = [float(number) for number in x.ravel()]
    match name:
        case "sum" | "mean":
            return math.fsum(numbers) / (1 if name == "sum" else len(numbers))
        case "norm":
            return math.sqrt(math.fsum(number * number for number in numbers))
        case _:
            mean = math.fsum(numbers) / len(numbers)
            variance = math.fsum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1)
            return variance if name == "var" else math.sqrt(variance)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", [*sums()])
def test_sums_of_views_of_f32_are_as_exact_as_those_of_dense_tensors(name: str, view: str, device: Device) -> None:
    # Positive numbers, so that a running total in f32 is off by hundreds of units.
    numbers = np.random.default_rng(0).uniform(0.5, 1.5, (70, 41, 23)).astype(np.float32)
    x, expected = (VIEWS[view](it) for it in (Tensor(numbers, device=device), numbers))
    # One rounding of a sum in f64; of blocks of 64 in f32 a few.
    units = 0.51 if device.is_cpu() else 16
    for dims in ((0, 1, 2), (0,), (1,), (2,), (0, 2), (0, 1), (1, 2)):
        actual = getattr(x, name)(dims).numpy().astype(np.float64)
        kept = [dim for dim in range(3) if dim not in dims]
        rows = np.ascontiguousarray(expected.transpose([*kept, *dims])).reshape(max(actual.size, 1), -1)
        indices = np.random.default_rng(1).permutation(len(rows))[:40]
        right = np.array([exact(name, rows[index]) for index in indices])
        off = np.abs(actual.reshape(-1)[indices] - right) / np.spacing(right.astype(np.float32))
        assert off.max() <= units, (dims, off.max())


def test_the_sums_are_those_of_the_spec() -> None:
    assert [*sums()] == ["sum", "mean", "norm", "var", "std"]
