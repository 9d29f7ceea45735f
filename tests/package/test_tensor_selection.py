"""Masks and tensors of indexes choose what they choose of NumPy's arrays, and are assigned to alike."""

from __future__ import annotations

import inspect
import math
import operator as operators
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tallow import (
    Device,
    IndexMismatch,
    InvalidArgument,
    InvalidIndex,
    TallowError,
    Tensor,
    UnsupportedOperand,
    Var,
    where,
)

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
    # NumPy takes indexes for separated by `...` that stands for no dim.
    (slice(None), COLUMNS, ..., 0),
    (None, slice(2), ROWS, ..., COLUMNS),
    (np.array(True), COLUMNS),
    (COLUMNS, ..., np.array(True)),
    (0, slice(None), COLUMNS),
    (COLUMNS.astype(np.int16),),
    (np.zeros(0, dtype=np.int64),),
    (np.zeros(SHAPE, dtype=bool),),
]


def there(device: Device, items: tuple[Any, ...], kind: str = "tensor") -> tuple[Any, ...]:
    """An index with its arrays as tensors of a device, as lists, or as they are."""
    result: dict[str, Callable[[Any], Any]] = {
        "tensor": lambda item: Tensor.from_numpy(item, device),
        # The list of an array without elements has lost the dtype, and True itself is no index.
        "list": lambda item: item.tolist() if item.size and (item.ndim or item.dtype.kind != "b") else item,
        "array": lambda item: item,
    }
    return tuple(result[kind](item) if isinstance(item, np.ndarray) else item for item in items)


@pytest.mark.parametrize("items", INDEXES, ids=range(len(INDEXES)))
@pytest.mark.parametrize("is_strided", [False, True])
@pytest.mark.parametrize("kind", ["tensor", "list", "array"])
def test_elements_are_chosen_and_set_as_in_numpy(
    device: Device, items: tuple[Any, ...], is_strided: bool, kind: str
) -> None:
    def fresh() -> Tensor:
        if not is_strided:
            return Tensor.from_numpy(ARRAY, device)
        return Tensor.from_numpy(np.stack([ARRAY, ARRAY], 1), device)[:, 1]

    index = there(device, items, kind)
    chosen = fresh()[index]
    np.testing.assert_array_equal(chosen.numpy(), ARRAY[items])
    for value in (-ARRAY[items], np.float32(7)):
        tensor, array = fresh(), ARRAY.copy()
        tensor[index] = there(device, (value,), kind)[0]
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
    for array in (MASK, ARRAY[0] % 2, np.zeros((2, 0), np.float32), np.array(1, np.float32), np.array(0)):
        actual = Tensor.from_numpy(array, device).nonzero()
        np.testing.assert_array_equal(actual.numpy(), np.argwhere(array))
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


