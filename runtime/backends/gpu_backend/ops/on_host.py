"""What NumPy computes of a GPU's elements: to read them waits for the device, and the results are copied back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .....dtype import Array, DType
from . import copy
from .operand import Operand

if TYPE_CHECKING:
    from ..memory.storage import GpuStorage


def computed(compute: Callable[..., tuple[Array, ...]], *operands: Operand, **options: bool) -> tuple[GpuStorage, ...]:
    """What a function makes of arrays of the operands."""
    return tuple(stored(operands[0], array) for array in compute(*map(read, operands), **options))


def read(x: Operand) -> Array:
    """The elements of an operand."""
    source = copy.contiguous(x)
    array: Array = np.empty(x.shape, x.dtype.numpy)
    if array.size:
        x.device.read(array, source.address)
    return array


def stored(x: Operand, array: Array) -> GpuStorage:
    """The elements of an array, on the device of an operand."""
    result = x.device.empty(DType.from_numpy(array.dtype), array.size)
    if array.size:
        x.device.write(result.memory.address, np.ascontiguousarray(array))
    return result
