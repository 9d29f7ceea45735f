"""Truth values: masks, and what is made of them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import tallow
from tallow import Device, DType, EmptyTensor, InvalidArgument, ShapeMismatch, Tensor, UnsupportedDType

from .arrays import NUMBERS, numbers, same

TRUTHS = np.array([[True, False, True], [False, False, True]])
OTHERS = np.array([True, True, False])
LOGIC = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}


def test_truth_values_of_python_and_numpy_are_bool(device: Device) -> None:
    for data in ([[True, False, True], [False, False, True]], TRUTHS):
        tensor = Tensor(data, device=device)
        assert tensor.dtype is DType.BOOL
        same(tensor, TRUTHS)
    assert Tensor(True, device=device).item() is True
    assert Tensor(np.False_, device=device).item() is False
    assert Tensor(TRUTHS, device=device).tolist() == TRUTHS.tolist()
    same(Tensor([0.0, -2.5, np.nan], DType.BOOL, device), np.array([False, True, True]))
    same(Tensor([0, 10**30], DType.BOOL, device), np.array([False, True]))
    assert Tensor([True, 2], device=device).dtype is DType.I64
    assert (bool(Tensor(True, device=device)), int(Tensor(True, device=device))) == (True, 1)


def test_bytes_of_others_that_are_neither_0_nor_1_are_true(device: Device) -> None:
    strange = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    tensors = [Tensor.from_numpy(strange, device)]
    if device.backend == "cpu":
        tensors.append(Tensor.from_dlpack(strange.copy()))
    for tensor in tensors:
        np.testing.assert_array_equal(tensor.numpy().view(np.uint8), [0, 1, 1, 1])
        same(tensor.to_dtype(DType.U8), np.array([0, 1, 1, 1], np.uint8))
        same(tensor.sum(), np.array(3))
        # The first of equals, whatever its byte.
        same(tensor.argmax(), np.array(1, np.uint32))
        same(tensor.min(), np.array(False))
        same(tensor == True, np.array([False, True, True, True]))  # noqa: E712


@pytest.mark.parametrize("dtype", NUMBERS)
def test_conversions(device: Device, dtype: DType) -> None:
    same(Tensor(TRUTHS, device=device).to_dtype(dtype), TRUTHS.astype(dtype.numpy))
    array = numbers((3, 40), dtype)
    same(Tensor(array, device=device).to_dtype(DType.BOOL), array != 0)
    same(Tensor(array, device=device).T.to_dtype("bool"), array.T != 0)


@pytest.mark.parametrize("name", LOGIC)
def test_logic_of_any_dtypes(device: Device, name: str) -> None:
    floats = np.array([[0.0, np.nan, -1.0], [0.0, 2.0, 0.0]], np.float32)
    for x, y in ((TRUTHS, OTHERS), (floats, OTHERS), (TRUTHS, floats), (floats, np.array([3, 0, 0]))):
        expected = LOGIC[name](x, y)
        same(getattr(Tensor(x, device=device), name)(Tensor(y, device=device)), expected)
        same(getattr(Tensor(y, device=device), name)(Tensor(x, device=device)), LOGIC[name](y, x))
    for number in (True, 0, 2.5, float("nan")):
        same(getattr(Tensor(floats, device=device), name)(number), LOGIC[name](floats, number))
    same(Tensor(floats, device=device).logical_not(), np.logical_not(floats))
    with pytest.raises(InvalidArgument, match=rf"^{name}: other must be a Tensor or a Python number, not of type str"):
        getattr(Tensor(TRUTHS), name)("True")
    with pytest.raises(ShapeMismatch, match=rf"^{name}: "):
        getattr(Tensor(TRUTHS), name)(Tensor([True, False]))


def test_operators_of_masks(device: Device) -> None:
    x, y = Tensor(TRUTHS, device=device), Tensor(OTHERS, device=device)
    for name in ("and_", "or_", "xor"):
        op = getattr(operator, name)
        same(op(x, y), op(TRUTHS, OTHERS))
        same(op(x, True), op(TRUTHS, True))
        same(op(False, x), op(False, TRUTHS))
    same(~x, ~TRUTHS)
    same((Tensor([1.0, 5.0, 9.0], device=device) > 2) & ~y, np.array([False, False, True]))
    x &= y
    same(x, TRUTHS & OTHERS)


def test_what_masks_do_not_do() -> None:
    mask = Tensor(TRUTHS)
    for op in (operator.add, operator.sub, operator.mul, operator.floordiv):
        with pytest.raises(UnsupportedDType, match=r"bool is not supported on cpu: .* convert with to_dtype"):
            op(mask, mask)
    same(mask & Tensor([1, 2, 3]), TRUTHS.astype(np.int64) & [1, 2, 3])
    for call in (lambda: Tensor([1.0]) & Tensor([1.0]), lambda: ~Tensor([1.0])):
        with pytest.raises(UnsupportedDType, match=r"^bitwise_\w+: f32 is not supported"):
            call()
    with pytest.raises(InvalidArgument, match=r"^fill_: 2 is neither True nor False.* with to_dtype first$"):
        mask.fill_(2)
    for name in ("neg", "abs", "norm"):
        with pytest.raises(UnsupportedDType, match="convert with to_dtype"):
            getattr(mask, name)()


def test_reductions_of_masks(device: Device) -> None:
    mask = Tensor(TRUTHS, device=device)
    for dim in (None, 0, 1):
        same(mask.any(dim), TRUTHS.any(dim))
        same(mask.all(dim), TRUTHS.all(dim))
        same(mask.sum(dim), TRUTHS.sum(dim))
        same(mask.prod(dim), TRUTHS.prod(dim))
        same(mask.count_nonzero(dim), np.asarray(np.count_nonzero(TRUTHS, dim)))
        same(mask.mean(dim), TRUTHS.mean(dim, dtype=np.float32))
        for name in ("max", "min"):
            same(getattr(mask, name)(dim), np.asarray(getattr(TRUTHS, name)(dim)))
            expected = getattr(TRUTHS, f"arg{name}")(dim)
            same(getattr(mask, f"arg{name}")(dim), np.asarray(expected, np.uint32))
    same(mask.cumsum(1), TRUTHS.cumsum(1))
    floats = np.array([0.0, -0.0, np.nan, 3.5], np.float32)
    same(Tensor(floats, device=device).count_nonzero(0, keepdim=True), np.array([2]))
    for name in ("max", "argmin"):
        with pytest.raises(EmptyTensor):
            getattr(mask[:0], name)(0)
    with pytest.raises(InvalidArgument, match=r"^count_nonzero: dim 2 does not exist"):
        mask.count_nonzero(2)


def test_moves_of_masks(device: Device) -> None:
    mask = Tensor(TRUTHS, device=device)
    same(tallow.cat([mask, ~mask], 1), np.concatenate([TRUTHS, ~TRUTHS], 1))
    same(
        mask.gather(Tensor([[2, 0], [1, 2]], device=device), 1),
        np.take_along_axis(TRUTHS, np.array([[2, 0], [1, 2]]), 1),
    )
    same(mask.T.copy(), TRUTHS.T)
    same(Tensor([True, False, True], device=device).where(mask, False), np.where([True, False, True], TRUTHS, False))
    written = mask.copy()
    written[0] = False
    written[1, 1:] = Tensor([True, False], device=device)
    same(written, np.array([[False, False, False], [False, True, False]]))
    same(Tensor.ones(3, dtype="bool", device=device), np.ones(3, bool))


def test_masked_fill(device: Device) -> None:
    array = numbers((2, 3))
    x, mask = Tensor(array, device=device), Tensor(OTHERS, device=device)
    same(x.masked_fill(mask, -np.inf), np.where(OTHERS, np.float32(-np.inf), array))
    same(x.masked_fill(mask, Tensor(7.0, device=device)), np.where(OTHERS, np.float32(7), array))
    same(x.masked_fill(mask.to_dtype(DType.U8), 0), np.where(OTHERS, np.float32(0), array))
    weight = tallow.Var(x)
    assert weight.masked_fill(mask, 5.0).sum().backward()[weight].tolist() == [[0, 0, 1], [0, 0, 1]]
    wrong: Any = [True, False, True]
    with pytest.raises(InvalidArgument, match=r"^masked_fill: mask must be a Tensor"):
        x.masked_fill(wrong, 0)
    with pytest.raises(ShapeMismatch, match=r"^masked_fill: "):
        x.masked_fill(Tensor([True, False], device=device), 0)
