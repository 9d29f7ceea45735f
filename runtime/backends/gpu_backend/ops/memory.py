"""New storages, the random stream's seed, and waiting: what a device does besides running ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .....dtype import Array, DType
from .....kernels import arguments
from ....core.shape import Shape
from ....host.numbers import numbers
from ....program.builder import ProgramBuilder
from ....program.dynamic import dynamic
from ....program.values import Buffer, computed
from ...numbers import bits_of
from ..driver.grid import blocks_for

# Integers up to here are those of i64, which conversions begin with.
_MOST: Final = 1 << 63
# In kernels, integers wrap modulo this.
_WRAP: Final = 1 << 64

if TYPE_CHECKING:
    from ..device import GpuDevice
    from ..memory.storage import GpuStorage


@dynamic
def zeros(build: ProgramBuilder, shape: Shape, dtype: DType) -> Buffer:
    """A buffer of zeros."""
    result = build.empty(dtype, build.count(shape.elem_count))
    build.zero(result)
    return result


def zero(build: ProgramBuilder, result: Buffer) -> None:
    """Set every element of a buffer to 0."""
    build.zero(result)


def empty(device: GpuDevice, shape: Shape, dtype: DType) -> GpuStorage:
    """A storage of elements that are not initialised."""
    return device.empty(dtype, shape.elem_count)


@dynamic
def arange(build: ProgramBuilder, start: float, step: float, shape: Shape, dtype: DType) -> Buffer:
    """Return a buffer of numbers from `start` on, in steps of `step`."""
    count = build.count(shape.elem_count)
    result = build.empty(dtype, count)
    to = result.address
    if isinstance(start, int) and isinstance(step, int):
        kind = "integers"
        packed = arguments.arange_integers(result=to, count=count, start=start % _WRAP, step=step % _WRAP)
    else:
        start = float(start)
        second = start + step
        kind = "floats"
        packed = arguments.arange_floats(result=to, count=count, start=start, second=second, step=second - start)
    build.launch("arange", f"arange_{dtype.value}_{kind}", computed(blocks_for, count, dtype.itemsize), packed)
    return result


def from_numbers(device: GpuDevice, data: Sequence[complex], dtype: DType) -> GpuStorage:
    """A storage of the numbers, converted as to_dtype does. One alone is left to the kernels that take it along."""
    if type(data) is list and len(data) == 1:
        number = data[0]
        if type(number) is int and dtype.is_integer:
            return device.storage_class.of_number(device, dtype, number & (1 << 8 * dtype.itemsize) - 1)
        if type(number) in (float, complex) or (type(number) is int and abs(number) < _MOST):
            bits = bits_of(number, dtype)
            # Kernels take a word along.
            if bits < _WRAP:
                return device.storage_class.of_number(device, dtype, bits)
    return device.upload(numbers(data, dtype), dtype)


def from_array(device: GpuDevice, array: Array) -> GpuStorage:
    """A storage with a copy of the array's elements."""
    return device.storage(array)


def synchronize(device: GpuDevice) -> None:
    """Wait for everything enqueued, then raise what the device has recorded (InvalidIndex)."""
    device.driver.synchronize()
    device.index_errors.check()
