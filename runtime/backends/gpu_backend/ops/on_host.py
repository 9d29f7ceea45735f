"""Results that NumPy computes from a GPU's elements: reading them waits for the device, and results are copied back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .....dtype import Array, DType
from ....program.builder import ProgramBuilder
from ....program.operand import Operand
from ....program.values import Buffer
from . import copy


def computed(
    build: ProgramBuilder,
    compute: Callable[..., Sequence[Array] | None],
    operands: Sequence[Operand],
    results: Sequence[tuple[DType, int]],
) -> tuple[Buffer, ...]:
    """New buffers of so many elements of a dtype each, with the arrays that `compute` makes of those of the operands."""
    made = tuple([build.empty(dtype, length) for dtype, length in results])
    write(build, compute, operands, made)
    return made


def write(
    build: ProgramBuilder,
    compute: Callable[..., Sequence[Array] | None],
    operands: Sequence[Operand],
    targets: Sequence[Buffer],
) -> None:
    """Write the arrays that `compute` makes of those of the operands to buffers; None leaves these as they are."""
    build.host(_write, compute, tuple([copy.contiguous(build, x) for x in operands]), tuple(targets))


def _write(compute: Callable[..., Sequence[Array] | None], operands: Sequence[Operand], targets: Sequence[Any]) -> None:
    arrays = compute(*map(_read, operands))
    if arrays is not None:
        for target, array in zip(targets, arrays, strict=True):
            if array.size:
                target.device.write(target.memory.address, np.ascontiguousarray(array, target.dtype.numpy))


def _read(x: Operand) -> Array:
    array: Array = np.empty(x.shape, x.dtype.numpy)
    if array.size:
        x.storage.device.read(array, x.storage.address(x.layout))
    return array
