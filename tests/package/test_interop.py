"""Exchange with Python, NumPy and DLPack."""

from __future__ import annotations

import copy
import pickle
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from tallow import BackendUnavailable, Device, DType, GradientError, InvalidArgument, Tensor, Var

from .arrays import INTEGERS, numbers, same


@pytest.mark.parametrize("dtype", DType)
def test_arrays_come_back_as_they_were(device: Device, dtype: DType) -> None:
    array = numbers((2, 3), dtype)
    tensor = Tensor.from_numpy(array, device)
    assert tensor.dtype is dtype
    assert tensor.device == device
    same(tensor, array)
    same(Tensor.from_numpy(array[:, ::2].T, device), array[:, ::2].T)
    same(tensor[1:, ::2], array[1:, ::2])
    same(tensor[:0], array[:0])
    assert tensor.tolist() == array.tolist()
    array[0, 0] = array[0, 0] == 0
    assert tensor[0, 0].item() != array[0, 0]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (3, np.array(3)),
        (2.5, np.array(2.5, np.float32)),
        (True, np.array(True)),
        ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])),
        ([1, 2.5], np.array([1, 2.5], np.float32)),
        ([], np.zeros(0, np.float32)),
        (np.float64(2.5), np.array(2.5)),
        (np.array([True, False]), np.array([True, False])),
        (np.array([1, 2], ">i4"), np.array([1, 2], np.int32)),
        (range(3), np.arange(3)),
        (Tensor([1, 2], DType.I16), np.array([1, 2], np.int16)),
    ],
)
def test_dtypes_of_python_numbers_and_arrays(data: Any, expected: Any) -> None:
    same(Tensor(data), expected)


def test_construction_with_a_dtype(device: Device) -> None:
    same(Tensor([1.0, -2.0], DType.I16, device), np.array([1, -2], np.int16))
    same(Tensor([1, 2], DType.F64, device), np.array([1.0, 2.0]))
    # Once rounded from the number, not by way of f32, where it would be halfway between two f16.
    assert Tensor(1 + 2**-11 + 2**-40, DType.F16, device).item() == 1 + 2**-10
    same(Tensor(np.array([300.0, -1.0, np.nan]), DType.U8, device), np.array([255, 0, 0], np.uint8))


def test_integers_that_numpy_would_round(device: Device) -> None:
    extremes = [[-(2**63)], [2**63 - 1]]
    assert Tensor(extremes, device=device).tolist() == extremes
    assert Tensor([2**63 - 1, 1.0], DType.I64, device).tolist() == [2**63 - 1, 1]
    assert Tensor([2.0**62, -(2.0**63)], DType.I64, device).tolist() == [2**62, -(2**63)]
    beyond = Tensor([[0], [2**63], [2**64 - 1]], DType.U64, device)
    assert beyond.tolist() == [[0], [2**63], [2**64 - 1]]
    assert int(beyond[2]) == 2**64 - 1
    assert (beyond == 2**64 - 1).tolist() == [[0], [0], [1]]
    assert (beyond + 1).tolist() == [[1], [2**63 + 1], [0]]
    for number in (-1, 2**64):
        with pytest.raises(InvalidArgument, match=r"^tensor: not all of the numbers are in the range of u64, 0 to"):
            Tensor([number], DType.U64, device)
    assert Tensor(2**63, DType.F64, device).item() == 2.0**63
    assert Tensor([[-1, 2**64]], DType.F64, device).tolist() == [[-1.0, 2.0**64]]
    assert Tensor([2**64, 0.5], device=device).dtype is DType.F32
    # Just above halfway between two f32, and halfway if rounded to f64 first.
    assert Tensor([2**63 + 2**39 + 1], DType.F32, device).item() == 2**63 + 2**40
    assert Tensor([10**400, -(10**400)], DType.F64, device).tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_slices_of_integers_wrap_and_floats_saturate(device: Device, dtype: DType) -> None:
    for integers in ([2**63, -1], [-1, 2**63 + 5], [2**64 + 3], [-(2**70) - 3, 7]):
        actual = device.storage_from_slice(integers, dtype).to_numpy()
        bits = 8 * dtype.itemsize
        assert [int(number) % 2**bits for number in actual] == [number % 2**bits for number in integers]
    limits = np.iinfo(dtype.numpy)
    actual = device.storage_from_slice([1e30, -(2**63), -1e30], dtype).to_numpy()
    assert actual.tolist() == [limits.max, limits.min, limits.min]


@pytest.mark.parametrize("data", [[10**400, 0.5], ["a"]])
def test_slices_of_what_f64_lacks(data: Any) -> None:
    with pytest.raises(InvalidArgument, match="use integers, or floats"):
        Device.cpu().storage_from_slice(data, DType.F32)


