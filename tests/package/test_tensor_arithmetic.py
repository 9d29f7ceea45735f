"""Operators, broadcasting, numbers as operands, reductions and choices."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tallow
from hypothesis import given
from hypothesis import strategies as st
from tallow import (
    Device,
    DType,
    DTypeMismatch,
    EmptyTensor,
    InvalidArgument,
    ShapeMismatch,
    Tensor,
    UnsupportedDType,
)
from tallow.op import BinaryOp, ReduceOp

from .arrays import FLOATS, INTEGERS, NUMBERS, REALS, numbers, same

OPERATORS = [operator.add, operator.sub, operator.mul]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (4, 1, 3)), ((), (2,)), ((0, 3), (1,))])
@pytest.mark.parametrize("op", OPERATORS + COMPARISONS)
def test_operators_broadcast_as_in_numpy(device: Device, op: Callable[..., Any], shapes: tuple[Any, Any]) -> None:
    x, y = numbers(shapes[0], seed=1), numbers(shapes[1], seed=2)
    same(op(Tensor(x, device=device), Tensor(y, device=device)), op(x, y))


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", OPERATORS)
def test_numbers_are_operands_on_both_sides(device: Device, op: Callable[..., Any], dtype: DType) -> None:
    array = numbers((2, 3), dtype)
    tensor = Tensor(array, device=device)
    same(op(tensor, 2), op(array, np.array(2).astype(dtype.numpy)))
    same(op(2, tensor), op(np.array(2).astype(dtype.numpy), array))
    same(op(np.float32(2), tensor), op(np.array(2).astype(dtype.numpy), array))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", [*OPERATORS, operator.truediv])
@given(
    number=st.floats() | st.sampled_from([0.0, -0.0, 0.1, 1 / 3, 448.0, 1e-40, 1e300]),
    values=st.lists(st.floats(width=32) | st.sampled_from([0.0, -0.0, 0.1]), min_size=1, max_size=8),
)
def test_a_number_gives_the_bits_that_a_tensor_gives(
    device: Device, op: Callable[..., Any], dtype: DType, number: float, values: list[float]
) -> None:
    tensor = Tensor(values, DType.F64, device).to_dtype(dtype)
    scalar = Tensor(number, DType.F64, device).to_dtype(dtype)
    bits = f"u{dtype.itemsize}"
    for actual, expected in ((op(tensor, number), op(tensor, scalar)), (op(number, tensor), op(scalar, tensor))):
        is_nan = np.isnan(expected.numpy().astype(np.float64))
        np.testing.assert_array_equal(np.isnan(actual.numpy().astype(np.float64)), is_nan)
        np.testing.assert_array_equal(actual.numpy().view(bits)[~is_nan], expected.numpy().view(bits)[~is_nan])


def test_the_largest_integers_stay_exact(device: Device) -> None:
    tensor = Tensor([2**62, -5], device=device)
    same(tensor + (2**62 - 1), np.array([2**63 - 1, 2**62 - 6]))
    same(tensor == 2**62, np.array([True, False]))
    same(Tensor.full(2, 2**63 - 1, device=device), np.array([2**63 - 1] * 2))


def test_division(device: Device) -> None:
    same(7 / Tensor([2.0, 4.0], device=device), np.array([3.5, 1.75], np.float32))
    same(Tensor([1.0, 2.0], device=device) / Tensor([4.0, 0.0], device=device), np.array([0.25, np.inf], np.float32))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_division_of_integers_is_true_division(device: Device, dtype: DType) -> None:
    x, y = Tensor([7, 0, 5], dtype, device), Tensor([2, 3, 0], dtype, device)
    same(x / y, np.array([3.5, 0, np.inf], np.float32))
    same(x.div(y), np.array([3.5, 0, np.inf], np.float32))
    same(x / 2, np.array([3.5, 0, 2.5], np.float32))
    same(x / 0.5, np.array([14, 0, 10], np.float32))
    same(1 / y, np.array([1 / 2, 1 / 3, np.inf], np.float32))
    same(x / y.to_dtype(DType.F64), np.array([3.5, 0, np.inf]))
    same(x / y.to_dtype(DType.U8), np.array([3.5, 0, np.inf], np.float32))


def test_the_storage_divides_integers_as_candle_does(device: Device) -> None:
    x, y = Tensor([7, -7, 5], device=device), Tensor([2, 2, 0], device=device)
    quotients = x.storage.binary_impl(BinaryOp.DIV, y.storage, x.layout, y.layout)
    np.testing.assert_array_equal(quotients.to_numpy(), [3, -3, 0])


@pytest.mark.parametrize("dtype", REALS)
def test_floor_division_and_its_remainder_round_as_pythons_do(device: Device, dtype: DType) -> None:
    numbers = [7, -7, 6, -6, 1, 0] if dtype.kind != "unsigned" else [7, 6, 1, 0]
    divisors = [3, -3] if dtype.kind != "unsigned" else [3, 4]
    x = Tensor(numbers, dtype, device)
    for divisor in divisors:
        quotients = np.array([number // divisor for number in numbers], dtype.numpy)
        rests = np.array([number % divisor for number in numbers], dtype.numpy)
        same(x // divisor, quotients)
        same(x.floor_divide(x * 0 + divisor), quotients)
        same(x % divisor, rests)
        same(x.remainder(x * 0 + divisor), rests)
    y = Tensor([2, 3, 5], dtype, device)
    same(7 // y, np.array([3, 2, 1], dtype.numpy))
    same(7 % y, np.array([1, 1, 2], dtype.numpy))
    written = x.copy()
    written //= 2
    same(written, np.array([number // 2 for number in numbers], dtype.numpy))
    written = x.copy()
    written %= 4
    same(written, np.array([number % 4 for number in numbers], dtype.numpy))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_over_0_are_0_and_the_lowest_one_over_minus_1_is_itself(device: Device, dtype: DType) -> None:
    lowest = int(np.iinfo(dtype.numpy).min)
    x = Tensor([lowest, 5], dtype, device)
    same(x // 0, np.array([0, 0], dtype.numpy))
    same(x % 0, np.array([0, 0], dtype.numpy))
    if lowest < 0:
        same(x // -1, np.array([lowest, -5], dtype.numpy))
        same(x % -1, np.array([0, 0], dtype.numpy))


BITWISE = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
BITWISE_IN_PLACE = [operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits_are_those_of_numpy(device: Device, dtype: DType) -> None:
    least = int(np.iinfo(dtype.numpy).min)
    x = np.array([5, 12, 1, 0, least, np.iinfo(dtype.numpy).max], dtype.numpy)
    y = np.array([3, 2, 7, 1, 64, 9], dtype.numpy)
    left, right = Tensor(x, device=device), Tensor(y, device=device)
    for op, change in zip(BITWISE, BITWISE_IN_PLACE, strict=True):
        same(op(left, right), op(x, y))
        same(op(left, 3), op(x, dtype.numpy.type(3)))
        same(op(3, right), op(dtype.numpy.type(3), y))
        changed = left.copy()
        view = changed[:]
        change(changed, right)
        same(view, op(x, y))
    same(~left, ~x)
    result = divmod(left, right)
    same(result[0], x // y)
    same(divmod(100, right)[1], 100 % y)


def test_floats_have_no_bits(device: Device) -> None:
    x = Tensor([1.0], device=device)
    with pytest.raises(UnsupportedDType, match="defined for integers"):
        operator.and_(x, x)
    with pytest.raises(UnsupportedDType, match="defined for integers"):
        operator.invert(x)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_floor_division_of_floats_is_numpys(device: Device, dtype: DType) -> None:
    ends = np.array([0.0, -0.0, 1.0, -1.0, 0.1, -0.3, 5.5, 1e30, np.inf, -np.inf, np.nan], dtype.numpy)
    x, y = np.repeat(ends, len(ends)), np.tile(ends, len(ends))
    with np.errstate(all="ignore"):
        expected = np.floor_divide(x, y), np.remainder(x, y)
    left, right = Tensor(x, device=device), Tensor(y, device=device)
    for actual, array in zip((left // right, left % right), expected, strict=True):
        same(actual, array)
        zeros = array == 0
        np.testing.assert_array_equal(np.signbit(actual.numpy())[zeros], np.signbit(array)[zeros])


def test_powers_and_signs(device: Device) -> None:
    tensor = Tensor([-2.0, 3.0], device=device)
    same(tensor**2, np.array([4, 9], np.float32))
    same(Tensor([-2, 3], device=device) ** 2, np.array([4, 9]))
    same(tensor**3, np.array([-8, 27], np.float32))
    same(-tensor, np.array([2, -3], np.float32))
    same(abs(tensor), np.array([2, 3], np.float32))
    assert +tensor is tensor
    same(tensor ** Tensor([3.0, -1.0], device=device), np.array([-8, 3**-1], np.float32))
    same(2**tensor, np.array([0.25, 8], np.float32))
    integers = np.array([-3, -2, -1, 0, 1, 2, 3])
    full = Tensor(integers, device=device)
    same(full**3, integers**3)
    same(2 ** Tensor([3, 62, 63, 64, -1], device=device), np.array([8, 2**62, -(2**63), 0, 0]))
    same(full ** Tensor(-1, device=device), np.array([0, 0, -1, 0, 1, 0, 0]))
    same(full ** Tensor(-2, device=device), np.array([0, 0, 1, 0, 1, 0, 0]))
    with pytest.raises(InvalidArgument, match="-1 is negative, and such powers of integers are fractions"):
        full**-1
    with pytest.raises(InvalidArgument, match=r"0\.5 is not an integer"):
        full**0.5


@pytest.mark.parametrize("dtype", INTEGERS)
def test_numbers_that_an_integer_dtype_lacks(dtype: DType) -> None:
    tensor = Tensor([1, 2], dtype)
    with pytest.raises(InvalidArgument, match=r"2\.5 is not an integer.*to_dtype"):
        tensor + 2.5
    for number in (float("nan"), float("inf")):
        with pytest.raises(InvalidArgument, match="not an integer"):
            tensor * number
    with pytest.raises(InvalidArgument, match=r"outside the range.*wider dtype"):
        tensor + 2**64
    with pytest.raises(InvalidArgument, match="outside the range"):
        tensor.lt(-(2**64))
    same(tensor + 2.0, numbers((2,), dtype) * 0 + np.array([3, 4], dtype.numpy))


def test_an_integer_beyond_floats() -> None:
    with pytest.raises(InvalidArgument, match="beyond the range"):
        Tensor([1.0]) + 10**400


def test_operands_of_other_kinds() -> None:
    tensor = Tensor([1.0, 2.0])
    with pytest.raises(
        DTypeMismatch, match="operands of complex64 and i64 do not go together; convert them with to_dtype"
    ):
        tensor.to_dtype(DType.COMPLEX64) + Tensor([1, 2])
    with pytest.raises(ShapeMismatch, match="do not broadcast"):
        tensor + Tensor([1.0, 2.0, 3.0])
    with pytest.raises(TypeError):
        tensor + "1"  # type: ignore[operator]
    assert (tensor == None) is False  # noqa: E711
    assert (tensor != "a") is True


@pytest.mark.parametrize("second", INTEGERS)
@pytest.mark.parametrize("first", INTEGERS)
def test_integers_of_any_dtypes_compare_by_value(device: Device, first: DType, second: DType) -> None:
    """Also those that wrap into each other: u32's greatest is -1 as i32, and 255 as u8."""
    extremes = sorted({sign * 2**power + step for power in range(64) for sign in (1, -1) for step in (-1, 0, 1)})
    sides = []
    for dtype in (first, second):
        limits = np.iinfo(dtype.numpy)
        sides.append([number for number in extremes if limits.min <= number <= limits.max])
    column = Tensor([[number] for number in sides[0]], first, device)
    row = Tensor([sides[1]], second, device)
    for compare in COMPARISONS:
        expected = [[compare(left, right) for right in sides[1]] for left in sides[0]]
        same(compare(column, row), np.array(expected))


