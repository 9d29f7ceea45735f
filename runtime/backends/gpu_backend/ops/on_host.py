"""Results that the host computes from a GPU's elements: reading them waits for the device, and results are copied back.

Both are refused while a graph is captured, since no replay could do them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .....dtype import Array
from ....core.tensor_type import TensorType
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand
from . import copy

if TYPE_CHECKING:
    from ..memory.storage import GpuStorage

Compute: TypeAlias = Callable[..., Sequence[Any]]
"""A function of the operands' arrays that returns an array for each result."""


def computed(
    build: ProgramBuilder, compute: Compute, operands: Sequence[Operand], *results: TensorType | None
) -> tuple[Buffer, ...]:
    """New buffers for the results that there are, with the arrays that `compute` returns."""
    buffers = tuple([build.output(result) for result in results if result is not None])
    build.host(_compute, compute, tuple([copy.contiguous(build, x) for x in operands]), buffers)
    return buffers


def _compute(compute: Compute, operands: Sequence[Operand], targets: Sequence[GpuStorage]) -> None:
    store(targets, compute(*map(read, operands)))


def read(x: Operand) -> Array:
    """The elements of a contiguous operand, in a run of a program."""
    array: Array = np.empty(x.shape, x.dtype.numpy)
    x.storage.device.read(array, x.storage.address(x.layout))
    return array


def store(targets: Sequence[GpuStorage], arrays: Sequence[Any]) -> None:
    """Copy arrays to storages of as many elements, in a run of a program."""
    for target, array in zip(targets, arrays, strict=True):
        elements = np.ascontiguousarray(array, target.dtype.numpy).reshape(target.length)
        target.device.write(target.memory.address, elements)