@pytest.mark.parametrize(
    ("data", "dtype", "message"),
    [
        ([[1, 2], [3]], None, "one length"),
        (["a"], None, "'a' is no number"),
        ([1, [2]], None, "one length"),
        ([None], DType.F32, "None is no number"),
        ([1j], DType.I64, "1j is no number"),
        ([2**63], None, "range of i64, .*use a wider dtype"),
        ([2**64], None, "range of i64"),
        ([-1, 2**63], None, "range of i64"),
        ([-1, 2**63], DType.I64, "range of i64"),
        ([2.0**63], DType.I64, "range of i64"),
        ([-(2**63) - 1], DType.I64, "range of i64"),
        ([float("inf")], DType.I64, "round them or use a float"),
        ([2**63 - 1, 0.5], DType.I64, "round them or use a float"),
        ([1.5], DType.I32, "round them or use a float"),
        ([float("nan")], DType.I32, "round them or use a float"),
        ([300], DType.U8, "0 to 255; use a wider dtype"),
        ([-1], DType.U32, "use a wider dtype"),
        (np.zeros(2, np.clongdouble), None, "convert the array"),
        (np.zeros(2, np.longdouble), None, "convert the array"),
        (np.zeros((1,) * 9), None, "at most 8 dims"),
    ],
)
def test_data_that_no_tensor_holds(data: Any, dtype: DType | None, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Tensor(data, dtype)


def test_lists_that_are_no_array_are_refused_by_from_numpy(device: Device) -> None:
    with pytest.raises(InvalidArgument, match=r"^from_numpy: array is none of NumPy's: .*; use Tensor\(\) for lists"):
        Tensor.from_numpy([1, [2]], device)  # type: ignore[arg-type]


def test_elements_that_the_host_can_not_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.array([[1, 2], [3, 4]], np.float32)
    tensor = Tensor(array)
    monkeypatch.setattr(Tensor, "_host_view", lambda self: None)
    for index in (..., 1, slice(1), slice(1, None), slice(0, 0), (0, 1)):
        same(tensor[index], array[index])
    same(tensor.T, array.T)


def test_scalars() -> None:
    assert Tensor(3).item() == 3
    assert isinstance(Tensor(3).item(), int)
    assert Tensor([[2.5]], DType.BF16).item() == 2.5
    assert (float(Tensor(2.5)), int(Tensor(2.5)), bool(Tensor(2.5)), bool(Tensor([0]))) == (2.5, 2, True, False)
    for tensor in (Tensor([1, 2]), Tensor([])):
        with pytest.raises(InvalidArgument, match=r"is neither true nor false; use any\(\) or all\(\)"):
            bool(tensor)


def test_numpy_takes_tensors(device: Device) -> None:
    tensor = Tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    same(tensor, np.asarray(tensor))
    assert np.asarray(tensor.T, np.float64).tolist() == [[1.0, 3.0], [2.0, 4.0]]
    np.asarray(tensor)[0, 0] = 9
    assert tensor[0, 0].item() == 1


def test_numpy_shares_the_elements_if_told_not_to_copy() -> None:
    tensor = Tensor([[1.0, 2.0], [3.0, 4.0]])
    np.array(tensor.T, copy=False)[0, 1] = 9
    assert tensor[1, 0].item() == 9
    with pytest.raises(ValueError, match="copy"):
        np.array(tensor, np.float64, copy=False)


def test_moves(device: Device) -> None:
    tensor = Tensor([[1.0, 2.0], [3.0, 4.0]])
    moved = tensor.T.to(device)
    same(moved, tensor.numpy().T)
    assert moved.to(device) is moved
    same(moved[1:].to("cpu"), tensor.numpy().T[1:])
    assert moved.to(device.label) is moved
    with pytest.raises(InvalidArgument, match="unknown backend"):
        tensor.to("abacus")


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.is_of_numpy])
def test_dlpack_shares_the_elements_both_ways(dtype: DType) -> None:
    tensor = Tensor(numbers((2, 3), dtype))
    array = np.from_dlpack(tensor[:, 1:])
    same(tensor[:, 1:], array)
    written = 7 if dtype is not DType.BOOL else not array[0, 0]
    array[0, 0] = written
    assert tensor[0, 1].item() == written
    again = Tensor.from_dlpack(np.from_dlpack(tensor))
    again[0, 0].fill_(written)
    assert tensor[0, 0].item() == written
    assert tensor.__dlpack_device__() == (1, 0)


