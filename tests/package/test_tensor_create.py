"""New tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tallow import Device, DType, InvalidArgument, InvalidLayout, Layout, OutOfMemory, Shape, Tensor, UnsupportedDType

from .arrays import FLOATS, REALS, same


@pytest.mark.parametrize("dtype", DType)
def test_constants(device: Device, dtype: DType) -> None:
    same(Tensor.zeros((2, 3), dtype=dtype, device=device), np.zeros((2, 3), dtype.numpy))
    same(Tensor.ones((), dtype=dtype, device=device), np.ones((), dtype.numpy))
    number = 1 if dtype is DType.BOOL else 7
    same(Tensor.full(3, number, dtype=dtype, device=device), np.full(3, number, np.int64).astype(dtype.numpy))
    like = Tensor.zeros((2, 2), dtype=dtype, device=device).ones_like()
    same(like.T.zeros_like(), np.zeros((2, 2), dtype.numpy))
    assert like.device == device


def test_dtypes_follow_the_numbers(device: Device) -> None:
    assert Tensor.full(2, 7, device=device).dtype is DType.I64
    assert Tensor.full(2, 7.0, device=device).dtype is DType.F32
    assert Tensor.full(2, True, device=device).dtype is DType.BOOL
    same(Tensor.arange(4, device=device), np.arange(4))
    same(Tensor.arange(1, 2, 0.25, device=device), np.arange(1, 2, 0.25, np.float32))
    same(Tensor.arange(5, 0, -2, DType.F64, device), np.array([5.0, 3.0, 1.0]))
    same(Tensor.arange(3, dtype=DType.U8, device=device), np.arange(3, dtype=np.uint8))
    same(Tensor.full(1, np.int64(2**53 + 1), device=device), np.array([2**53 + 1]))
    same(Tensor.full(1, np.float64(0.5), device=device), np.array([0.5], np.float32))
    same(Tensor.arange(np.int64(3), device=device), np.arange(3))
    same(Tensor.arange(2**63 - 3, 2**63, device=device), np.arange(3) + (2**63 - 3))
    same(Tensor.arange(-(2**63), 2**63, 2**62, device=device), np.arange(-2, 2) * 2**62)
    same(Tensor.arange(5, 0, device=device), np.arange(0))
    same(Tensor.arange(5.0, 0, device=device), np.zeros(0, np.float32))
    same(Tensor.arange(250, 256, dtype=DType.U8, device=device), np.arange(250, 256, dtype=np.uint8))
    same(Tensor.arange(300, 300, dtype=DType.U8, device=device), np.zeros(0, np.uint8))
    same(Tensor.arange(0.0, 4.0, 2, DType.I16, device), np.array([0, 2], np.int16))


@pytest.mark.parametrize(
    ("numbers", "error", "message"),
    [
        ((0, 3, 0), InvalidArgument, "step is not 0"),
        ((0, math.nan), InvalidArgument, "are finite"),
        ((0, math.inf), InvalidArgument, "are finite"),
        ((0, 1, 1e-320), InvalidArgument, "are finite"),
        ((0, 1.0, 10**400), InvalidArgument, "beyond the range of floating point"),
        ((2**63, 2**63 + 3), InvalidArgument, "range of i64"),
        ((250, 257, 1, DType.U8), InvalidArgument, "range of u8, 0 to 255; use a wider dtype"),
        ((-1, 3, 1, DType.U32), InvalidArgument, "range of u32"),
        ((1, -2, -1, DType.U8), InvalidArgument, "range of u8"),
        ((0.0, 300.0, 1, DType.U8), InvalidArgument, "range of u8"),
        ((0, 1, 0.25, DType.I32), InvalidArgument, "not all of the numbers are integers"),
        (("a",), InvalidArgument, "a Python number, not of type str"),
        ((0, 1e30), OutOfMemory, "no memory for"),
        ((2**62,), OutOfMemory, "no memory for"),
    ],
)
def test_ranges_that_do_not_exist(numbers: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Tensor.arange(*numbers)


def test_one_size_is_a_shape() -> None:
    for size in (3, np.int64(3), np.uint8(3)):
        assert Tensor.zeros(size).shape == (3,)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", FLOATS)
def test_random_numbers(device: Device, dtype: DType) -> None:
    device.set_seed(7)
    first = Tensor.rand((4, 25), lo=-1.0, up=1.0, dtype=dtype, device=device)
    second = Tensor.rand((4, 25), lo=-1.0, up=1.0, dtype=dtype, device=device)
    device.set_seed(7)
    same(Tensor.rand(100, lo=-1.0, up=1.0, dtype=dtype, device=device), first.numpy().reshape(100))
    values = first.numpy().astype(np.float64)
    assert values.min() >= -1
    assert values.max() < 1
    assert not np.array_equal(values, second.numpy().astype(np.float64))
    normal = Tensor.randn(1000, mean=10.0, std=0.5, dtype=dtype, device=device).numpy().astype(np.float64)
    assert abs(normal.mean() - 10) < 0.1
    same(Tensor.randn(3, mean=2.0, std=0.0, dtype=dtype, device=device), np.full(3, 2.0).astype(dtype.numpy))


def test_random_numbers_that_do_not_exist(device: Device) -> None:
    with pytest.raises(UnsupportedDType, match=r"^rand: i32 .*draw in f32"):
        Tensor.rand(3, dtype=DType.I32, device=device)
    with pytest.raises(InvalidArgument, match=r"^rand: .*lo is below up"):
        Tensor.rand(3, lo=1.0, up=1.0, device=device)
    with pytest.raises(InvalidArgument, match=r"^randn: .*std is finite and 0 or more"):
        Tensor.randn(3, std=-1.0, device=device)
    with pytest.raises(InvalidArgument, match=r"^randn: the mean is finite"):
        Tensor.randn(3, mean=math.inf, device=device)


@pytest.mark.parametrize("shape", [(1 << 60,), (1 << 61,), (1 << 62, 4), (1 << 100,)])
def test_more_elements_than_there_is_room_for(device: Device, shape: tuple[int, ...]) -> None:
    """Also more than the memory of any machine could be counted in."""
    message = f"no memory for {8 * math.prod(shape)} bytes"
    makers: tuple[Callable[..., Tensor], ...] = (Tensor.zeros, Tensor.ones, Tensor.rand, Tensor.randn)
    for make in makers:
        with pytest.raises(OutOfMemory, match=message):
            make(shape, dtype=DType.F64, device=device)


@pytest.mark.parametrize("shape", [-1, (2, -1), (1,) * 9, (1.5,), 1.5, "ab"])
@pytest.mark.parametrize("name", ["zeros", "ones", "rand", "randn"])
def test_shapes_that_do_not_exist(name: str, shape: object) -> None:
    with pytest.raises(InvalidArgument, match=f"^{name}: "):
        getattr(Tensor, name)(shape)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("randn", (2, 2)),
        ("rand", (2, 3, 4)),
        ("zeros", (2, 2)),
        ("zeros", ((2, 2), DType.F16)),
        ("ones", (2, 2)),
        ("full", (2, 2, 7.0)),
    ],
)
def test_sizes_one_by_one_are_no_shape(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{name}: pass the shape as one tuple, such as \(2, 3\)"):
        getattr(Tensor, name)(*arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tensor.full(2, 300, dtype=DType.U8), "^full: 300 is outside .*; use a wider dtype$"),
        (lambda: Tensor.full(2, 0.5, dtype=DType.U8), "^full: 0.5 is not an integer.*; use a floating-point dtype$"),
        (lambda: Tensor.full(2, "a"), "^full: "),
        (lambda: Tensor.zeros(2, dtype=DType.U8).fill_(300), "^fill_: 300 is outside .*with to_dtype first$"),
    ],
)
def test_a_number_that_the_dtype_lacks_is_told_by_what_was_called(make: Callable[[], Tensor], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make()


@pytest.mark.parametrize("dtype", DType)
def test_dtypes_by_name(device: Device, dtype: DType) -> None:
    for name in (dtype, dtype.value, dtype.numpy.name, dtype.numpy, dtype.numpy.type):
        assert Tensor([1], name, device).dtype is dtype
        assert Tensor.zeros(2, dtype=name, device=device).dtype is dtype
        assert Tensor.ones(2, dtype=name, device=device).dtype is dtype
        assert Tensor.full(2, 1, dtype=name, device=device).dtype is dtype
        if dtype in REALS:
            assert Tensor.arange(2, dtype=name, device=device).dtype is dtype
        assert Tensor([1], device=device).to_dtype(name).dtype is dtype
        if dtype.is_float:
            assert Tensor.rand(2, dtype=name, device=device).dtype is dtype
            assert Tensor.randn(2, dtype=name, device=device).dtype is dtype
    tensor = Tensor.zeros(2, dtype=dtype, device=device)
    assert tensor.to_dtype(dtype.value) is tensor


@pytest.mark.parametrize("dtype", DType)
def test_storages_and_devices_take_dtypes_by_name(device: Device, dtype: DType) -> None:
    shape = Shape((2,))
    for name in (dtype.value, dtype.numpy.name, dtype.numpy, dtype.numpy.type):
        assert device.zeros(shape, name).dtype is dtype
        assert device.alloc_uninit(shape, name).dtype is dtype
        storage = device.storage_from_slice([1, 2], name)
        assert storage.dtype is dtype
        assert device.storage_from_slice([1, 2], DType.I64).to_dtype(Layout.contiguous(shape), name).dtype is dtype
        if dtype.is_float:
            assert device.rand_uniform_f64(0, 1, shape, name).dtype is dtype
            assert device.rand_normal_f64(0, 1, shape, name).dtype is dtype
    for call in (lambda: device.zeros(shape, "f17"), lambda: storage.to_dtype(Layout.contiguous(shape), "f17")):
        with pytest.raises(InvalidArgument, match=r"^(zeros|to_dtype): dtype must be a DType, .* not 'f17'"):
            call()


@pytest.mark.parametrize(
    "dtype",
    ["f17", "F32", "<f4", "f8", "", "int24", np.longdouble, np.dtype(">f4"), float, int, 4, None, ["f32"]],
)
def test_what_is_no_dtype(dtype: Any) -> None:
    calls: dict[str, Callable[[], Tensor]] = {
        "zeros": lambda: Tensor.zeros(2, dtype=dtype),
        "ones": lambda: Tensor.ones(2, dtype=dtype),
        "rand": lambda: Tensor.rand(2, dtype=dtype),
        "randn": lambda: Tensor.randn(2, dtype=dtype),
        "to_dtype": lambda: Tensor([1]).to_dtype(dtype),
    }
    if dtype is not None:
        calls["tensor"] = lambda: Tensor([1], dtype)
        calls["full"] = lambda: Tensor.full(2, 1, dtype=dtype)
        calls["arange"] = lambda: Tensor.arange(2, dtype=dtype)
    for name, call in calls.items():
        with pytest.raises(
            InvalidArgument, match=f"^{name}: dtype must be a DType, its name .*; use one of bool, u8, .*, f8e4m3"
        ):
            call()


def test_tensors_of_a_storage(device: Device) -> None:
    storage = Tensor([1.0, 2.0, 3.0, 4.0], device=device).storage
    matrix = Tensor.from_storage(storage, (2, 2))
    same(matrix, np.array([[1, 2], [3, 4]], np.float32))
    assert matrix.storage is storage
    same(Tensor.from_storage(storage, 3), np.array([1, 2, 3], np.float32))
    same(Tensor.from_storage(storage, Layout((2,), (2,), 1)), np.array([2, 4], np.float32))
    with pytest.raises(InvalidLayout, match=r"^from_storage: .* 4 elements"):
        Tensor.from_storage(storage, 5)
    with pytest.raises(InvalidLayout, match=r"^from_storage: .* 4 elements"):
        Tensor.from_storage(storage, Layout((2,), (2,), 2))
    with pytest.raises(InvalidArgument, match=r"^from_storage: .* Storage\(inner\)"):
        Tensor.from_storage(storage.inner, 4)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"^from_storage: "):
        Tensor.from_storage(storage, "ab")  # type: ignore[arg-type]
