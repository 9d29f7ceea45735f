"""Writing in place, as NumPy does it: whole tensors, slices, rows, and operands that share memory."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tallow import (
    Device,
    DType,
    DTypeMismatch,
    InvalidArgument,
    InvalidIndex,
    InvalidLayout,
    ShapeMismatch,
    Tensor,
    Var,
)

from .arrays import NUMBERS, numbers, same

ARRAY = numbers((4, 6), DType.F32)
OPERATORS = {
    "add_": operator.iadd,
    "sub_": operator.isub,
    "mul_": operator.imul,
    "div_": operator.itruediv,
    "floor_divide_": operator.ifloordiv,
    "remainder_": operator.imod,
}


def on(device: Device, array: Any) -> Tensor:
    return Tensor(np.asarray(array).copy(), device=device)


@pytest.mark.parametrize("name", OPERATORS)
def test_arithmetic_in_place(device: Device, name: str) -> None:
    for other in (numbers((4, 6), seed=1) + 0.25, numbers((6,), seed=2) + 0.25, numbers((4, 1), seed=3) + 0.25, 3):
        expected = OPERATORS[name](ARRAY.copy(), other)
        operand = on(device, other) if isinstance(other, np.ndarray) else other
        tensor = saved = on(device, ARRAY)
        tensor = OPERATORS[name](tensor, operand)
        assert tensor is saved
        same(tensor, expected)
        method = on(device, ARRAY)
        assert getattr(method, name)(operand) is method
        same(method, expected)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_arithmetic_in_place_rounds_as_the_op_does(device: Device, dtype: DType) -> None:
    x, y = on(device, numbers((33,), dtype)), on(device, numbers((33,), dtype, seed=1))
    operators = {"add_": operator.add, "mul_": operator.mul, "div_": operator.truediv}
    if dtype.kind != "complex":
        operators |= {"floor_divide_": operator.floordiv, "remainder_": operator.mod}
    if dtype.is_integer:
        # The quotients are f32.
        del operators["div_"]
        for divide in (operator.itruediv, Tensor.div_):
            with pytest.raises(InvalidArgument, match=f"^div_: {dtype.value} cannot hold .* x / y, .* x //= y"):
                divide(x.copy(), y)
    for name, op in operators.items():
        for other in (y, 3):
            expected = op(x, other).numpy()
            same(getattr(x.copy(), name)(other), expected)


def test_views_see_what_is_written_and_nothing_else_is(device: Device) -> None:
    tensor, expected = on(device, ARRAY), ARRAY.copy()
    tensor[1:3, ::2] += 10
    expected[1:3, ::2] += 10
    tensor.T[5] *= tensor.T[4]
    expected.T[5] *= expected.T[4]
    tensor.T[0] = 7
    expected.T[0] = 7
    same(tensor, expected)


SHIFTS = {
    "left": (slice(0, 5), slice(1, 6)),
    "right": (slice(1, 6), slice(0, 5)),
    "apart": (slice(0, 3), slice(0, 6, 2)),
    "together": (slice(0, 6, 2), slice(3, 6)),
}


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("scale", [1, 1000])
def test_memory_that_is_shared_is_read_as_a_copy_of_it(device: Device, shift: str, scale: int) -> None:
    to, origin = (slice(part.start * scale, part.stop * scale, part.step) for part in SHIFTS[shift])
    for array in (np.arange(6.0 * scale, dtype=np.float32), np.ones((3, 6 * scale), np.int64).cumsum(axis=1)):
        written, added = on(device, array), on(device, array)
        written[..., to] = written[..., origin]
        expected = array.copy()
        expected[..., to] = array[..., origin]
        same(written, expected)
        added[..., to] += added[..., origin]
        expected[..., to] = array[..., to] + array[..., origin]
        same(added, expected)
    square = on(device, numbers((40, 40)))
    square += square.T
    same(square, numbers((40, 40)) + numbers((40, 40)).T)


def assigned_as_in_numpy(
    data: st.DataObject, tensor: Tensor, index: tuple[Any, ...], array: Any, items: tuple[Any, ...]
) -> None:
    """Assign what broadcasts, what has more dims in front, or what does not fit: NumPy says what becomes of it."""
    shape = [data.draw(st.sampled_from([1, size])) for size in array[items].shape]
    shape = shape[data.draw(st.integers(0, len(shape))) :]
    shape = [*data.draw(st.lists(st.sampled_from([1, 1, 2]), max_size=2)), *shape]
    if shape and data.draw(st.integers(0, 7)) == 0:
        shape[-1] += 1
    source = numbers(tuple(shape), seed=1)
    try:
        # Without an ellipsis NumPy has another rule for single elements, and one for masks of all dims.
        array[items if any(item is ... for item in items) else (*items, ...)] = source
    except ValueError:
        with pytest.raises(ShapeMismatch, match=r"^index: "):
            tensor[index] = on(tensor.device, source)
    else:
        tensor[index] = on(tensor.device, source)
    same(tensor, array)


@given(st.data())
def test_any_assignment_is_that_of_numpy(device: Device, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple))
    bounds = st.none() | st.integers(-5, 5)
    slices = st.builds(slice, bounds, bounds, st.none() | st.integers(1, 3))
    index = tuple(data.draw(slices | st.integers(-size, size - 1)) for size in shape[: data.draw(st.integers(0, 3))])
    index += data.draw(st.sampled_from([(), (...,), (None,)]))
    expected, tensor = numbers(shape), on(device, numbers(shape))
    assigned_as_in_numpy(data, tensor, index, expected, index)
    expected[index] = 2.5
    tensor[index] = 2.5
    same(tensor, expected)


def test_a_cache_grows_without_a_copy(device: Device) -> None:
    cache, storage = Tensor.zeros((2, 5, 3), device=device), None
    rows = numbers((2, 5, 3))
    for step in range(5):
        storage = storage or cache.storage
        assert cache.slice_set(on(device, rows[:, step : step + 1]), 1, step) is cache
        assert cache.storage is storage
        same(cache[:, : step + 1], rows[:, : step + 1])


def test_rows_that_indexes_name(device: Device) -> None:
    for dim in (0, 1, -1):
        expected, tensor = ARRAY.copy(), on(device, ARRAY)
        rows = np.array([2, 0, 2])
        shape = tuple(3 if i == dim % 2 else size for i, size in enumerate(ARRAY.shape))
        source = numbers(shape, seed=5)
        for position, row in enumerate(rows):
            expected[(slice(None),) * (dim % 2) + (row,)] = source[(slice(None),) * (dim % 2) + (position,)]
        assert tensor.index_copy_(on(device, rows), on(device, source), dim) is tensor
        same(tensor, expected)


def test_tensors_come_from_other_devices(device: Device) -> None:
    tensor = Tensor.zeros((2, 3), device=device)
    assert tensor.copy_(Tensor([1.0, 2.0, 3.0])) is tensor
    same(tensor, np.array([[1, 2, 3]] * 2, np.float32))


def test_empty_tensors_are_written(device: Device) -> None:
    empty = Tensor.zeros((0, 3), device=device)
    empty += 1
    empty[...] = 2
    empty[:0] = Tensor.zeros((0, 3), device=device)
    assert empty.shape == (0, 3)


@pytest.mark.parametrize(
    ("write", "error", "message"),
    [
        (lambda x: x.add_(Tensor.ones((5, 6))), ShapeMismatch, "^add_: "),
        (lambda x: x.copy_(Tensor.ones((2, 4, 6))), ShapeMismatch, "^copy_: "),
        (lambda x: x.add_(Tensor.ones((4, 6), dtype="complex64")), DTypeMismatch, "^add_: "),
        (lambda x: x.copy_(3), InvalidArgument, "^copy_: source must be a Tensor"),
        (lambda x: x.add_("3"), InvalidArgument, "^add_: other must be a Tensor or a Python number"),
        (lambda x: x.__setitem__(4, 1), InvalidIndex, "^index: index 4 is out of range"),
        (lambda x: x.__setitem__(0, np.ones(5)), ShapeMismatch, "^index: "),
        (lambda x: x.__setitem__(0, "a"), InvalidArgument, "^index: value must be"),
        (lambda x: x.__setitem__(0, ["a"]), InvalidArgument, "'a' is no number"),
        (lambda x: x.__setitem__(0, Tensor.ones((5,))), ShapeMismatch, "^index: "),
        (lambda x: x.__setitem__(slice(None, None, -1), Tensor.ones((5,))), ShapeMismatch, "^index: "),
        (lambda x: x.__setitem__(np.array([0.5]), 0), InvalidArgument, "not of type ndarray of float64; convert it"),
        (lambda x: x.__setitem__([0, 4], 0), InvalidIndex, "index 4 is out of range"),
        (lambda x: x.slice_set(Tensor.ones((4, 5)), 0, 0), ShapeMismatch, "^slice_set: "),
        (lambda x: x.slice_set(Tensor.ones((4,)), 0, 0), ShapeMismatch, "^slice_set: "),
        (lambda x: x.slice_set(Tensor.ones((4,)), 1, 0), ShapeMismatch, "^slice_set: "),
        (lambda x: x.slice_set(Tensor.ones((4, 6)), 0, 1), InvalidArgument, "^slice_set: "),
        (lambda x: x.index_copy_(Tensor([0, 1]), Tensor.ones((3, 6)), 0), ShapeMismatch, "^index_copy_: "),
        (lambda x: x.index_copy_(Tensor([0, 4]), Tensor.ones((2, 6)), 0), InvalidIndex, "index 4 is out of range"),
        (lambda x: x.index_copy_(Tensor([4]), Tensor.ones((1, 6)), 0), InvalidIndex, "index 4 is out of range"),
        (lambda x: x[0].broadcast_as(3, 6).add_(1), InvalidArgument, "^add_: shape .* repeats elements"),
        (lambda x: x[0].broadcast_as(3, 6).copy_(x[:3]), InvalidArgument, "^copy_: shape .* repeats elements"),
    ],
)
def test_what_cannot_be_written_is_told_and_nothing_is(
    write: Callable[[Tensor], object], error: type[Exception], message: str
) -> None:
    tensor = Tensor(ARRAY.copy())
    with pytest.raises(error, match=message):
        write(tensor)
    same(tensor, ARRAY)


@given(st.data())
def test_steps_back_and_tensors_choose_as_in_numpy(device: Device, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple))
    bounds = st.none() | st.integers(-5, 5)
    slices = st.builds(slice, bounds, bounds, st.sampled_from([None, 1, 2, -1, -2]))
    items: list[Any] = [data.draw(slices) for _ in shape]
    position = data.draw(st.integers(-1, len(shape) - 1))
    if position >= 0:
        rows = data.draw(st.lists(st.integers(0, shape[position] - 1), min_size=1, max_size=4))
        indexes = np.array(rows).reshape(data.draw(st.sampled_from([(-1,), (1, -1)])))
        items[position] = data.draw(st.sampled_from([indexes, np.isin(np.arange(shape[position]), rows)]))
    if data.draw(st.booleans()):
        items = [*items[: position + 1], ...]
    items.insert(data.draw(st.integers(0, len(items))), None)
    array = numbers(shape)
    index = tuple(on(device, item) if isinstance(item, np.ndarray) else item for item in items)
    tensor = on(device, array)
    same(tensor[index], array[tuple(items)])
    # Where there are tensors too, no step back is written to.
    if position < 0 or all(not isinstance(item, slice) or (item.step or 1) > 0 for item in items):
        assigned_as_in_numpy(data, tensor, index, array, tuple(items))
        tensor[index] = 3.0
        array[tuple(items)] = 3.0
        same(tensor, array)


def test_a_step_back_among_integers(device: Device) -> None:
    tensor = on(device, ARRAY)
    same(tensor[1, ::-1], ARRAY[1, ::-1])
    same(tensor[::-1, 2], ARRAY[::-1, 2])
    same(tensor[on(device, [1, 1])][:, 0], ARRAY[[1, 1]][:, 0])
    tensor[::-1] = tensor
    same(tensor, ARRAY[::-1])


def test_floats_of_any_dtype_are_set_and_rounded(device: Device) -> None:
    tensor = on(device, np.zeros(4, np.float32))
    tensor[1:] = Tensor([0.1, 0.2, 0.3], "f64", device)
    tensor[on(device, [0])] = Tensor(0.7, "f64", device)
    same(tensor, np.array([0.7, 0.1, 0.2, 0.3], np.float32))
    full = on(device, np.zeros(2, np.int32))
    full[:1] = Tensor([2**32 + 1], "i64", device)
    same(full, np.array([1, 0], np.int32))
    with pytest.raises(DTypeMismatch, match=r"^index: a tensor of i32 is written to in place, and does not take f32"):
        full[:1] = Tensor([1.0], device=device)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (Tensor([1.0]), "a tensor of f32 is neither a mask nor indexes"),
        ((Ellipsis, Tensor([1]), Ellipsis), "an index has at most one"),
        (Tensor([1], "u8"), "a tensor of u8 may be a mask or indexes"),
        (slice(None, None, 0), "the step of a slice is not 0"),
        ((slice(None), slice(None), Tensor([1])), "3 indexes are too many"),
    ],
)
def test_indexes_that_could_mean_two_things(index: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Tensor(ARRAY)[index]


def test_layouts_that_reach_outside_are_refused() -> None:
    storage = Device.cpu().zeros((4,), DType.F32)
    from tallow import Layout

    with pytest.raises(InvalidLayout, match="assign"):
        storage.assign(Layout.contiguous((5,)), Device.cpu().zeros((5,), DType.F32), Layout.contiguous((5,)))


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        (0, (1, 1, 6)),
        ((slice(None), slice(None, None, -1)), (1, 4, 1)),
        ([1, 3], (1, 2, 6)),
        ([[True] * 6] * 4, (1, 1)),
        ((2, 3), (1,)),
    ],
)
def test_the_gradient_of_what_is_assigned_has_its_shape(device: Device, index: Any, shape: tuple[int, ...]) -> None:
    value = Var(on(device, numbers(shape, seed=2)))
    weights = numbers((4, 6), seed=3)
    tensor = on(device, ARRAY)
    tensor[on(device, index) if isinstance(index, list) else index] = value
    gradient = (tensor * on(device, weights)).sum().backward()[value]
    chosen = np.atleast_1d(weights[np.array(index) if isinstance(index, list) else index])
    trailing = shape[-chosen.ndim :]
    dims = tuple(dim for dim, size in enumerate(trailing, chosen.ndim - len(trailing)) if size == 1)
    same(gradient, chosen.sum(dims, keepdims=True).reshape(shape))


ROWS, ONE = np.array([[0], [2]]), np.array(1)
PLANES, ROW = np.array([True, False, True]), np.array([False, True, True, False])
# Each item of an index that chooses several places, in any order and number.
ITEMS = [slice(None, None, -1), slice(3, None, -2), slice(None), None, ..., 1, ROWS, ONE, np.array([0, 1])]
BACKWARD = [
    index
    for index in (*itertools.permutations(ITEMS, 2), *itertools.permutations(ITEMS, 3), (PLANES, slice(None, None, -1)),
                  (slice(None, None, -1), ROW), (slice(None, None, -1), ROW, slice(None, None, -2)))
    if any(isinstance(item, np.ndarray) for item in index)
    and any(isinstance(item, slice) and (item.step or 1) < 0 for item in index)
]  # fmt: skip


def test_slices_with_negative_steps_beside_tensors_are_set_as_by_numpy(device: Device) -> None:
    for index in BACKWARD:
        expected = np.zeros((3, 4, 5), np.float32)
        shape = expected[index].shape
        value = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
        expected[index] = value
        x, source = Tensor(np.zeros_like(expected), device=device), Var(Tensor(value, device=device))
        x[tuple(Tensor(item, device=device) if isinstance(item, np.ndarray) else item for item in index)] = source
        assert x.tolist() == expected.tolist(), index
        # The gradient of a sum of squares is twice what is there of each value.
        is_there = np.isin(value, expected)
        assert (x * x).sum().backward()[source].tolist() == (2 * value * is_there).tolist(), index
