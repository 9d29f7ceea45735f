"""DLPack on the device: tensors that other libraries share without a copy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....dtype import DType
from ...base.error import InvalidArgument, UnsupportedDType
from ...core.layout import Layout
from ...core.shape import Shape
from ...host.dlpack import NAME, TAKEN, DataType, DeviceOf, ManagedTensor, content, is_named, rename, said_by
from .driver import slow_path
from .driver.resource import release_with
from .ops.copy import fresh
from .ops.operand import Operand

if TYPE_CHECKING:
    from .gpu_base import GpuBase
    from .memory.storage import GpuStorage


class _Lent:
    """An object that NumPy converts to an array on the host: elements of the same size at the same address."""

    def __init__(self, storage: GpuStorage, layout: Layout, give_back: Callable[[], None]) -> None:
        size = storage.dtype.itemsize
        self.storage = storage
        self.__array_interface__ = {
            "version": 3,
            "data": (storage.memory.address + layout.start_offset * size, False),
            "typestr": f"|u{size}" if size == 1 else f"<{'u' if size <= 8 else 'c'}{size}",
            "shape": tuple(layout.shape),
            "strides": tuple(stride * size for stride in layout.strides),
        }
        release_with(self, give_back)


def export(storage: GpuStorage, layout: Layout, stream: int | None, copy: bool) -> object:
    """A capsule with the elements that `layout` reaches, or a copy of them; it keeps them until its taker is done.

    Work that is enqueued in `stream`, a handle of the vendor's, from now on waits for what is enqueued here; None is
    the default stream, and -1 leaves the order of things to the taker.
    """
    if copy:
        storage, layout = storage.device.run(fresh, Operand(storage, layout)), Layout.contiguous(layout.shape)
    facts = storage.dtype.dlpack
    if facts is None:
        raise UnsupportedDType(
            "dlpack", storage.dtype, storage.device.backend, "DLPack has no such type; convert with to_dtype first"
        )
    driver = storage.device.driver
    if stream != -1:
        driver.let_wait(stream or 0)

    def give_back() -> None:
        # The memory may be reused as soon as the storage is deleted, but the taker may still have work for it.
        # The default streams are there for ever; any other may be gone by now, and with it how to wait for it alone.
        if stream in (None, 0, 1, 2):
            driver.wait_for(stream or 0)
        else:
            driver.synchronize_device()

    # NumPy's capsules are freed in C, at any time and by any thread; a function of Python could not be, least of
    # all while an exception is being raised. NumPy never looks at the elements, so they may as well be on the device.
    capsule = np.asarray(_Lent(storage, layout, give_back)).__dlpack__()
    storage.share()
    tensor = said_by(capsule)
    assert tensor is not None, "the capsule is unused"
    tensor.device = DeviceOf(storage.device.dlpack, storage.device.ordinal)
    tensor.dtype = DataType(*facts, 1)
    return capsule


class Borrowed:
    """Memory of another library at `address`, released when this object is deleted."""

    __slots__ = ("__weakref__", "address", "nbytes")

    def __init__(self, address: int, nbytes: int, give_back: Callable[[], None]) -> None:
        self.address = address
        self.nbytes = nbytes
        release_with(self, give_back)


def take(device: GpuBase, source: Any) -> tuple[GpuStorage, Layout]:
    """The elements of another library's tensor, without a copy.

    Raises InvalidArgument for what is no capsule of a tensor or was taken before, memory that is not the device's, a
    dtype that no tensor has, or strides below 0.
    """
    if slow_path.required:
        device.driver.refuse_sharing()
    capsule = source.__dlpack__(stream=device.driver.stream)
    if is_named(capsule, TAKEN):
        raise InvalidArgument("from_dlpack", "the capsule was taken before; export the tensor again")
    if not is_named(capsule, NAME):
        reason = f"__dlpack__ gave {capsule!r}, which is no capsule called {NAME.decode()}"
        raise InvalidArgument("from_dlpack", f"{reason}; give a tensor that exports one")
    address = content(capsule, NAME)
    managed = ManagedTensor.from_address(address)
    tensor = managed.tensor
    shape = Shape(tensor.shape[: tensor.rank])
    layout = Layout.contiguous(shape)
    if tensor.strides:
        layout = Layout(shape, tuple(tensor.strides[: tensor.rank]))
    dtype = _dtype_of(tensor.dtype)
    reach = 1 + sum((size - 1) * stride for size, stride in zip(shape, layout.strides, strict=True))
    count = reach if math.prod(shape) else 0
    begin = (tensor.data or 0) + tensor.byte_offset
    _require_memory(device, tensor.device, begin, count)
    # From here on the capsule does nothing at its end, and its memory is ours to release.
    rename(capsule, TAKEN)

    def give_back() -> None:
        # The other library cannot know what is still enqueued here.
        try:
            device.driver.synchronize()
        finally:
            if managed.deleter:
                managed.deleter(address)

    memory = Borrowed(begin, count * dtype.itemsize, give_back)
    return device.storage_class(device, dtype, count, memory), layout


def _require_memory(device: GpuBase, stated: DeviceOf, address: int, count: int) -> None:
    """Refuse what the capsule says is elsewhere, and what is elsewhere whatever it says: kernels would fault."""
    expected, own = (stated.type, stated.ordinal), (device.dlpack, device.ordinal)
    if expected != own:
        raise InvalidArgument("from_dlpack", f"the capsule is of device {expected} of DLPack, and its source of {own}")
    if count and not device.driver.holds(address):
        reason = f"the capsule's memory, at {address:#x}, is not that of {device.driver.label}, whose it says it is"
        raise InvalidArgument("from_dlpack", f"{reason}; copy the tensor to the device first")


def _dtype_of(data_type: DataType) -> DType:
    dtype = data_type.dtype
    if dtype is None:
        reason = f"no dtype for DLPack's code {data_type.code} with {data_type.bits} bits and {data_type.lanes} lanes"
        known = ", ".join(each.value for each in DType)
        raise InvalidArgument("from_dlpack", f"{reason}; convert the tensor to one of {known}")
    return dtype
