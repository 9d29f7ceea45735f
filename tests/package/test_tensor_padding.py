"""Padded tensors, and convolutions and pools whose padding differs from side to side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tallow import Device, DType, Tensor
from tallow.runtime.base.error import InvalidArgument, ShapeMismatch

from .arrays import numbers, same
from .gradcheck import Gradcheck, rand


@pytest.mark.parametrize(("left", "right"), [(0, 0), (2, 0), (0, 1), (1, 3)])
def test_pad_with_same(device: Device, left: int, right: int) -> None:
    array = numbers((2, 3, 4))
    tensor = Tensor(array, device=device)
    same(tensor.pad_with_same(1, left, right), np.pad(array, [(0, 0), (left, right), (0, 0)], "edge"))
    same(tensor.T.pad_with_same(-1, left, right), np.pad(array.T, [(0, 0), (0, 0), (left, right)], "edge"))
    with pytest.raises(InvalidArgument, match="pad_with_same"):
        tensor[:0].pad_with_same(0, 1, 0)


MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "padding", [[], [(0, 0)], [(1, 2)], [(2, 1), (0, 2)], [(0, 3), (0, 0)], [(1, 1), (2, 0), (0, 3)]]
)
@pytest.mark.parametrize("dtype", [DType.F32, DType.I16])
def test_pad(device: Device, mode: str, padding: list[tuple[int, int]], dtype: DType) -> None:
    array = numbers((4, 8, 4), dtype)
    tensor = Tensor(array, device=device)
    for x, view in ((tensor, array), (tensor[:, ::2].permute(2, 1, 0), array[:, ::2].transpose(2, 1, 0))):
        around = [(0, 0)] * (3 - len(padding)) + padding
        same(x.pad(padding, mode), np.pad(view, around, MODES[mode]))
    same(tensor.pad(padding, value=-3), np.pad(array, around, constant_values=-3))


def test_pad_refuses(device: Device) -> None:
    x = Tensor.zeros((2, 3), device=device)
    for reason, padding, options in (
        ("a pair of integers for each", 1, {}),
        ("a pair of integers for each", [1, 2], {}),
        ("0 or more, not 1 and -1", [(1, -1)], {}),
        ("3 pairs, more than the 2 dims", [(1, 1)] * 3, {}),
        ("mode is 'constant'", [(1, 1)], {"mode": "edge"}),
        ("only mode 'constant' takes a value", [(1, 1)], {"mode": "reflect", "value": 1}),
        ("needs 4 elements, and dim 1 has 3", [(3, 0)], {"mode": "reflect"}),
        ("needs 4 elements, and dim 1 has 3", [(0, 4)], {"mode": "circular"}),
    ):
        with pytest.raises(InvalidArgument, match=reason):
            x.pad(padding, **options)


@pytest.mark.parametrize("padding", [(2, 1), (0, 3), (1, 1), 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_of_lines(device: Device, padding: Any, groups: int) -> None:
    x, kernel, bias = numbers((2, 4, 6)), numbers((6, 4 // groups, 3), seed=1), numbers((6,), seed=2)
    ends = padding if isinstance(padding, tuple) else (padding, padding)
    line, weights, added = (Tensor(array, device=device) for array in (x, kernel, bias))
    padded = Tensor(np.pad(x, [(0, 0), (0, 0), ends]), device=device)
    plain = padded.conv1d(weights, 0, 2, 1, groups).numpy()
    same(line.conv1d(weights, padding, 2, 1, groups), plain)
    same(line.conv1d(weights, [padding], 2, 1, groups), plain)
    same(line.conv1d(weights, padding, 2, 1, groups, added), plain + bias[:, None])


@pytest.mark.parametrize("padding", [(2, 1), ((0, 3), (1, 1)), ((1, 2), 3), (1, 1), 2])
def test_convolutions_of_images(device: Device, padding: Any) -> None:
    x, kernel, bias = numbers((2, 3, 4, 5)), numbers((2, 3, 2, 3), seed=1), numbers((2,), seed=2)
    pairs = padding if isinstance(padding, tuple) else (padding, padding)
    ends = [pair if isinstance(pair, tuple) else (pair, pair) for pair in pairs]
    image, weights, added = (Tensor(array, device=device) for array in (x, kernel, bias))
    plain = Tensor(np.pad(x, [(0, 0), (0, 0), *ends]), device=device).conv2d(weights).numpy()
    same(image.conv2d(weights, padding), plain)
    same(image.conv2d(weights, padding, bias=added), plain + bias[:, None, None])


def test_biases_of_transposed_convolutions(device: Device) -> None:
    bias = numbers((2,), seed=2)
    for name, shape in (("conv_transpose1d", (4,)), ("conv_transpose2d", (4, 5))):
        x = Tensor(numbers((2, 3, *shape)), device=device)
        kernel = Tensor(numbers((3, 2, *[3] * len(shape)), seed=1), device=device)
        plain = getattr(x, name)(kernel).numpy()
        result = getattr(x, name)(kernel, bias=Tensor(bias, device=device))
        same(result, plain + bias.reshape(-1, *[1] * len(shape)))


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.F8E4M3, DType.I32, DType.U8])
def test_pools(device: Device, dtype: DType) -> None:
    x = numbers((1, 2, 5, 6), dtype)
    image, around = Tensor(x, device=device), [(0, 0), (0, 0), (1, 1), (2, 2)]
    lowest = -np.inf if dtype in (DType.F32, DType.F16) else -448 if dtype.is_float else np.iinfo(x.dtype).min
    padded = Tensor(np.pad(x.astype(np.float64), around, constant_values=lowest), dtype, device)
    same(image.max_pool2d((2, 4), 2, (1, 2)), padded.max_pool2d((2, 4), 2).numpy())
    if dtype.is_float:
        zeros = Tensor(np.pad(x.astype(np.float64), around), dtype, device)
        same(image.avg_pool2d((2, 4), (2, 1), (1, 2)), zeros.avg_pool2d((2, 4), (2, 1)).numpy())
    with pytest.raises(InvalidArgument, match="padding is from 0 to half"):
        image.max_pool2d(3, padding=2)


def test_gradients(gradcheck: Gradcheck) -> None:
    x, kernel, bias = rand(1, 2, 3, 4), rand(2, 2, 2, 2, seed=1), rand(2, seed=2)
    gradcheck(lambda x, k, b: x.conv2d(k, ((1, 0), (0, 2)), bias=b), x, kernel, bias, second=False)
    gradcheck(lambda x, k: x[:, :, 0].conv1d(k[:, :, 0], (2, 1)), x, kernel)
    gradcheck(lambda x: x.max_pool2d(2, 1, 1) + x.avg_pool2d(2, 1, 1), x, second=False)
    gradcheck(lambda x: x.pad_with_same(1, 2, 1).sqr(), x)
    for mode in MODES:
        gradcheck(lambda x, mode=mode: x.pad([(2, 1), (0, 2)], mode).sqr(), x)


def test_what_does_not_fit(device: Device) -> None:
    image, kernel = Tensor.zeros((1, 2, 3, 4), device=device), Tensor.zeros((2, 2, 2, 2), device=device)
    with pytest.raises(InvalidArgument, match="conv2d: padding has 2 dims, not 3"):
        image.conv2d(kernel, (1, 2, 3))
    with pytest.raises(ShapeMismatch, match="the bias is a vector of 2 elements"):
        image.conv2d(kernel, bias=Tensor.zeros(3, device=device))
    # Equal to an integer for a cache, but none.
    image.conv2d(kernel, 1, 1, 1, 1)
    for changed in (
        {"padding": 1.0},
        {"padding": ((1.0, 1), 1)},
        {"stride": 1.0},
        {"dilation": (1, 1.0)},
        {"groups": 1.0},
    ):
        with pytest.raises(InvalidArgument, match=rf"conv2d: .*{next(iter(changed))} must be an integer, not 1\.0"):
            image.conv2d(kernel, **{"padding": 1, **changed})


def test_arrays_of_steps(device: Device) -> None:
    image, line = Tensor.ones((1, 2, 3, 4), device=device), Tensor.ones((1, 2, 4), device=device)
    kernel = Tensor.ones((2, 2, 2, 2), device=device)
    actual = image.conv2d(kernel, np.array([[1, 0], [2, 1]]), np.array([1, 2]), np.int64(1), np.array(1))
    assert actual.tolist() == image.conv2d(kernel, ((1, 0), (2, 1)), (1, 2)).tolist()
    assert line.conv1d(kernel[0], np.array([1, 2])).tolist() == line.conv1d(kernel[0], (1, 2)).tolist()