def arrays_of_an_index(data: st.DataObject, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Indexes or masks of some dims that lie side by side, of which NumPy has one answer: they have one shape."""
    if data.draw(st.booleans()):
        count = math.prod(shape)
        return [np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count))).reshape(shape)]
    common = data.draw(st.sampled_from([(), (1,), (3,), (2, 1), (0,), (2, 3)]))
    dtype = data.draw(st.sampled_from([np.int64, np.int32, np.int16, np.uint8, np.uint64]))
    results = []
    for size in shape:
        lowest = -size if np.dtype(dtype).kind == "i" else 0
        numbers = st.integers(lowest, size - 1)
        count = math.prod(common)
        results.append(np.array(data.draw(st.lists(numbers, min_size=count, max_size=count)), dtype).reshape(common))
    return results


@given(st.data())
def test_every_form_of_an_index_is_that_of_numpy(device: Device, data: st.DataObject) -> None:
    """Lists, arrays, tensors, slices, integers, None and ... in any order: read, set, and gradients."""
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple))
    start = data.draw(st.integers(0, len(shape) - 1))
    arrays = arrays_of_an_index(data, shape[start : data.draw(st.integers(start + 1, len(shape)))])
    bounds = st.none() | st.integers(-5, 5)
    slices = st.builds(slice, bounds, bounds, st.sampled_from([None, 1, 2, -1]))
    others = [data.draw(slices | st.integers(-size, size - 1)) for size in shape[:start]]
    items: list[Any] = [*others, *arrays]
    if data.draw(st.booleans()):
        items.insert(data.draw(st.integers(0, len(items))), None)
    if data.draw(st.booleans()):
        named = sum(
            item.ndim if isinstance(item, np.ndarray) and item.dtype.kind == "b" else item is not None for item in items
        )
        # Among indexes of all dims it stands for none.
        items.insert(data.draw(st.integers(0, len(items))) if named == len(shape) else len(items), ...)
    index = tuple(
        there(device, (item,), data.draw(st.sampled_from(["list", "array", "tensor"])))[0]
        if isinstance(item, np.ndarray) and item.dtype not in (np.uint8, np.uint64) and item.size
        else item
        for item in items
    )
    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    expected = array[tuple(items)]
    actual = Tensor.from_numpy(array, device)[index]
    assert actual.device == device
    np.testing.assert_array_equal(actual.numpy(), expected, strict=True)
    w = Var(Tensor.from_numpy(array, device))
    weights = np.arange(expected.size, dtype=np.float32).reshape(expected.shape)
    if expected.size:
        gradient = (w[index] * weights).sum().backward()[w].numpy()
        slopes = np.zeros(shape, np.float32)
        np.add.at(slopes, tuple(items), weights)
        np.testing.assert_allclose(gradient, slopes)
    tensor = Tensor.from_numpy(array, device)
    value = data.draw(st.sampled_from(["number", "array", "list"]))
    source: Any = 2.5 if value == "number" else -weights
    tensor[index] = source.tolist() if value == "list" and source.size else source
    array[tuple(items)] = source
    np.testing.assert_array_equal(tensor.numpy(), array)


@pytest.mark.parametrize(
    "index", [[4], [0, -5], np.array([9, 0]), np.array([4], np.uint8), np.array([2**63], np.uint64)]
)
@pytest.mark.parametrize("beside", [(), (slice(None),), ([0],)])
def test_a_place_that_is_not_there_is_refused_at_once(device: Device, index: Any, beside: tuple[Any, ...]) -> None:
    x = Tensor.from_numpy(ARRAY, device)
    for use in (lambda: x[(index, *beside)], lambda: x.__setitem__((index, *beside), 0.0)):
        with pytest.raises(InvalidIndex, match="is out of range; use one from 0 to 3"):
            use()
    np.testing.assert_array_equal(x.numpy(), ARRAY)


@pytest.mark.parametrize("kind", ["tensor", "array"])
def test_a_place_outside_is_refused_where_nothing_is_chosen(device: Device, kind: str) -> None:
    x = Tensor.zeros((4, 0), device=device)
    index = there(device, (np.array([0, 4]),), kind)
    column = Tensor([4], device=device)
    uses: list[Callable[[], object]] = [
        lambda: x[index],
        lambda: x.__setitem__(index, 0.0),
        lambda: x.index_copy_(column, Tensor.zeros((1, 0), device=device), 0),
    ]
    for use in uses:
        with pytest.raises(InvalidIndex, match="index 4 is out of range"):
            # A GPU reports it as late as here.
            (use(), column.numpy())


@pytest.mark.parametrize("items", [(Tensor([0, -5]),), (Tensor([0, 9]), 0), (1, Tensor([2]), Tensor([0, -7]))])
def test_errors_show_the_index_that_was_given(items: tuple[Any, ...]) -> None:
    x = Tensor.zeros((4, 4, 4))
    inputs = next(it for item in items if isinstance(item, Tensor) for it in item.tolist() if not -4 <= it < 4)
    for use in (lambda: x[items], lambda: x.__setitem__(items, 0.0)):
        with pytest.raises(InvalidIndex, match=rf"^index: index {inputs} is out of range; use one from 0 to 3$"):
            use()


def test_errors_of_an_index_name_no_other_op() -> None:
    rows = Tensor([0, 4])
    for shape in ((4,), (4, 0)):
        for use in (lambda x: x[rows], lambda x: x.__setitem__(rows, 0.0)):
            with pytest.raises(InvalidIndex, match=r"^index: index 4 is out of range; use one from 0 to 3$"):
                use(Tensor.zeros(shape))


@pytest.mark.parametrize(
    ("index", "found"), [([0.5], "list of float"), ([0, "a"], "list of int and str"), ([Tensor(0)], "list of Tensor")]
)
def test_what_a_list_holds_that_is_no_index_is_named(index: Any, found: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^index: an index must be .*, not of type {found}; convert it$"):
        Tensor([1.0])[index]


def test_operands_that_are_arrays_take_the_device_of_the_tensor(device: Device) -> None:
    x = Tensor.from_numpy(ARRAY, device)
    positive = ARRAY + 1
    for actual, expected in (
        (x + ARRAY, ARRAY + ARRAY),
        (x - ARRAY, ARRAY - ARRAY),
        (x * ARRAY[:, :1], ARRAY * ARRAY[:, :1]),
        (x / positive, ARRAY / positive),
        (x // (ARRAY + 1), ARRAY // (ARRAY + 1)),
        (x % (ARRAY + 1), ARRAY % (ARRAY + 1)),
        (x ** np.ones(3, np.float32), ARRAY),
        (x > ARRAY[::-1], ARRAY[::-1] < ARRAY),
        (x == ARRAY, ARRAY == ARRAY),
        (x @ ARRAY.swapaxes(1, 2), ARRAY @ ARRAY.swapaxes(1, 2)),
        (x.matmul(ARRAY[0, 0]), ARRAY @ ARRAY[0, 0]),
        (x.maximum(ARRAY[::-1]), np.maximum(ARRAY, ARRAY[::-1])),
        ((x > 3).where(x, -ARRAY), np.where(ARRAY > 3, ARRAY, -ARRAY)),
        (x.copy().add_(ARRAY), ARRAY + ARRAY),
        (x.to_dtype("i64") / positive.astype(np.int64), ARRAY / positive),
    ):
        assert actual.device == device
        np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-6)


OPERANDS = [
    name
    for name in dir(Tensor)
    if inspect.isfunction(method := getattr(Tensor, name)) and name not in ("matmul", "__matmul__", "__setitem__")
    for parameters in [list(inspect.signature(method).parameters.values())[1:]]
    if len(parameters) == 1 and "ndarray" in str(parameters[0].annotation).replace("Array", "ndarray")
]


@pytest.mark.parametrize("name", OPERANDS)
def test_every_operand_may_be_an_array(device: Device, name: str) -> None:
    """As the signatures say: it is what a tensor of it is."""
    compared = 0
    for dtype in (np.float32, np.int64, np.bool_):
        array = (ARRAY % 4 + 1).astype(dtype)
        x = Tensor.from_numpy(array[::-1].copy(), device)
        try:
            expected = getattr(x.copy(), name)(Tensor.from_numpy(array, device))
        except TallowError:
            continue
        actual = getattr(x.copy(), name)(array)
        assert comparable(actual) == comparable(expected)
        compared += 1
    assert compared


# As in PyTorch, a list is not equal to a tensor.
@pytest.mark.parametrize("name", sorted({*OPERANDS, "matmul", "__matmul__"} - {"__eq__", "__ne__"}))
def test_no_operand_may_be_a_list(name: str) -> None:
    # Bits are those of integers, and quotients are floats.
    errors = []
    for dtype in ("f32", "i64"):
        with pytest.raises(TallowError) as caught:
            getattr(Tensor.ones(2, dtype=dtype), name)([1, 1])
        errors.append(str(caught.value))
    assert any(re.search("is a list, and operands are tensors, arrays and numbers; use Tensor", it) for it in errors)


def comparable(result: Any) -> Any:
    if isinstance(result, tuple):
        return [comparable(part) for part in result]
    return result.dtype, result.device, result.tolist()


def test_a_choice_between_arrays(device: Device) -> None:
    x = Tensor.from_numpy(ARRAY, device)
    for values in ((ARRAY, 0), (0, ARRAY), (ARRAY, -ARRAY), (x, -ARRAY), (ARRAY, -x)):
        expected = np.where(ARRAY > 3, *[it.numpy() if isinstance(it, Tensor) else it for it in values])
        assert (x > 3).where(*values).tolist() == expected.tolist()


@pytest.mark.parametrize("operator", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "matmul", "and_"])
def test_a_list_is_no_operand(operator: str) -> None:
    x = Tensor([1, 2])
    for values in ([1, 2], (1, 2)):
        with pytest.raises(UnsupportedOperand, match=r"is a (list|tuple), and operands are .*; use Tensor"):
            getattr(operators, operator)(x, values)
    with pytest.raises(TypeError, match=r"add: other is a list, .*; use Tensor"):
        [1, 2] + x  # noqa: RUF005
    assert (x == [1, 2]) is False


def test_a_condition_may_be_an_array(device: Device) -> None:
    x = Tensor.from_numpy(ARRAY, device)
    for values in ((x, 0), (-1.5, x), (x, -x), (x, -ARRAY)):
        expected = np.where(ARRAY > 3, *[it.numpy() if isinstance(it, Tensor) else it for it in values])
        chosen = where(ARRAY > 3, *values)
        assert chosen.device == device
        assert chosen.tolist() == expected.tolist()
    with pytest.raises(
        InvalidArgument, match=r"^where: condition must be a Tensor, not of type ndarray; convert it with Tensor"
    ):
        where(ARRAY > 3, 1, 0)