def test_predictions_compare_with_labels(device: Device) -> None:
    scores = Tensor([[0.1, 0.9], [0.8, 0.2]], device=device)
    same(scores.argmax(1) == Tensor([1, 1], device=device), np.array([True, False]))


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ("bf16", "f32", "f32"),
        ("bf16", "f16", "f32"),
        ("f32", "f64", "f64"),
        ("f8e4m3", "f16", "f16"),
        ("f8e4m3", "f8e5m2", "f32"),
        ("i8", "i64", "i64"),
        ("u8", "u16", "u16"),
        ("u8", "i8", "i16"),
        ("u32", "i8", "i64"),
    ],
)
def test_dtypes_are_promoted(device: Device, first: str, second: str, joined: str) -> None:
    x, y = Tensor([1, 2, 3], first, device), Tensor([4, 2, 1], second, device)
    for one, other in ((x, y), (y, x)):
        for call in (operator.add, operator.mul, operator.sub, Tensor.maximum):
            result = call(one, other)
            assert result.dtype is DType(joined)
            same(result, call(one.to_dtype(joined), other.to_dtype(joined)).numpy())
        assert (one < other).tolist() == [a < b for a, b in zip(one.tolist(), other.tolist(), strict=True)]


def test_in_place_the_dtype_stays(device: Device) -> None:
    x = Tensor([1.0, 2.0], device=device)
    x += Tensor([0.5, 0.25], "bf16", device)
    assert x.tolist() == [1.5, 2.25]
    # In the wider dtype, and rounded once.
    small = Tensor([1.0, 256.0], "bf16", device)
    small *= Tensor([1 / 3, 1 + 2**-8], device=device)
    assert small.tolist() == [0.333984375, 256.0]
    full = Tensor([1, 2], "i32", device)
    full += Tensor([2**33 + 1, 1], "i64", device)
    same(full, np.array([2, 3], np.int32))
    with pytest.raises(DTypeMismatch, match=r"^add_: a tensor of i32 is written to in place, and does not take f32"):
        full += x