class Legacy:
    """A producer of the first version of the protocol, which can't say that its memory may be written."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, *, stream: None = None) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_dlpack_copies_what_must_not_be_written() -> None:
    array = np.array([1.0, 2.0])
    tensor = Tensor.from_dlpack(Legacy(array))
    tensor.fill_(5)
    assert array.tolist() == [1.0, 2.0]
    same(Tensor.from_dlpack(np.array([True, False])), np.array([True, False]))
    strided = np.arange(6.0).reshape(2, 3).T
    same(Tensor.from_dlpack(strided), strided)


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if not dtype.is_of_numpy])
def test_dlpack_has_dtypes_that_numpy_lacks(dtype: DType) -> None:
    tensor = Tensor(numbers((2, 3), dtype))
    again: Tensor = Tensor.from_dlpack(tensor)
    same(again, tensor.numpy())
    again[0, 0].fill_(-2)
    assert tensor[0, 0].item() == -2
    # Nobody says that the memory of a capsule of the first version may be written.
    copied: Tensor = Tensor.from_dlpack(Legacy(tensor[:, 1:]))
    same(copied, tensor[:, 1:].numpy())
    copied.fill_(1)
    assert again[0, 0].item() == -2


def test_dlpack_without_a_way() -> None:
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(Tensor([1.0], DType.BF16))
    with pytest.raises(InvalidArgument, match="source must export DLPack; its type list"):
        Tensor.from_dlpack([1.0])  # type: ignore[arg-type]


def test_copies_are_deep(device: Device) -> None:
    tensor = Tensor([1.0, 2.0], device=device)
    shallow, deep = copy.copy(tensor), copy.deepcopy(tensor)
    tensor.fill_(3)
    assert shallow.tolist() == [3.0, 3.0]
    assert deep.tolist() == [1.0, 2.0]
    assert deep.device == device
    assert copy.deepcopy(tensor[:1]).storage.length == 1


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", DType)
def test_a_pickled_tensor_returns_to_its_device(device: Device, dtype: DType, protocol: int) -> None:
    array = numbers((2, 3), dtype)
    for tensor in (Tensor(array, device=device), Tensor(array, device=device).T, Tensor(array, device=device)[0, 1]):
        again = pickle.loads(pickle.dumps(tensor, protocol))
        assert again.device == device
        same(again, tensor.numpy())
        again.fill_(1)
    storage = Tensor(array, device=device).storage
    again = pickle.loads(pickle.dumps(storage, protocol))
    assert again.device == device
    assert again.dtype is dtype
    assert again.to_numpy().tolist() == storage.to_numpy().tolist()
    assert pickle.loads(pickle.dumps(device, protocol)) == device


def test_a_pickled_view_takes_its_own_elements_along(device: Device) -> None:
    tensor = Tensor.zeros((1000, 1000), device=device)
    again = pickle.loads(pickle.dumps(tensor[3, :5]))
    assert again.storage.length == 5
    assert len(pickle.dumps(tensor[3, :5])) < 1000


@pytest.mark.parametrize("label", ["metal", "rocm:99", "abacus:0", "cpu:1"])
def test_unpickling_where_the_device_is_missing(monkeypatch: pytest.MonkeyPatch, label: str) -> None:
    with monkeypatch.context() as context:
        context.setattr(Device, "label", label)
        pickled = pickle.dumps(Tensor([1.0]))
    with pytest.raises(BackendUnavailable, match=f"unpickle where {label} is, or move what is pickled to the CPU"):
        pickle.loads(pickled)


def test_tensors_of_pytorch_keep_their_dtype() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is in no extra")
    checked = 0
    for dtype in DType:
        tensor = Tensor([[1, 0], [1, 1]]).to_dtype(dtype)
        theirs = torch.from_dlpack(tensor)
        assert theirs.to(torch.complex128).tolist() == [[1, 0], [1, 1]]
        for again in (Tensor.from_dlpack(theirs), Tensor(theirs), Tensor.from_numpy(theirs), Tensor(theirs.T).T):
            assert again.dtype is dtype
            same(again, tensor.numpy())
        assert Tensor(theirs, "complex128").dtype is DType.COMPLEX128
        copied = Tensor(theirs)
        theirs.zero_()
        same(copied, Tensor([[1, 0], [1, 1]]).to_dtype(dtype).numpy())
        checked += dtype is DType.BF16
    assert checked
    with pytest.raises(InvalidArgument, match=r"use tensor\.detach"):
        Tensor(torch.ones(2, requires_grad=True))
    for take in (torch.from_dlpack, np.from_dlpack, Tensor):
        w = Var(Tensor([1.0, 2.0]))
        with pytest.raises(GradientError, match=r"export x\.detach\(\)") if take is not Tensor else nullcontext():
            take(w * 2)


def test_tensors_of_others_keep_their_dtype(device: Device) -> None:
    """As those of PyTorch do, by DLPack: of a dtype that NumPy lacks too."""
    for dtype in DType:
        tensor = Tensor(numbers((2, 3), dtype), device=device)
        for make in (lambda source: Tensor(source, device=device), lambda source: Tensor.from_numpy(source, device)):
            again = make(Legacy(tensor))
            assert again.dtype is dtype
            assert again.device == device
            same(again, tensor.numpy())
