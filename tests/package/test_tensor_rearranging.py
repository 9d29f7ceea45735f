"""Elements at other places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow import Device, Tensor
from tallow.runtime.base.error import InvalidArgument, InvalidIndex, ShapeMismatch, TallowError

from .arrays import same
from .gradcheck import Gradcheck, like, rand

ARRAY = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def both(device: Device) -> Iterator[tuple[Tensor, np.ndarray]]:
    """A tensor and its array, as it is and transposed."""
    for dtype in ("f32", "i64", "u8"):
        tensor = Tensor(ARRAY, dtype, device)
        yield tensor, ARRAY.astype(tensor.dtype.numpy)
        yield tensor.transpose(0, 2), ARRAY.astype(tensor.dtype.numpy).transpose(2, 1, 0)


@pytest.mark.parametrize(
    ("shifts", "dims"), [(1, 0), (-2, 2), (7, None), ((1, -1), (0, 1)), ((1, 1), (1, 1)), (2**70, -1), ((), ()), (0, 1)]
)
def test_roll(device: Device, shifts: Any, dims: Any) -> None:
    for tensor, array in both(device):
        near = shifts % 12 if isinstance(shifts, int) and dims is not None else shifts
        same(tensor.roll(shifts, dims), np.roll(array, near, dims))
    same(Tensor.zeros((0, 2), device=device).roll(3, 0), np.zeros((0, 2), np.float32))


@pytest.mark.parametrize("times", [(2,), (2, 1, 3), (2, 1, 1, 2), (0, 1), ()])
def test_tile(device: Device, times: tuple[int, ...]) -> None:
    for tensor, array in both(device):
        same(tensor.tile(times), np.tile(array, times))


@pytest.mark.parametrize("dim", [None, 0, 1, -1])
def test_repeat_interleave(device: Device, dim: int | None) -> None:
    for tensor, array in both(device):
        for count in (0, 1, 3):
            same(tensor.repeat_interleave(count, dim), np.repeat(array, count, dim))


@pytest.mark.parametrize("dim", [None, 1])
def test_repeats_of_each_place(device: Device, dim: int | None) -> None:
    for tensor, array in both(device):
        counts = np.arange(array.size if dim is None else array.shape[dim]) % 3
        same(tensor.repeat_interleave(Tensor(counts, device=device), dim), np.repeat(array, counts, dim))
        same(tensor.repeat_interleave(Tensor([2], "u8", device), dim), np.repeat(array, 2, dim))
    same(Tensor.zeros((0, 2), device=device).repeat_interleave(Tensor([2], device=device), 0), np.zeros((0, 2), "f4"))


@pytest.mark.parametrize(("dim", "size", "step"), [(2, 2, 1), (1, 3, 2), (-1, 1, 3), (0, 2, 5), (1, 0, 1)])
def test_windows_are_views(device: Device, dim: int, size: int, step: int) -> None:
    for tensor, array in both(device):
        if size > array.shape[dim]:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(array, size, dim) if size else None
        if windows is None:
            assert tensor.unfold(dim, size, step).shape == (
                *array.shape[:dim],
                array.shape[dim] + 1,
                *array.shape[dim + 1 :],
                0,
            )
            continue
        indices = [slice(None)] * array.ndim
        indices[dim] = slice(None, None, step)
        result = tensor.unfold(dim, size, step)
        assert result.storage is tensor.storage
        same(result, windows[tuple(indices)])


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_diff(device: Device, dim: int) -> None:
    for tensor, array in both(device):
        for n in (0, 1, 2, 9):
            same(tensor.diff(n, dim), np.diff(array, n, dim))
        first, last = tensor.narrow(dim, 1, 1), tensor.narrow(dim, 0, 1)
        expected = np.diff(array, 1, dim, array.take([1], dim), array.take([0], dim))
        same(tensor.diff(1, dim, first, last), expected)


def test_take_along_dim(device: Device) -> None:
    generator = np.random.default_rng(0)
    for tensor, array in both(device):
        for dim, shape in ((0, (5, *array.shape[1:])), (1, (1, 2, 1)), (-1, (array.shape[0], 1, 3))):
            indexes = generator.integers(0, array.shape[dim], shape)
            same(tensor.take_along_dim(Tensor(indexes, device=device), dim), np.take_along_axis(array, indexes, dim))
        wide = np.arange(2)[:, None, None].repeat(4, 0)[: array.shape[0]]
        narrow = tensor[:1]
        same(narrow.take_along_dim(Tensor(wide, device=device), 1), np.take_along_axis(array[:1], wide, 1))
        flat = generator.integers(0, array.size, (2, 3))
        same(tensor.take_along_dim(Tensor(flat, device=device)), array.ravel()[flat.ravel()])


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_meshgrid(device: Device, indexing: Any) -> None:
    lines = [np.arange(count, dtype=np.float32) for count in (2, 3, 4)]
    for count in (0, 1, 2, 3):
        tensors = [Tensor(line, device=device) for line in lines[:count]]
        expected = np.meshgrid(*lines[:count], indexing=indexing)
        for inputs in (tl.meshgrid(*tensors, indexing=indexing), tl.meshgrid(tensors, indexing=indexing)):
            assert len(inputs) == count
            for actual, array in zip(inputs, expected, strict=True):
                same(actual, array)
    assert tl.meshgrid(Tensor(2.0), Tensor([3.0]))[0].shape == (1, 1)


GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "roll": lambda x: x.roll((1, -1), (0, 1)).sqr(),
    "tile": lambda x: x.tile(2, 1).sqr(),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1).sqr() * x.repeat_interleave(like(COUNTS, x), 1).sum(),
    "unfold": lambda x: x.unfold(1, 2, 1).sqr(),
    "diff": lambda x: x.diff(2, 1).sqr(),
    "take_along_dim": lambda x: x.take_along_dim(like(CHOSEN, x), 1).sqr(),
    "meshgrid": lambda x: tl.meshgrid(x[0], x[1])[0] * tl.meshgrid(x[0], x[1])[1].sqr(),
}
COUNTS = Tensor([2, 0, 1, 1])
CHOSEN = Tensor([[0, 3, 3]])


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str, gradcheck: Gradcheck) -> None:
    gradcheck(GRADIENTS[name], rand(2, 4))


REFUSED: dict[str, tuple[type[TallowError], Callable[[Tensor], object]]] = {
    "roll": (InvalidArgument, lambda x: x.roll((1, 2), (0,))),
    "tile": (InvalidArgument, lambda x: x.tile(-1)),
    "repeat_interleave": (InvalidArgument, lambda x: x.repeat_interleave(Tensor([1, -1, 2], device=x.device), 1)),
    "unfold": (InvalidArgument, lambda x: x.unfold(0, 3, 1)),
    "diff": (InvalidArgument, lambda x: x.diff(-1)),
    "take_along_dim": (ShapeMismatch, lambda x: x.take_along_dim(Tensor([0], device=x.device), 0)),
    "meshgrid": (InvalidArgument, lambda x: tl.meshgrid(x[0, 0], indexing="yx")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_name_what_was_called(device: Device, name: str) -> None:
    error, call = REFUSED[name]
    with pytest.raises(error) as caught:
        call(Tensor(ARRAY, device=device))
    assert caught.value.op == name


def test_an_index_out_of_range(device: Device) -> None:
    with pytest.raises(InvalidIndex):
        Tensor(ARRAY, device=device).take_along_dim(Tensor([[[9]]], device=device), 1)
        device.synchronize()
