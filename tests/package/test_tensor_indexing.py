"""Ops that take tensors of indexes, and joins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tallow
from tallow import (
    Device,
    DType,
    DTypeMismatch,
    InvalidArgument,
    InvalidIndex,
    ShapeMismatch,
    Tensor,
    UnsupportedDType,
    cat,
    stack,
)
from tallow.runtime.storage.calls import MAX_JOINED
from tallow.runtime.tensor.shape import joining

from .arrays import numbers, same

ARRAY = numbers((2, 3, 4))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather(device: Device, dim: int) -> None:
    indexes = np.zeros((2, 2, 3), np.int64) + np.arange(2)[:, None, None]
    result = Tensor(ARRAY, device=device).gather(Tensor(indexes, device=device), dim)
    narrowed = tuple(slice(None) if axis == dim % 3 else slice(size) for axis, size in enumerate(indexes.shape))
    same(result, np.take_along_axis(ARRAY[narrowed], indexes, dim))


def test_index_select_and_its_mark_for_no_row(device: Device) -> None:
    indexes = Tensor([2, 0, 2, 2**63 - 1], device=device)
    result = Tensor(ARRAY, device=device).index_select(indexes, -2)
    same(result, np.concatenate([ARRAY[:, [2, 0, 2]], np.zeros((2, 1, 4), np.float32)], 1))


def test_scatters(device: Device) -> None:
    tensor = Tensor.zeros((2, 3), device=device)
    indexes = Tensor([[0, 0], [2, 1]], DType.U8, device)
    source = Tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    same(tensor.scatter(indexes, source, 1), np.array([[2, 0, 0], [0, 4, 3]], np.float32))
    same(tensor.scatter_add(indexes, source, 1), np.array([[3, 0, 0], [0, 4, 3]], np.float32))
    same(tensor, np.zeros((2, 3), np.float32))
    view = tensor.T
    assert view.scatter_(indexes.T, source.T, 0) is view
    same(tensor, np.array([[2, 0, 0], [0, 4, 3]], np.float32))
    view.scatter_add_(indexes.T, source.T, 0)
    same(tensor, np.array([[5, 0, 0], [0, 8, 6]], np.float32))
    # A copy is written where the tensor has one element in several places.
    same(
        Tensor.zeros((1, 3), device=device).broadcast_as(2, 3).scatter(indexes, source, 1)[0],
        np.array([2, 0, 0], np.float32),
    )
    with pytest.raises(InvalidArgument, match="contiguous"):
        Tensor.zeros((1, 3), device=device).broadcast_as(2, 3).scatter_(indexes, source, 1)


def test_index_add(device: Device) -> None:
    source = numbers((2, 4, 4), seed=1)
    indexes = np.array([1, 0, 1, 1], np.int32)
    expected = ARRAY.copy()
    for row, index in enumerate(indexes):
        expected[:, index] += source[:, row]
    tensor = Tensor(ARRAY, device=device)
    same(tensor.index_add(Tensor(indexes, device=device), Tensor(source, device=device), 1), expected)


def test_indexes_that_do_not_fit(device: Device) -> None:
    tensor = Tensor(ARRAY, device=device)
    with pytest.raises(InvalidIndex, match="index 3"):
        tensor.index_select(Tensor([3], device=device), 1).numpy()
    with pytest.raises(InvalidIndex, match="index -1"):
        tensor.index_select(Tensor([-1], device=device), 1).numpy()
    with pytest.raises(ShapeMismatch, match="rank 1; flatten"):
        tensor.index_select(Tensor([[0]], device=device), 1)
    with pytest.raises(ShapeMismatch, match="at most its size"):
        tensor.gather(Tensor.zeros((3, 1, 1), dtype=DType.I64, device=device), 1)
    with pytest.raises(ShapeMismatch, match="shape of the indexes"):
        indexes = Tensor.zeros((1, 1, 1), dtype=DType.I64, device=device)
        tensor.scatter(indexes, Tensor.zeros((1, 1, 2), device=device), 1)
    with pytest.raises(ShapeMismatch, match=r"need a source of shape \(2, 1, 4\)"):
        tensor.index_add(Tensor([0], device=device), tensor, 1)
    with pytest.raises(UnsupportedDType, match="indexes have an integer dtype"):
        tensor.gather(tensor, 1)
    with pytest.raises(InvalidArgument, match="dim 3 does not exist"):
        tensor.gather(tensor, 3)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cat_joins_any_layouts(device: Device, dim: int) -> None:
    arrays = [ARRAY, numbers((4, 3, 2), seed=1).transpose(2, 1, 0), ARRAY[::1, :, ::1][:, ::1]]
    tensors = [
        Tensor(ARRAY, device=device),
        Tensor(numbers((4, 3, 2), seed=1), device=device).transpose(0, 2),
        Tensor(np.repeat(ARRAY, 2, 2), device=device)[..., ::2],
    ]
    same(cat(tensors, dim), np.concatenate(arrays, dim))
    same(stack(tensors, dim), np.stack(arrays, dim))
    same(cat(iter(tensors), dim), np.concatenate(arrays, dim))
    same(stack((tensor for tensor in tensors), dim), np.stack(arrays, dim))
    narrowed = [tensor.narrow(dim, 1, 1) for tensor in tensors]
    same(cat(narrowed, dim), np.concatenate([np.take(array, [1], dim) for array in arrays], dim))


# Views of shape (3, 4) of an array (5, 9, 11).
VIEWS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x.reshape(-1)[7:19].reshape(3, 4),
    "rows": lambda x: x[1, :6:2, 1:5],
    "columns": lambda x: x[2, :3, 2:10:2],
    "rows and columns": lambda x: x[3, :9:3, :8:2],
    "transposed": lambda x: x[4, :4, :3].T,
    "outer dims": lambda x: x[1:4, ::2, 5][:, :4],
}


@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
def test_any_number_of_views_is_joined(device: Device, dtype: str) -> None:
    array = (np.arange(5 * 9 * 11) % 251).reshape(5, 9, 11)
    if not device.supports(DType(dtype)):
        pytest.skip(f"no {dtype}")
    source = Tensor(array, dtype, device)
    views = {name: (view(array).astype(source.dtype.numpy), view(source)) for name, view in VIEWS.items()}
    lists = [[pair] * 3 for pair in views.values()]
    lists += [(list(views.values()) * MAX_JOINED)[:count] for count in (7, MAX_JOINED, 2 * MAX_JOINED + 3)]
    for pairs in lists:
        arrays, tensors = ([*each] for each in zip(*pairs, strict=True))
        for dim in (0, 1):
            same(cat(tensors, dim), np.concatenate(arrays, dim))
        for dim in (0, 1, -1):
            same(stack(tensors, dim), np.stack(arrays, dim))


def test_no_plan_has_more_operands_than_are_joined_at_once(device: Device) -> None:
    rows = numbers((2 * MAX_JOINED + 12, 3), seed=2)
    tensors = [Tensor(row, device=device) for row in rows]
    before = {*device.inner.plans}, {*joining._joins}
    for count in range(2 * MAX_JOINED - 2, len(tensors)):
        same(cat(tensors[:count]), rows[:count].reshape(-1))
        same(stack(tensors[:count], -1), rows[:count].T)
    plans, joins = {*device.inner.plans} - before[0], {*joining._joins} - before[1]
    assert max(len(key[-1]) for key in plans if key[0] == "cat") == 2 * (MAX_JOINED - 1)
    # The op, the dim, and the layout and the kind of each.
    assert max(map(len, joins)) == 2 + 2 * MAX_JOINED


def test_joins_of_nothing_and_of_what_does_not_fit(device: Device) -> None:
    tensor = Tensor(ARRAY, device=device)
    same(cat([tensor[:0], tensor], 0), ARRAY)
    same(cat([tensor[:, :, :0], tensor[:, :, :0]], 2), ARRAY[:, :, :0])
    with pytest.raises(InvalidArgument, match="no tensors"):
        cat([])
    with pytest.raises(InvalidArgument, match="in a sequence, not a int"):
        cat(5)  # type: ignore[type-var]
    with pytest.raises(ShapeMismatch, match="every dim but 1"):
        cat([Tensor.ones((4, 6)), Tensor.ones((4,))], 1)
    with pytest.raises(ShapeMismatch, match="every dim but 0"):
        cat([tensor, tensor[:, :2]])
    with pytest.raises(ShapeMismatch, match="or join them with cat"):
        stack([tensor, tensor[:, :2]])
    for join in (cat, stack):
        with pytest.raises(ShapeMismatch, match=r"\(2, 3, 4\).*\(2, 2, 4\)"):
            join([tensor] * 2 * MAX_JOINED + [tensor[:, :2]])
    assert cat([tensor, tensor.to_dtype(tallow.DType.F64)]).dtype is tallow.DType.F64
    with pytest.raises(DTypeMismatch, match=r"^cat: .*to_dtype"):
        cat([tensor.to_dtype(tallow.DType.COMPLEX64), tensor.to_dtype(tallow.DType.I64)])
