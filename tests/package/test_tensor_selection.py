"""Masks and tensors of indexes choose what they choose of NumPy's arrays, and are assigned to alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tallow import Device, IndexMismatch, InvalidArgument, InvalidIndex, Tensor

SHAPE = (4, 5, 3)
ARRAY = np.arange(60, dtype=np.float32).reshape(SHAPE)
MASK = (np.arange(20).reshape(4, 5) % 3) == 1
ROWS, COLUMNS, PLACE = np.array([[0, -1], [2, 3]]), np.array([1, -3]), np.array(2)
INDEXES: list[tuple[Any, ...]] = [
    (ROWS,),
    (ROWS, slice(1, 3)),
    (slice(None), COLUMNS),
    (ROWS, COLUMNS),
    (ROWS, slice(None), COLUMNS),
    (slice(1, None), COLUMNS, PLACE),
    (1, COLUMNS),
    (COLUMNS, ..., 0),
    (COLUMNS, None, COLUMNS),
    (MASK,),
    (MASK, 0),
    (ARRAY > 30,),
    (slice(None), MASK[0]),
    (slice(None), MASK[0], COLUMNS[:1]),
    (..., PLACE),
    (PLACE,),
    (None, COLUMNS),
    (0, slice(None), COLUMNS),
    (COLUMNS.astype(np.int16),),
    (np.zeros(0, dtype=np.int64),),
    (np.zeros(SHAPE, dtype=bool),),
]


def there(device: Device, items: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(Tensor.from_numpy(item, device) if isinstance(item, np.ndarray) else item for item in items)


@pytest.mark.parametrize("items", INDEXES, ids=range(len(INDEXES)))
@pytest.mark.parametrize("is_strided", [False, True])
def test_elements_are_chosen_and_set_as_in_numpy(device: Device, items: tuple[Any, ...], is_strided: bool) -> None:
    def fresh() -> Tensor:
        if not is_strided:
            return Tensor.from_numpy(ARRAY, device)
        return Tensor.from_numpy(np.stack([ARRAY, ARRAY], 1), device)[:, 1]

    index = there(device, items)
    chosen = fresh()[index]
    np.testing.assert_array_equal(chosen.numpy(), ARRAY[items])
    for value in (-ARRAY[items], np.float32(7)):
        tensor, array = fresh(), ARRAY.copy()
        tensor[index] = Tensor.from_numpy(value, device) if isinstance(value, np.ndarray) else float(value)
        array[items] = value
        np.testing.assert_array_equal(tensor.numpy(), array)


def test_masks_and_numbers_of_rank_0(device: Device) -> None:
    x = Tensor(3.0, device=device)
    yes, no = (Tensor(flag, device=device) for flag in (True, False))
    assert (x[yes].tolist(), x[no].tolist()) == ([3.0], [])
    x[no] = 4
    x[yes] = 5
    assert x.item() == 5


def test_places_that_are_not_0(device: Device) -> None:
    for array in (MASK, ARRAY[0] % 2, np.zeros((2, 0)), np.array(1.0), np.array(0)):
        found = Tensor.from_numpy(array, device).nonzero()
        np.testing.assert_array_equal(found.numpy(), np.argwhere(array))
    x = Tensor.from_numpy(ARRAY, device)
    np.testing.assert_array_equal(
        x.masked_select(x[:, :, :1] > 20).numpy(), ARRAY[np.broadcast_to(ARRAY[:, :, :1] > 20, SHAPE)]
    )


def test_the_last_of_several_values_wins(device: Device) -> None:
    x = Tensor.zeros(3, device=device)
    x[Tensor([1, 1, -2], device=device)] = Tensor([1.0, 2.0, 3.0], device=device)
    assert x.tolist() == [0, 3, 0]


def test_masks_of_no_places_choose_nothing(device: Device) -> None:
    x = Tensor.from_numpy(ARRAY, device)
    assert x[Tensor.zeros((0,), dtype="bool", device=device)].shape == (0, *SHAPE[1:])
    assert x[Tensor.zeros((SHAPE[0], 0), dtype="bool", device=device)].shape == (0, *SHAPE[2:])


def test_what_chooses_nothing_is_told(device: Device) -> None:
    x = Tensor.from_numpy(ARRAY, device)
    with pytest.raises(IndexMismatch, match=r"a mask has the shape of the dims that it indexes, \(4, 5\)"):
        x[there(device, (MASK[:3],))]
    with pytest.raises(IndexMismatch, match="tensors of indexes broadcast to one shape"):
        x[there(device, (COLUMNS, np.array([0, 1, 2])))]
    with pytest.raises(InvalidArgument, match="f32 is neither a mask nor indexes"):
        x[x]
    with pytest.raises(InvalidIndex):
        x[there(device, (np.array([0, 9]), np.array([0, 0])))].numpy()
    with pytest.raises(InvalidIndex):
        x[there(device, (np.array([0, 0]), np.array([0, -6])))].numpy()


def test_gradients_go_to_what_was_chosen(device: Device) -> None:
    from tallow import Var

    w = Var(Tensor.from_numpy(ARRAY, device))
    grads = (w[there(device, (MASK,))].sum() + w[there(device, (ROWS, COLUMNS))].sum()).backward()
    expected = np.zeros(SHAPE, dtype=np.float32)
    expected[MASK] += 1
    np.add.at(expected, (ROWS, COLUMNS), 1)
    np.testing.assert_array_equal(grads[w].numpy(), expected)
