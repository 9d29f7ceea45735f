"""Views share the storage and agree with NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tallow
from hypothesis import given
from hypothesis import strategies as st
from tallow import Device, InvalidArgument, InvalidIndex, ShapeMismatch, Tensor

from .arrays import numbers, same

ARRAY = numbers((2, 3, 4))

VIEWS: list[Callable[[Any], Any]] = [
    lambda x: x[0],
    lambda x: x[-1, 2],
    lambda x: x[1, 2, 3],
    lambda x: x[:, 1:],
    lambda x: x[..., ::2],
    lambda x: x[:, 5:],
    lambda x: x[None, :, None, ..., None],
    lambda x: x[...],
    lambda x: x[()],
    lambda x: x[np.int64(1), 0:2, ...],
    lambda x: x[1, ..., 1],
    lambda x: x.T,
    lambda x: x[0].T,
]


@pytest.mark.parametrize("view", VIEWS)
def test_indexing_is_numpys(device: Device, view: Callable[[Any], Any]) -> None:
    tensor = Tensor(ARRAY, device=device)
    viewed = view(tensor)
    same(viewed, np.asarray(view(ARRAY)))
    assert viewed.storage is tensor.storage


@given(st.data())
def test_slices_are_numpys(data: st.DataObject) -> None:
    bound = st.none() | st.integers(-6, 6)
    index = tuple(slice(data.draw(bound), data.draw(bound), data.draw(st.none() | st.integers(1, 5))) for _ in range(3))
    same(Tensor(ARRAY)[index], ARRAY[index])


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (2, InvalidIndex, "index 2 is out of range; use one from 0 to 1"),
        (-3, InvalidIndex, "index -3"),
        ((0, 0, 0, 0), InvalidArgument, "4 indexes are too many"),
        ((..., ...), InvalidArgument, "at most one"),
        (slice(None, None, 0), InvalidArgument, "step of a slice is not 0"),
        (slice(None, None, 1.5), InvalidArgument, "step of a slice must be an integer"),
        (slice(0.5, None), InvalidArgument, "start of a slice must be an integer"),
        (1.5, InvalidArgument, "not of type float"),
        (True, InvalidArgument, "not of type bool"),
    ],
)
def test_indexes_that_name_nothing(index: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Tensor(ARRAY)[index]


def test_views_share_what_is_written(device: Device) -> None:
    tensor = Tensor.zeros((2, 3), device=device)
    tensor[1, ::2].fill_(5)
    same(tensor, np.array([[0, 0, 0], [5, 0, 5]], np.float32))
    tensor.T[1].fill_(7)
    same(tensor, np.array([[0, 7, 0], [5, 7, 5]], np.float32))
    assert tensor.zero_() is tensor
    same(tensor, np.zeros((2, 3), np.float32))


def test_shapes(device: Device) -> None:
    tensor = Tensor(ARRAY, device=device)
    same(tensor.reshape(6, -1), ARRAY.reshape(6, 4))
    same(tensor.reshape((4, 6)), ARRAY.reshape(4, 6))
    same(tensor.reshape(-1), ARRAY.reshape(-1))
    same(tensor.transpose(0, -1), ARRAY.swapaxes(0, -1))
    same(tensor.permute(2, 0, 1), ARRAY.transpose(2, 0, 1))
    same(tensor.permute((2, 0, 1)), ARRAY.transpose(2, 0, 1))
    same(tensor.reshape(np.int64(4), np.uint8(6)), ARRAY.reshape(4, 6))
    same(tensor.narrow(1, 1, 2), ARRAY[:, 1:3])
    same(tensor.flatten(), ARRAY.reshape(-1))
    same(tensor.flatten(1), ARRAY.reshape(2, 12))
    same(tensor.flatten(0, 1), ARRAY.reshape(6, 4))
    same(tensor[0, 0, 0].flatten(), ARRAY[0, 0, :1])
    same(tensor.unsqueeze(1), ARRAY[:, None])
    same(tensor.unsqueeze(-1), ARRAY[..., None])
    same(tensor[:1, :, :1].squeeze(), ARRAY[0, :, 0])
    same(tensor[:1].squeeze(0), ARRAY[0])
    same(tensor[:, :1].broadcast_as(5, 2, 3, 4), np.broadcast_to(ARRAY[:, :1], (5, 2, 3, 4)))


def test_transposes(device: Device) -> None:
    tensor = Tensor(ARRAY, device=device)
    same(tensor.mT, ARRAY.swapaxes(-1, -2))
    same(tensor[0].mT, ARRAY[0].T)
    same(tensor[0].t(), ARRAY[0].T)
    same(tensor[0, 0].t(), ARRAY[0, 0])
    same(tensor[0, 0, 0].t(), ARRAY[0, 0, 0])
    for view in (tensor.mT, tensor[0].t(), tensor[0, 0].t()):
        assert view.storage is tensor.storage


def test_reshape_copies_only_where_it_must(device: Device) -> None:
    tensor = Tensor(ARRAY, device=device)
    assert tensor.reshape(24).storage is tensor.storage
    assert tensor[:, 1:].reshape(2, 2, 2, 2).storage is tensor.storage
    transposed = tensor.transpose(0, 1)
    same(transposed.reshape(24), ARRAY.swapaxes(0, 1).reshape(24))
    assert transposed.reshape(24).storage is not tensor.storage


def test_contiguous_and_copy(device: Device) -> None:
    tensor = Tensor(ARRAY, device=device)
    assert tensor.contiguous() is tensor
    assert tensor[1].contiguous().storage is tensor.storage
    assert tensor.is_contiguous()
    assert not tensor.T.is_contiguous()
    result = tensor.T.contiguous()
    same(result, ARRAY.T)
    assert result.is_contiguous()
    copy = tensor.copy()
    copy.fill_(1)
    same(tensor, ARRAY)


def test_iteration(device: Device) -> None:
    tensor = Tensor(ARRAY, device=device)
    assert len(tensor) == 2
    for actual, expected in zip(tensor, ARRAY, strict=True):
        same(actual, expected)
    with pytest.raises(InvalidArgument, match="use item"):
        len(tensor[0, 0, 0])


@pytest.mark.parametrize(
    ("view", "error", "message"),
    [
        (lambda x: x.reshape(5), ShapeMismatch, "24 elements do not fill 5 positions"),
        (lambda x: x.reshape(5, -1), ShapeMismatch, "no size for -1"),
        (lambda x: x.reshape(-1, -1), ShapeMismatch, "no size for -1"),
        (lambda x: x.reshape(0, -1), ShapeMismatch, "no size for -1"),
        (lambda x: x.reshape(-2, -12), InvalidArgument, "0 or more"),
        (
            lambda x: x.reshape(6, (4,)),
            InvalidArgument,
            r"reshape: shape must be integers one by one or in one sequence, not \(6, \(4,\)\)",
        ),
        (lambda x: x.reshape(24, (2,)), InvalidArgument, "one by one or in one sequence"),
        (lambda x: x.reshape((6, (4,))), InvalidArgument, "one by one or in one sequence"),
        (lambda x: x.reshape(24.0), InvalidArgument, "shape must be integers"),
        (lambda x: x.permute(2, (1, 0)), InvalidArgument, "permute: dims must be integers"),
        (lambda x: x.broadcast_as(2, 3, 4, [2]), InvalidArgument, "broadcast_as: shape must be integers"),
        (lambda x: x.flatten(2, 1), InvalidArgument, "swap them"),
        (lambda x: x.narrow(0, 0.5, 1), InvalidArgument, "narrow: start must be an integer, not 0.5"),
        (lambda x: x.narrow(0, 0, 1.0), InvalidArgument, "narrow: length must be an integer, not 1.0"),
        (lambda x: x.narrow(0, 0, 1, 1.5), InvalidArgument, "narrow: step must be an integer, not 1.5"),
        (lambda x: x.narrow(0.0, 0, 1), InvalidArgument, "dim must be an integer"),
        (lambda x: x.unsqueeze(0.5), InvalidArgument, "dim must be an integer"),
        (lambda x: x.sum(0.5), InvalidArgument, "sum: dim must be an integer"),
        (lambda x: x.transpose(0, 3), InvalidArgument, "dim2 3 does not exist"),
        (lambda x: x.permute(0, 1), InvalidArgument, "do not name each"),
        (lambda x: x.squeeze(1), InvalidArgument, "not of size 1"),
        (lambda x: x[:1].squeeze([0, 0]), InvalidArgument, r"^squeeze: dims \(0, 0\) name a dim twice"),
        (lambda x: x.broadcast_as(3, 3, 4), ShapeMismatch, "does not broadcast"),
        (lambda x: x.t(), ShapeMismatch, r"^t: .*\(2, 3, 4\): a matrix has 2 dims; use mT"),
        (lambda x: x[0, 0].mT, ShapeMismatch, r"^mT: .*\(4,\): a matrix has 2 dims; unsqueeze"),
        (lambda x: tallow.stack([x], 7), InvalidArgument, "^stack: a new dim"),
        (lambda x: x.narrow(0, -1, 1), InvalidArgument, "^narrow: .*; count from the front: start at 1"),
    ],
)
def test_views_that_do_not_exist(view: Callable[[Tensor], Tensor], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        view(Tensor(ARRAY))
