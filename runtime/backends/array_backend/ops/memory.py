"""New storages, and waiting: what a device does besides running ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .....dtype import Array, DType
from ....core.shape import Shape
from ....host.numbers import numbers, sequence
from .. import transfer
from ..memory_limit import require_memory

if TYPE_CHECKING:
    from ..device import ArrayDevice


def zeros(device: ArrayDevice, shape: Shape, dtype: DType) -> Any:
    """A storage of zeros."""
    require_memory(device, shape, dtype)
    own = transfer.native(device.library, dtype)
    return device.storage_class(device, dtype, device.library.full((shape.elem_count,), 0, own, device.handle))


def arange(device: ArrayDevice, start: float, step: float, shape: Shape, dtype: DType) -> Any:
    """Return a storage of numbers from `start` on, in steps of `step`."""
    require_memory(device, shape, dtype)
    return _from_host(device, sequence(shape.elem_count, start, step, dtype), dtype)


def from_numbers(device: ArrayDevice, data: Sequence[complex], dtype: DType) -> Any:
    """A storage of the numbers, converted as to_dtype does."""
    return _from_host(device, numbers(data, dtype), dtype)


def from_array(device: ArrayDevice, array: Array) -> Any:
    """A storage with a copy of the array's elements."""
    return device.storage(array)


def synchronize(device: ArrayDevice) -> None:
    """Wait for the device, and raise what was recorded of indexes."""
    if device.library.synchronize is not None:
        device.library.synchronize(device.handle)
    device.raise_errors()


def _from_host(device: ArrayDevice, array: Array, dtype: DType) -> Any:
    return device.storage_class(device, dtype, transfer.from_numpy(device.library, array, dtype, device.handle))