def test_tensors_hash_by_identity() -> None:
    first, second = Tensor([1.0]), Tensor([1.0])
    assert len({first: 1, second: 2}) == 2
    assert hash(first) == hash(first)


def test_reductions(device: Device) -> None:
    array = numbers((2, 3, 4))
    tensor = Tensor(array, device=device)
    same(tensor.sum(), array.sum(dtype=np.float32))
    same(tensor.sum(-1), array.sum(-1))
    same(tensor.sum((0, 2)), array.sum((0, 2)))
    same(tensor.sum([0, -1], keepdim=True), array.sum((0, 2), keepdims=True))
    same(tensor.max(1), array.max(1))
    same(tensor.min(), array.min())
    same(tensor.argmax(2), array.argmax(2).astype(np.uint32))
    same(tensor.argmin(0, keepdim=True), array.argmin(0, keepdims=True).astype(np.uint32))
    same(tensor.sum(()), array)
    same(Tensor.zeros((0, 3), device=device).sum(0), np.zeros(3, np.float32))
    with pytest.raises(EmptyTensor, match="no max of no elements"):
        Tensor.zeros((0, 3), device=device).max(0)
    same(Tensor.zeros((0, 3), device=device).max(1), np.zeros(0, np.float32))
    with pytest.raises(InvalidArgument, match="dim 3 does not exist"):
        tensor.sum(3)
    with pytest.raises(InvalidArgument, match="twice"):
        tensor.sum((0, -3))


