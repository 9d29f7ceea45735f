"""Different elements and their numbers, and places in order, against NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tallow import Device, Tensor
from tallow.runtime.base.error import InvalidArgument, ShapeMismatch, TallowError, UnsupportedDType

from .arrays import same


@pytest.mark.parametrize("dtype", ["f32", "i64", "u8", "f16"])
@pytest.mark.parametrize("shape", [(40,), (5, 8), (1,), (), (0,), (2, 0)])
def test_unique(device: Device, dtype: str, shape: tuple[int, ...]) -> None:
    tensor = Tensor(np.random.default_rng(0).integers(0, 9, shape), dtype, device)
    for view in (tensor, tensor.T):
        expected = np.unique(view.numpy(), return_index=True, return_inverse=True, return_counts=True)
        actual = view.unique(True, True, True)
        assert isinstance(actual, tuple)
        for one, other in zip(actual, expected, strict=True):
            same(one, other)
        same(view.unique(), expected[0])  # type: ignore[arg-type]
        values, counts = view.unique(return_counts=True)
        same(values, expected[0])
        same(counts, expected[3])


def test_each_nan_is_different_and_zeros_are_equal(device: Device) -> None:
    values, inverse, counts = Tensor([0.0, np.nan, -0.0, 1.0, np.nan], device=device).unique(False, True, True)
    same(values, np.array([0, 1, np.nan, np.nan], np.float32))
    assert counts.tolist() == [2, 1, 1, 1]
    assert inverse.tolist() == [0, 2, 0, 1, 3]


@pytest.mark.parametrize("dtype", ["i64", "u8", "i16"])
def test_bincount(device: Device, dtype: str) -> None:
    numbers = np.array([3, 0, 3, 9, 1])
    tensor, weights = Tensor(numbers, dtype, device), np.array([1, 2, 0.5, -4, 1], np.float32)
    same(tensor.bincount(), np.bincount(numbers))
    same(tensor.bincount(minlength=12), np.bincount(numbers, minlength=12))
    same(tensor.bincount(Tensor(weights, device=device)), np.bincount(numbers, weights).astype(np.float32))
    same(tensor[:0].bincount(), np.bincount([]))
    same(tensor[:0].bincount(minlength=2), np.bincount([], minlength=2))


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(device: Device, side: str) -> None:
    line, values = np.array([1, 2, 2, 5, np.inf], np.float32), np.array([[2, 0.5, 9], [np.nan, 5, np.inf]], np.float32)
    ordered = Tensor(line, device=device)
    same(ordered.searchsorted(Tensor(values, device=device), side), np.searchsorted(line, values, side))
    same(ordered.searchsorted(2, side), np.asarray(np.searchsorted(line, 2, side)))
    result = ordered.broadcast_as(2, 5).searchsorted(Tensor(values, device=device), side)
    same(result, np.searchsorted(line, values, side))


REFUSED: dict[str, tuple[type[TallowError], Callable[[Tensor], object]]] = {
    "unique": (InvalidArgument, lambda x: x.unique(1)),
    "bincount": (InvalidArgument, lambda x: (x - 1).bincount()),
    "searchsorted": (InvalidArgument, lambda x: x.searchsorted(x, "up")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_name_what_was_called(device: Device, name: str) -> None:
    error, call = REFUSED[name]
    with pytest.raises(error) as caught:
        call(Tensor([0, 1, 2], device=device))
    assert caught.value.op == name


def test_what_is_counted(device: Device) -> None:
    with pytest.raises(ShapeMismatch):
        Tensor([[1]], device=device).bincount()
    with pytest.raises(UnsupportedDType):
        Tensor([1.0], device=device).bincount()
