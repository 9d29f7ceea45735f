"""New tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tallow import Device, DType, InvalidArgument, OutOfMemory, Tensor, UnsupportedDType

from .arrays import FLOATS, same


@pytest.mark.parametrize("dtype", DType)
def test_constants(device: Device, dtype: DType) -> None:
    same(Tensor.zeros((2, 3), dtype, device), np.zeros((2, 3), dtype.numpy))
    same(Tensor.ones((), dtype, device), np.ones((), dtype.numpy))
    same(Tensor.full(3, 7, dtype, device), np.full(3, 7, np.int64).astype(dtype.numpy))
    like = Tensor.zeros((2, 2), dtype, device).ones_like()
    same(like.T.zeros_like(), np.zeros((2, 2), dtype.numpy))
    assert like.device == device


def test_dtypes_follow_the_numbers(device: Device) -> None:
    assert Tensor.full(2, 7, device=device).dtype is DType.I64
    assert Tensor.full(2, 7.0, device=device).dtype is DType.F32
    same(Tensor.arange(4, device=device), np.arange(4))
    same(Tensor.arange(1, 2, 0.25, device=device), np.arange(1, 2, 0.25, np.float32))
    same(Tensor.arange(5, 0, -2, DType.F64, device), np.array([5.0, 3.0, 1.0]))
    same(Tensor.arange(3, dtype=DType.U8, device=device), np.arange(3, dtype=np.uint8))
    same(Tensor.full(1, np.int64(2**53 + 1), device=device), np.array([2**53 + 1]))
    same(Tensor.full(1, np.float64(0.5), device=device), np.array([0.5], np.float32))
    same(Tensor.arange(np.int64(3), device=device), np.arange(3))
    same(Tensor.arange(2**63 - 3, 2**63, device=device), np.arange(3) + (2**63 - 3))
    same(Tensor.arange(-(2**63), 2**63, 2**62, device=device), np.arange(-2, 2) * 2**62)
    same(Tensor.arange(5, 0, device=device), np.arange(0))
    same(Tensor.arange(5.0, 0, device=device), np.zeros(0, np.float32))


@pytest.mark.parametrize(
    ("numbers", "error", "message"),
    [
        ((0, 3, 0), InvalidArgument, "step is not 0"),
        ((0, math.nan), InvalidArgument, "are finite"),
        ((0, math.inf), InvalidArgument, "are finite"),
        ((0, 1, 1e-320), InvalidArgument, "are finite"),
        ((0, 1.0, 10**400), InvalidArgument, "beyond the range of floating point"),
        ((2**63, 2**63 + 3), InvalidArgument, "range of i64"),
        (("a",), InvalidArgument, "a Python number, not a str"),
        ((0, 1e30), OutOfMemory, "no memory for"),
        ((2**62,), OutOfMemory, "no memory for"),
    ],
)
def test_ranges_that_do_not_exist(numbers: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Tensor.arange(*numbers)


def test_one_size_is_a_shape() -> None:
    for size in (3, np.int64(3), np.uint8(3)):
        assert Tensor.zeros(size).shape == (3,)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", FLOATS)
def test_random_numbers(device: Device, dtype: DType) -> None:
    device.set_seed(7)
    first = Tensor.rand((4, 25), -1.0, 1.0, dtype, device)
    second = Tensor.rand((4, 25), -1.0, 1.0, dtype, device)
    device.set_seed(7)
    same(Tensor.rand(100, -1.0, 1.0, dtype, device), first.numpy().reshape(100))
    values = first.numpy().astype(np.float64)
    assert values.min() >= -1
    assert values.max() < 1
    assert not np.array_equal(values, second.numpy().astype(np.float64))
    normal = Tensor.randn(1000, 10.0, 0.5, dtype, device).numpy().astype(np.float64)
    assert abs(normal.mean() - 10) < 0.1
    same(Tensor.randn(3, 2.0, 0.0, dtype, device), np.full(3, 2.0).astype(dtype.numpy))


def test_random_numbers_that_do_not_exist(device: Device) -> None:
    with pytest.raises(UnsupportedDType, match="draw in f32"):
        Tensor.rand(3, dtype=DType.I32, device=device)
    with pytest.raises(InvalidArgument, match="lo is below up"):
        Tensor.rand(3, 1.0, 1.0, device=device)
    with pytest.raises(InvalidArgument, match="std is finite and 0 or more"):
        Tensor.randn(3, 0.0, -1.0, device=device)
    with pytest.raises(InvalidArgument, match="mean is finite"):
        Tensor.randn(3, math.inf, device=device)


@pytest.mark.parametrize("shape", [(1 << 60,), (1 << 61,), (1 << 62, 4), (1 << 100,)])
def test_more_elements_than_there_is_room_for(device: Device, shape: tuple[int, ...]) -> None:
    """Also more than the memory of any machine could be counted in."""
    message = f"no memory for {8 * math.prod(shape)} bytes"
    makers: tuple[Callable[..., Tensor], ...] = (Tensor.zeros, Tensor.ones, Tensor.rand, Tensor.randn)
    for make in makers:
        with pytest.raises(OutOfMemory, match=message):
            make(shape, dtype=DType.F64, device=device)


@pytest.mark.parametrize("shape", [-1, (2, -1), (1,) * 9, (1.5,), 1.5, "ab"])
def test_shapes_that_do_not_exist(shape: object) -> None:
    with pytest.raises(InvalidArgument):
        Tensor.zeros(shape)  # type: ignore[arg-type]