def test_means(device: Device) -> None:
    array = numbers((3, 4))
    tensor = Tensor(array, device=device)
    same(tensor.mean(0), array.mean(0))
    same(tensor.mean(keepdim=True), array.mean(keepdims=True))
    # The sum would not fit into f16.
    same(Tensor.full(100, 60000.0, dtype=DType.F16, device=device).mean(), np.array(60000, np.float16))
    assert np.isnan(Tensor.zeros(0, device=device).mean().item())
    with pytest.raises(InvalidArgument, match=r"^mean: .*twice"):
        tensor.mean((0, -2))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_sums_products_and_means_of_integers_do_not_wrap(device: Device, dtype: DType) -> None:
    highest = int(np.iinfo(dtype.numpy).max)
    array = np.full((300, 4), min(highest, 2**50), dtype.numpy)
    tensor = Tensor(array, device=device)
    total = np.uint64 if dtype is DType.U64 else np.int64
    for dim in (None, 0, 1, (0, 1)):
        same(tensor.sum(dim), array.sum(dim, dtype=total))
        mean = tensor.mean(dim).numpy()
        assert mean.dtype == np.float32
        np.testing.assert_allclose(mean, array.mean(dim), rtol=2**-23)
    same(tensor.sum(1, keepdim=True), array.sum(1, keepdims=True, dtype=total))
    same(tensor.cumsum(0), array.cumsum(0, dtype=total))
    same(tensor[:2, 0].prod(), array[:2, 0].prod(dtype=total))
    # A sum of these wraps, their mean does not.
    same(Tensor([highest] * 4, dtype, device).mean(), np.array(highest, np.float32))
    empty = Tensor.zeros((0, 3), dtype=dtype, device=device)
    same(empty.sum(0), np.zeros(3, total))
    same(empty.prod(0), np.ones(3, total))
    assert np.isnan(empty.mean(0).numpy()).all()
    for name in ("sum", "prod", "mean"):
        with pytest.raises(InvalidArgument, match=f"^{name}: dim 2 does not exist"):
            getattr(tensor, name)(2)


