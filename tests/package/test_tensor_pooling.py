"""Pooling of tensors by its definition, every method and parameter of it, and gradients to second order."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow import Device, InvalidArgument, Layout, ShapeMismatch, Tensor

from .gradcheck import Gradcheck, rand

METHODS = sorted(name for name in dir(Tensor) if re.fullmatch(r"(adaptive_)?(avg|max)_pool\dd", name))
# What each parameter may be along a dim. All are in use: see `test_every_parameter_is_known`.
CHOICES: dict[str, list[Any]] = {
    "kernel_size": [1, 2, 3],
    "stride": [1, 2, 3],
    "padding": [0, 1],
    "dilation": [1, 2],
    "output_size": [1, 2, 3, 5],
    "ceil_mode": [False, True],
    "count_include_pad": [True, False],
}


def test_every_parameter_is_known() -> None:
    assert len(METHODS) == 12
    names = {name for method in METHODS for name in inspect.signature(getattr(Tensor, method)).parameters}
    assert names == {"self", *CHOICES}


def windows(size: int, given: dict[str, Any]) -> list[tuple[list[int], int]]:
    """The elements of each window along a dim, and by how many an average divides."""
    if "output_size" in given:
        count = given["output_size"]
        bounds = [range(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
        return [(list(each), len(each)) for each in bounds]
    padding, dilation = given["padding"], given.get("dilation", 1)
    results: list[tuple[list[int], int]] = []
    for begin in itertools.count(-padding, given["stride"]):
        every = [begin + t * dilation for t in range(given["kernel_size"])]
        if begin >= size or (every[-1] >= size + padding and not given["ceil_mode"]):
            return results
        inside = [position for position in every if 0 <= position < size]
        padded = [position for position in every if position < size + padding]
        results.append((inside, len(padded if given.get("count_include_pad", True) else inside)))
        if every[-1] >= size + padding - 1:
            # PyTorch has one more than fit, if that begins early enough, and no other.
            return results
    raise AssertionError


def pooled(x: np.ndarray[Any, Any], along: list[list[tuple[list[int], int]]], is_average: bool) -> np.ndarray[Any, Any]:
    result = np.empty((*x.shape[:2], *map(len, along)))
    for index in np.ndindex(*result.shape[2:]):
        chosen = [windows[i] for windows, i in zip(along, index, strict=True)]
        window = x[np.ix_(*map(range, x.shape[:2]), *(inside for inside, _ in chosen))].reshape(*x.shape[:2], -1)
        divisor = np.prod([count for _, count in chosen])
        concatenated = window.sum(-1) / divisor if is_average else window.max(-1, initial=-np.inf)
        result[(slice(None), slice(None), *index)] = concatenated
    return result


def draw(method: str, seed: int, longest: int) -> tuple[list[int], dict[str, Any], list[dict[str, Any]]]:
    """Sizes, the arguments of a call, and these along each dim."""
    generator, dims = np.random.default_rng(seed), int(method[-2])
    names = list(inspect.signature(getattr(Tensor, method)).parameters)[1:]
    while True:
        each = {name: [generator.choice(CHOICES[name]).item() for _ in range(dims)] for name in names}
        inputs = {name: all_[0] if isinstance(all_[0], bool) else tuple(all_) for name, all_ in each.items()}
        along = [
            {name: value[dim] if isinstance(value, tuple) else value for name, value in inputs.items()}
            for dim in range(dims)
        ]
        sizes = [int(size) for size in generator.integers(3, longest + 1, dims)]
        spans = [one.get("dilation", 1) * (one.get("kernel_size", 1) - 1) + 1 for one in along]
        pads = [one.get("padding", 0) for one in along]
        if all(2 * pad <= span <= size + 2 * pad for pad, span, size in zip(pads, spans, sizes, strict=True)):
            return sizes, inputs, along


@pytest.mark.parametrize("method", METHODS)
def test_values(method: str, device: Device) -> None:
    for seed in range(12):
        sizes, inputs, along = draw(method, seed, longest=(40, 12, 7)[int(method[-2]) - 1])
        x = np.random.default_rng(seed).integers(-5, 6, (2, 2, *sizes)).astype(np.float32)
        expected = pooled(x, [windows(*each) for each in zip(sizes, along, strict=True)], "avg" in method)
        actual = getattr(Tensor(x, device=device), method)(**inputs).numpy()
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6, err_msg=f"{sizes}, {inputs}")


@pytest.mark.parametrize("method", METHODS)
def test_gradients(method: str, gradcheck: Gradcheck) -> None:
    for seed in range(2):
        sizes, given, _ = draw(method, 100 + seed, longest=(8, 5, 3)[int(method[-2]) - 1])
        x = rand(1, 2, *sizes, seed=seed)
        gradcheck(lambda x, given=given: getattr(x.sqr(), method)(**given), x, second=seed == 0)


@pytest.mark.parametrize("method", ["avg_pool2d", "max_pool2d"])
def test_gradients_of_storages(method: str, gradcheck: Gradcheck) -> None:
    """Those of Candle's methods."""

    def pool(x: Tensor) -> Tensor:
        storage = getattr(x._storage, method)(x._layout, (2, 3), (1, 2))
        return x._new(storage, Layout.contiguous((1, 2, 3, 2)))

    gradcheck(lambda x: pool(x.sqr()), rand(1, 2, 4, 5))


def test_the_largest_share_the_second_gradient(device: Device) -> None:
    x = tl.Var(Tensor([[[1.0, 1.0, 0.0, 2.0]]], device=device))
    weights = tl.Var(Tensor([[[3.0, 5.0]]], device=device))
    first = (x.max_pool1d(2) * weights).sum().backward(create_graph=True)[x]
    assert first.tolist() == [[[1.5, 1.5, 0, 5]]]
    second = (first * Tensor([[[2.0, 4.0, 7.0, 11.0]]], device=device)).sum().backward()
    assert second[weights].tolist() == [[[3.0, 11.0]]]


def test_what_is_refused(device: Device) -> None:
    line, image = Tensor.ones((1, 2, 4), device=device), Tensor.ones((1, 2, 4, 5), device=device)
    calls: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: line.avg_pool1d(3, padding=2), InvalidArgument, "avg_pool1d: padding is from 0 to half of a window"),
        (lambda: line.max_pool1d(2, dilation=4), InvalidArgument, "max_pool1d: a window of 5 elements does not fit"),
        (lambda: line.max_pool1d(2, 0), InvalidArgument, "max_pool1d: stride is 1 or more"),
        (lambda: image.max_pool1d(2), ShapeMismatch, "max_pool1d: .* lines have 3 dims"),
        (lambda: image.max_pool2d((2, 2, 2)), InvalidArgument, "an integer or a pair of integers"),
        (lambda: image.avg_pool2d(2, ceil_mode=1), InvalidArgument, "avg_pool2d: ceil_mode"),
        (lambda: image.adaptive_avg_pool2d(-1), InvalidArgument, "output_size is 0 or more"),
        (lambda: image[:, :, :0].adaptive_max_pool2d((2, 2)), ShapeMismatch, "no elements"),
        (lambda: image.to_dtype("i32").avg_pool2d(2), tl.UnsupportedDType, "avg_pool2d"),
        (lambda: image.to_dtype("i32").adaptive_avg_pool2d(1), tl.UnsupportedDType, "adaptive_avg_pool2d"),
    ]
    for call, error, message in calls:
        with pytest.raises(error, match=message):
            call()
