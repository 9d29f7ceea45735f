"""Tensor methods that are made of others: what NumPy gives, on views too."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tallow import Device, DType, InvalidArgument, ShapeMismatch, TallowError, Tensor, UnsupportedDType

from .arrays import numbers, same

ARRAY = numbers((3, 4, 5))


def both(device: Device) -> list[tuple[Tensor, np.ndarray]]:
    """A whole tensor and views of it, each with its NumPy array."""
    tensor = Tensor(ARRAY, device=device)
    return [(tensor, ARRAY), (tensor.permute(2, 0, 1), ARRAY.transpose(2, 0, 1)), (tensor[1:, ::2], ARRAY[1:, ::2])]


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cumsum(device: Device, dim: int) -> None:
    for tensor, array in both(device):
        same(tensor.cumsum(dim), np.cumsum(array, axis=dim))
        same(tensor.cumprod(dim), np.cumprod(array, axis=dim, dtype=array.dtype))


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_and_topk(device: Device, dim: int, descending: bool) -> None:
    for tensor, array in both(device):
        expected = np.argsort(-array if descending else array, axis=dim, kind="stable")
        ordered = np.take_along_axis(array, expected, dim)
        same(tensor.argsort(dim, descending), expected.astype(np.uint32))
        for actual, full in zip(tensor.sort(dim, descending), (ordered, expected.astype(np.uint32)), strict=True):
            same(actual, full)
        for count in (0, 1, 2):
            values, positions = tensor.topk(count, dim, largest=descending)
            same(values, np.take(ordered, range(count), axis=dim))
            same(positions, np.take(expected, range(count), axis=dim).astype(np.uint32))


def test_nan_comes_last_and_equal_elements_keep_their_order(device: Device) -> None:
    x = Tensor([np.nan, 1.0, -0.0, np.inf, 0.0, -np.inf, np.nan, 1.0], device=device)
    assert x.argsort().tolist() == [5, 2, 4, 1, 7, 3, 0, 6]
    assert x.argsort(descending=True).tolist() == [3, 1, 7, 2, 4, 5, 0, 6]
    values, positions = x.topk(7)
    assert positions.tolist() == [3, 1, 7, 2, 4, 5, 0]
    assert np.isnan(values.numpy()[-1])
    assert np.array_equal(np.signbit(values.numpy()[3:5]), [True, False])


@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("correction", [0, 1])
def test_var_and_std(device: Device, dim: int | tuple[int, ...] | None, correction: int) -> None:
    for tensor, array in both(device):
        wide = array.astype(np.float64)
        for keepdim in (False, True):
            actual = tensor.var(dim, keepdim, correction).numpy()
            expected = wide.var(axis=dim, keepdims=keepdim, ddof=correction)
            np.testing.assert_allclose(actual, expected, 1e-5, strict=False)
            assert actual.shape == expected.shape
            np.testing.assert_allclose(tensor.std(dim, keepdim, correction).numpy(), np.sqrt(expected), 1e-5)


def test_the_variance_of_halves_is_computed_in_f32(device: Device) -> None:
    # In f16 the mean would be off by 0.25, and the squares would be beyond its range.
    tensor = Tensor([1000.0, 1001.0, 1000.0, 1001.0, 2000.0, 3000.0], DType.F16, device)
    expected = np.array([1000, 1001, 1000, 1001, 2000, 3000]).std(ddof=1)
    assert tensor.std().dtype is DType.F16
    assert abs(tensor.std().item() - expected) <= 0.5
    assert tensor[:4].var(correction=0).item() == 0.25


def test_the_deviation_of_small_halves_keeps_its_digits(device: Device) -> None:
    """The variance is far below the least number of f16."""
    x = Tensor([1e-4, 3e-4], DType.F16, device)
    assert abs(x.std(correction=0).item() / 1e-4 - 1) < 1e-3


def test_the_variance_of_too_few_elements_is_nan(device: Device) -> None:
    assert np.isnan(Tensor([2.0], device=device).var().item())
    assert np.isnan(Tensor.zeros(0, device=device).std().item())
    assert Tensor([2.0], device=device).var(correction=0).item() == 0


def test_norm(device: Device) -> None:
    assert Tensor([3.0, 4.0], device=device).norm().item() == 5
    for tensor, array in both(device):
        np.testing.assert_allclose(tensor.norm(1).numpy(), np.linalg.norm(array, axis=1), 1e-6)


@pytest.mark.parametrize("diagonal", [-(2**70), -9, -4, -1, 0, 1, 3, 9, 2**70])
def test_tril_and_triu(device: Device, diagonal: int) -> None:
    near = max(min(diagonal, 99), -99)
    for tensor, array in both(device):
        same(tensor.tril(diagonal), np.tril(array, near))
        same(tensor.triu(diagonal), np.triu(array, near))


def test_what_a_triangle_leaves_out_is_0_even_of_nan(device: Device) -> None:
    same(Tensor([[1.0, np.nan], [np.inf, 2.0]], device=device).tril().triu(), np.array([[1, 0], [0, 2]], np.float32))


@pytest.mark.parametrize("times", [(1, 1, 1), (2, 1, 3), (2, 3, 1, 2), (0, 1, 1), (1, 1, 1, 1, 1)])
def test_repeat(device: Device, times: tuple[int, ...]) -> None:
    for tensor, array in both(device):
        same(tensor.repeat(*times), np.tile(array, times))
        same(tensor.repeat(times), np.tile(array, times))


def test_repeat_gives_a_copy(device: Device) -> None:
    tensor = Tensor([1.0, 2.0], device=device)
    tensor.repeat(1).zero_()
    same(tensor, np.array([1, 2], np.float32))
    same(Tensor(5.0, device=device).repeat(3), np.full(3, 5, np.float32))
    deep = Tensor(np.arange(16.0, dtype=np.float32).reshape((2, 1) * 4), device=device)
    same(deep.repeat((1, 2) * 4), np.tile(deep.numpy(), (1, 2) * 4))


@pytest.mark.parametrize(("chunks", "sizes"), [(1, [5]), (2, [3, 2]), (3, [2, 2, 1]), (5, [1] * 5), (9, [1] * 5)])
def test_chunks_are_views(device: Device, chunks: int, sizes: list[int]) -> None:
    tensor = Tensor(ARRAY, device=device)
    parts = tensor.chunk(chunks, -1)
    assert [part.shape[-1] for part in parts] == sizes
    assert all(part.storage is tensor.storage for part in parts)
    same(parts[-1], ARRAY[..., -sizes[-1] :])
    assert Tensor.zeros((0, 2), device=device).chunk(3) == []


@pytest.mark.parametrize("dims", [(), (0,), (-1,), (0, 2), (2, 1, 0)])
def test_flip(device: Device, dims: tuple[int, ...]) -> None:
    for tensor, array in both(device):
        same(tensor.flip(dims), np.flip(array, dims))
    same(Tensor.zeros((0, 2), device=device).flip(0, 1), np.zeros((0, 2), np.float32))


@pytest.mark.parametrize(("left", "right"), [(0, 0), (2, 0), (0, 1), (1, 3)])
def test_pad_with_zeros(device: Device, left: int, right: int) -> None:
    for tensor, array in both(device):
        same(tensor.pad_with_zeros(1, left, right), np.pad(array, [(0, 0), (left, right), (0, 0)]))


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.I64, DType.U8])
def test_eye(device: Device, dtype: DType) -> None:
    for rows, columns in ((3, 3), (2, 4), (4, 2), (1, 1), (0, 3), (3, 0)):
        same(Tensor.eye(rows, columns, dtype, device), np.eye(rows, columns).astype(dtype.numpy))
    same(Tensor.eye(3, dtype=dtype, device=device), np.eye(3).astype(dtype.numpy))


def test_linspace(device: Device) -> None:
    for start, stop, count in ((0, 1, 11), (-3, 2.5, 7), (5, 5, 3), (2, -2, 1000), (1, 9, 1), (1, 9, 0), (0, 0.1, 2)):
        actual = Tensor.linspace(start, stop, count, "f64", device).numpy()
        np.testing.assert_allclose(actual, np.linspace(start, stop, count), 1e-15, 1e-15)
        assert count < 2 or (actual[0], actual[-1]) == (start, stop)
    assert Tensor.linspace(0, 1, 3, device=device).dtype is DType.F32


REFUSED: dict[str, tuple[type[TallowError], Callable[[Tensor], object]]] = {
    "tril": (ShapeMismatch, lambda x: x[0, 0].tril()),
    "triu": (ShapeMismatch, lambda x: x[0, 0].triu()),
    "repeat": (InvalidArgument, lambda x: x.repeat(2)),
    "chunk": (InvalidArgument, lambda x: x.chunk(0)),
    "flip": (InvalidArgument, lambda x: x.flip(3)),
    "pad_with_zeros": (InvalidArgument, lambda x: x.pad_with_zeros(0, -1, 0)),
    "cumsum": (InvalidArgument, lambda x: x.cumsum(3)),
    "cumprod": (InvalidArgument, lambda x: x.cumprod(3)),
    "argsort": (InvalidArgument, lambda x: x.argsort(3)),
    "sort": (InvalidArgument, lambda x: x.sort(descending=1)),
    "topk": (InvalidArgument, lambda x: x.topk(9)),
    "var": (UnsupportedDType, lambda x: x.to_dtype("i32").var()),
    "std": (InvalidArgument, lambda x: x.std(axis=9)),
    "eye": (InvalidArgument, lambda x: x.eye(-1)),
    "linspace": (UnsupportedDType, lambda x: x.linspace(0, 1, 3, "i32")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_name_what_was_called(device: Device, name: str) -> None:
    error, call = REFUSED[name]
    with pytest.raises(error) as caught:
        call(Tensor(ARRAY, device=device))
    assert caught.value.op == name