def test_a_mask_is_counted(device: Device) -> None:
    mask = Tensor.arange(1000, device=device) >= 100
    same(mask.sum(), np.array(900))
    same(mask.mean(), np.array(0.9, np.float32))


def test_the_storage_sums_integers_as_candle_does(device: Device) -> None:
    x = Tensor([200, 100], DType.U8, device)
    assert x.storage.reduce_op(ReduceOp.SUM, x.layout, (0,)).to_numpy() == [44]


@pytest.mark.parametrize("dtype", [DType.BOOL, *INTEGERS])
def test_where(device: Device, dtype: DType) -> None:
    condition, x = Tensor([[1], [0]], dtype, device), Tensor([1.0, 2.0], device=device)
    same(condition.where(x, -x), np.array([[1, 2], [-1, -2]], np.float32))
    same(condition.where(x, 9), np.array([[1, 2], [9, 9]], np.float32))
    same(condition.where(9, x), np.array([[9, 9], [1, 2]], np.float32))
    same(condition.where(1, 2), np.array([[1], [2]]))
    same(condition.where(1, 2.5), np.array([[1], [2.5]], np.float32))
    same(condition.where(True, False), np.array([[True], [False]]))
    same(tallow.where(condition, 1j, 2), np.array([[1j], [2]], np.complex64))
    same(tallow.where(condition, x, 0), np.array([[1, 2], [0, 0]], np.float32))
    with pytest.raises(InvalidArgument, match=r"^where: on_false must be a Tensor or a Python number"):
        condition.where(1, "2")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"^where: condition must be a Tensor"):
        tallow.where(True, x, x)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedDType, match=r"^where: f32 .* a condition, which comes first, is of truth values"):
        x.where(x, x)
    same(condition.where(x, condition), np.array([[1, 2], [0, 0]], np.float32))
    with pytest.raises(DTypeMismatch, match=r"^where: "):
        condition.where(x.to_dtype(DType.COMPLEX64), Tensor(1, device=device))


def test_fill_takes_numbers_of_the_dtype() -> None:
    with pytest.raises(InvalidArgument, match=r"2\.5 is not an integer"):
        Tensor.zeros(2, dtype=DType.I32).fill_(2.5)
    same(Tensor.full((2, 2), 1.5, dtype=DType.BF16).to_dtype(DType.F32), np.full((2, 2), 1.5, np.float32))


def test_to_dtype_of_the_same_dtype_is_the_tensor() -> None:
    tensor = Tensor([1.5, -2.5])
    assert tensor.to_dtype(DType.F32) is tensor
    same(tensor.to_dtype(DType.I32), np.array([1, -2], np.int32))
