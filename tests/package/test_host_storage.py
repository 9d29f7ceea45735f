"""Storages of the CPU on arrays of the caller's: kernels are given their addresses, so nothing else gets in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tallow as tl
from tallow.runtime.backends.cpu_backend.storage import CpuStorage, QCpuStorage
from tallow.runtime.base.error import InvalidArgument

DEVICE = tl.Device.cpu().inner


def read_only() -> np.ndarray:
    array = np.ones(6, np.float32)
    array.flags.writeable = False
    return array


WRONG: dict[str, Callable[[], object]] = {
    "strided": lambda: np.ones(12, np.float32)[::2],
    "reversed": lambda: np.ones(6, np.float32)[::-1],
    "broadcast": lambda: np.broadcast_to(np.float32(1), (6,)),
    "repeated": lambda: np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (6,), (0,)),
    "read-only": read_only,
    "misaligned": lambda: np.ones(25, np.uint8)[1:].view(np.float32),
    "big-endian": lambda: np.ones(6, ">f4"),
    "of another dtype": lambda: np.ones(6, np.int32),
    "narrower": lambda: np.ones(6, np.float16),
    "of rank 2": lambda: np.ones((2, 3), np.float32),
    "of rank 0": lambda: np.float32(1).reshape(()),
    "a list": lambda: [1.0] * 6,
    "None": lambda: None,
}


@pytest.mark.parametrize("name", WRONG)
def test_an_array_that_kernels_cannot_take_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"data is a writable, contiguous NumPy array of rank 1.* float32, not "):
        CpuStorage(DEVICE, tl.DType.F32, WRONG[name]())  # type: ignore[arg-type]
    storage = CpuStorage(DEVICE, tl.DType.F32, np.zeros(6, np.float32))
    held = storage.data
    with pytest.raises(InvalidArgument, match="data is a writable, contiguous NumPy array of rank 1, 6 elements"):
        storage.data = WRONG[name]()
    assert storage.data is held


@pytest.mark.parametrize("length", [0, 5, 7])
def test_an_array_of_another_length_does_not_take_the_place_of_the_elements(length: int) -> None:
    storage = CpuStorage(DEVICE, tl.DType.F32, np.zeros(6, np.float32))
    with pytest.raises(InvalidArgument, match=rf"6 elements and dtype float32, not one of shape \({length},\)"):
        storage.data = np.zeros(length, np.float32)


def test_blocks_are_bytes_side_by_side() -> None:
    data = np.zeros(36, np.uint8)
    assert QCpuStorage(DEVICE, tl.GgmlDType.Q4_0, data).length == 64
    for wrong in (data[::2], data.view(np.int8), data.reshape(2, 18), None):
        with pytest.raises(InvalidArgument, match="data is a contiguous NumPy array of rank 1"):
            QCpuStorage(DEVICE, tl.GgmlDType.Q4_0, wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [dtype for dtype in tl.DType if dtype is not tl.DType.BOOL])
def test_what_fits_is_shared_and_written_to(dtype: tl.DType) -> None:
    first, second = np.zeros(6, dtype.numpy), np.ones(6, dtype.numpy)
    storage = CpuStorage(DEVICE, dtype, first)
    assert storage.data is first
    storage.data = second
    x = tl.Tensor.from_storage(tl.Device.cpu().storage_owned(storage.data), (6,))
    x.add_(1)
    assert (second == 2).all() and storage.address == second.__array_interface__["data"][0]
