"""Results are channels last where the image is: of elementwise calls, convolutions, pools and norms."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from tallow import Device, InvalidArgument, ShapeMismatch, TallowError, Tensor, Var, fuse, value_and_grad
from tallow.runtime.backends.gpu_backend.device import GpuDevice

from . import matrix
from .oracle.formats import NUMPY
from .test_broadcasting import DTYPES, Function, functions

SHAPE = (2, 3, 4, 5)
# They say that they give row-major order, or make, copy or write a tensor and compute nothing.
ROW_MAJOR = {
    *("Var", "astype", "bernoulli", "clip", "clone", "conj", "contiguous", "copy", "empty_like", "isin", "ones_like"),
    *("cpu", "cuda", "metal", "rocm", "to_device"),
    *("flip", "positive", "real", "roll", "stack", "tile", "write_npy", "zeros_like"),
}


def image(device: Device, dtype: str, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Tensor:
    """Small numbers above 0, no two neighbours of which are equal."""
    numbers = np.random.default_rng(seed).integers(1, 7, shape)
    return Tensor((numbers % 2 if dtype == "bool" else numbers).astype(NUMPY[dtype]), device=device)


def last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format="channels_last")


def shuffled(tensor: Tensor) -> Tensor:
    """The elements at other places, the same ones at each call."""
    array = tensor.numpy()
    order = np.random.default_rng(7).permutation(array.size)
    return Tensor(array.reshape(-1)[order].reshape(array.shape), device=tensor.device)


def called(function: Callable[..., Any], *operands: Tensor) -> Tensor | None:
    """The result of a call, if it is made and is one tensor of the shape of the first operand."""
    try:
        result = function(*operands)
    except (TallowError, TypeError):
        return None
    return result if isinstance(result, Tensor) and result.shape == operands[0].shape else None


@cache
def elementwise() -> dict[str, tuple[Function, str]]:
    """By name the calls with which moving the elements of all operands commutes, each with a dtype that it takes."""
    results = {}
    for function in functions():
        name = function.example.call.name
        if not function.arity or name.rpartition(".")[2] in ROW_MAJOR or re.search(r"_$|__i", name):
            continue
        for dtype in DTYPES:
            operands = [image(Device.cpu(), dtype, seed=seed) for seed in range(function.arity)]
            result = called(function, *operands)
            if result is None:
                continue
            other = called(function, *map(shuffled, operands))
            is_new = result.storage is not operands[0].storage
            if is_new and other is not None and np.array_equal(shuffled(result).numpy(), other.numpy(), True):
                results[name] = function, dtype
            break
    return results


def test_elementwise_calls_are_found() -> None:
    names = {f"Tensor.{name}" for name in ("exp", "add", "lt", "affine", "leaky_relu", "where")}
    assert names <= elementwise().keys()


@pytest.mark.parametrize("name", elementwise())
def test_elementwise_calls_keep_the_order(device: Device, name: str) -> None:
    function, dtype = elementwise()[name]
    if dtype not in matrix.dtypes_of(device.backend):
        pytest.skip("the backend lacks the dtype")
    operands = [image(device, dtype, seed=seed) for seed in range(function.arity)]
    expected, actual = called(function, *operands), called(function, *map(last, operands))
    if expected is None:
        pytest.skip("the backend lacks the dtype of the result")
    assert actual is not None
    np.testing.assert_array_equal(actual.numpy(), expected.numpy())
    assert actual.layout.is_channels_last, actual.layout


def networks() -> dict[str, tuple[tuple[int, ...], Callable[..., Tensor]]]:
    """By name the shape of an image, and what a network computes of it."""
    output: dict[str, tuple[tuple[int, ...], Callable[..., Tensor]]] = {}
    for name in sorted(dir(Tensor)):
        if result := re.fullmatch(r"(adaptive_)?(avg|max)_pool([123])d", name):
            shape = (2, 3, 6, 5, 4)[: int(result[3]) + 2]
            output[name] = shape, partial(lambda name, x: getattr(x, name)(2), name)
        elif result := re.fullmatch(r"conv(_transpose)?([123])d", name):
            shape = (2, 4, 6, 5, 4)[: int(result[2]) + 2]
            for groups in (1, 2, 4):
                output[f"{name} of {groups} groups"] = shape, partial(_convolved, name, groups)
    shape = (2, 4, 3, 5)
    output["batch_norm"] = shape, lambda x: x.batch_norm(training=True)
    output["group_norm"] = shape, lambda x: x.group_norm(2)
    output["batch_norm by running statistics"] = shape, _normed
    return output


def _convolved(name: str, groups: int, x: Tensor) -> Tensor:
    outer = (4, 4 // groups)
    kernel = Tensor(np.random.default_rng(1).standard_normal((*outer, *[2] * (x.rank - 2))), x.dtype, x.device)
    result: Tensor = getattr(x, name)(kernel, padding=1, stride=2, groups=groups, bias=kernel[:, 0].flatten(1)[:, 0])
    return result


def _normed(x: Tensor) -> Tensor:
    mean, variance, weight, bias = (image(x.device, "f32", (4,), seed).to_dtype(x.dtype) for seed in range(4))
    return x.batch_norm(mean, variance, weight, bias)


@pytest.mark.parametrize("name", networks())
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_networks_keep_the_order(device: Device, dtype: str, name: str) -> None:
    if dtype not in matrix.dtypes_of(device.backend):
        pytest.skip("the backend lacks the dtype")
    shape, function = networks()[name]
    array = np.random.default_rng(0).standard_normal(shape)
    results = []
    for change in (Tensor.contiguous, last):
        variable = Var(Tensor(array, dtype, device))
        x = change(variable)
        result = function(x)
        assert result.layout.is_channels_last == (change is last), (name, result.layout)
        gradient = change(Tensor(np.random.default_rng(2).standard_normal(result.shape), dtype, device))
        results.append((result.numpy(), result.backward(gradient)[variable].numpy()))
    bound = 1e-5 if dtype == "f32" else 2e-2
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one.astype(float), other.astype(float), bound, bound)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("size", "stride", "dilation"), [(3, 1, 1), (5, 2, 1), (3, 1, 2)])
def test_depthwise_convolutions_on_gpus_have_the_same_bits_in_both_orders(
    device: Device, dtype: str, size: int, stride: int, dilation: int
) -> None:
    if not isinstance(device.inner, GpuDevice):
        pytest.skip("libraries for the CPU add up each order in their own way")
    generator = np.random.default_rng(0)
    array, weights = generator.standard_normal((2, 24, 9, 7)), generator.standard_normal((24, 1, size, size))
    array[0, 0, 0, 0] = np.inf
    results = []
    for change in (Tensor.contiguous, last):
        variable = Var(Tensor(array, dtype, device))
        kernel = Tensor(weights, dtype, device)
        result = change(variable).conv2d(kernel, padding=size // 2, stride=stride, dilation=dilation, groups=24)
        gradient = change(Tensor(np.random.default_rng(1).standard_normal(result.shape), dtype, device))
        results.append((result.numpy(), result.backward(gradient)[variable].numpy()))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_other_formats_are_refused(device: Device) -> None:
    with pytest.raises(InvalidArgument, match="memory_format"):
        Tensor.zeros((1, 2, 3), device=device).contiguous(memory_format="channels_first")
    with pytest.raises(ShapeMismatch, match="3 to 5 dims"):
        last(Tensor.zeros((2, 3), device=device))


def scaled(x: Tensor, residual: Tensor, scale: Tensor) -> Tensor:
    """An affine map of each channel, with dims of size 1 in the vector of them."""
    scale = scale.reshape(1, -1, 1, 1)
    return (x * (scale * scale) + residual - 1).silu()


def permuted(x: Tensor, residual: Tensor, scale: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).exp() * scale + residual.permute(0, 2, 3, 1)


def rows(x: Tensor, residual: Tensor, scale: Tensor) -> Tensor:
    return (x + residual).softmax(1) * scale.reshape(-1, 1, 1)


@pytest.mark.parametrize("function", [scaled, permuted, rows])
@pytest.mark.parametrize("are_last", [(False, False), (True, False), (False, True), (True, True)])
def test_fused_functions_keep_what_their_ops_keep(
    device: Device, function: Callable[..., Tensor], are_last: tuple[bool, bool]
) -> None:
    operands = [image(device, "f32", seed=seed) / 7 for seed in (1, 2)]
    operands = [last(operand) if is_last else operand for operand, is_last in zip(operands, are_last, strict=True)]
    operands.append(image(device, "f32", (SHAPE[1],)) / 7)
    fused = fuse(function)
    expected = function(*operands)
    for _ in range(2):  # the second runs a plan
        result = fused(*operands)
        np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-6)
        assert result.layout == expected.layout or function is rows

    def loss(function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
        return function(*operands).sqr().sum()

    pairs = zip(*[value_and_grad(partial(loss, each))(*operands)[1] for each in (fused, function)], strict=True)
    for gradient, reference in pairs:
        np.testing.assert_allclose(gradient.numpy(), reference.numpy(), rtol=1e-5, atol=1e-6)


def test_kernels_convolve_to_the_same_bits_in_either_order(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(type(device.inner), "miopen"):
        pytest.skip("only kernels of GPUs promise that")
    monkeypatch.setattr(type(device.inner), "miopen", None)
    device.inner.plans.clear()
    draw = np.random.default_rng(0).standard_normal
    x, kernel = (Tensor(draw(shape).astype("f4"), device=device) for shape in ((2, 20, 7, 9), (24, 20, 3, 3)))
    actual = []
    for order in (Tensor.contiguous, last):
        operands = Var(order(x)), Var(order(kernel))
        result = operands[0].conv2d(operands[1], padding=1, stride=2)
        grads = result.backward(
            order(Tensor(np.cos(np.arange(result.numel(), dtype="f4")).reshape(result.shape), device=device))
        )
        actual.append([array.numpy().tobytes() for array in (result, *(grads[operand] for operand in operands))])
    device.inner.plans.clear()
    assert actual[0] == actual[1]
