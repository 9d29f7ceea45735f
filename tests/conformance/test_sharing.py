"""Elements pass to other libraries and back by DLPack, and share their memory where both can."""

from __future__ import annotations

import numpy as np
import pytest
from tallow import Device, InvalidArgument, Tensor
from tallow.runtime.backends.array_backend.device import ArrayDevice

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def on_the_host(device: Device) -> None:
    if device.dlpack[0] != 1:
        pytest.skip("NumPy takes what is in the memory of the host alone")


def test_elements_are_exported_without_a_copy(device: Device) -> None:
    x = Tensor(X, device=device)
    assert np.from_dlpack(x).tolist() == X.tolist()
    # Some libraries copy where they reshape.
    exported = x.flatten() if isinstance(device.inner, ArrayDevice) else x
    assert np.from_dlpack(exported).ctypes.data == np.from_dlpack(exported).ctypes.data
    assert np.from_dlpack(x.T).tolist() == X.T.tolist()


def test_elements_are_imported_without_a_copy_where_the_library_does_so(device: Device) -> None:
    inputs = X.copy()
    taken = np.from_dlpack(Tensor.from_dlpack(inputs, device=device))
    assert taken.tolist() == X.tolist()
    is_shared = True
    if isinstance(device.inner, ArrayDevice):
        array = device.inner.library.from_dlpack(inputs, device.inner.handle)
        is_shared = np.from_dlpack(array).ctypes.data == inputs.ctypes.data
    assert (taken.ctypes.data == inputs.ctypes.data) == is_shared


def test_a_device_without_the_memory_is_refused(device: Device) -> None:
    class Elsewhere:
        def __dlpack__(self) -> object:
            raise AssertionError("nobody asks for it")

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 7

    with pytest.raises(InvalidArgument, match=r"source is on device \(1, 7\) of DLPack"):
        Tensor.from_dlpack(Elsewhere(), device=device)
