"""Ops by the kernels for the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...backend import kind_of
from ...dtype import Array, DType
from ...host_memory import tells_lack_of_memory
from ...kernels import host_arguments
from ...op import BinaryOp, CmpOp, MethodOp, ReduceOp, UnaryOp
from ...threads import threads
from . import cast
from .array import contiguous
from .functors import ELEMENTWISE
from .operand import Operand

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

# NumPy is called sooner than a kernel, and has done so few elements by then.
_FEW: Final = 1 << 11
_RANK: Final = 8
_OPERANDS: Final = 3
_PARAMETERS: Final = 2
# Of a state of any reduction.
_STATE_BYTES: Final = 16
# As many elements of a row are one part in fold.hpp.
_FOLD_LENGTH: Final = 1 << 14
# Fewer columns are split among parts of so many elements.
_FEW_COLUMNS: Final = 1 << 13
_SPLIT_ELEMENTS: Final = 1 << 18


@tells_lack_of_memory
def elementwise(
    kernels: HostKernels,
    op: UnaryOp | BinaryOp | CmpOp | MethodOp,
    x: Operand,
    *others: Operand | float,
    result: DType | None = None,
) -> CpuStorage | None:
    """As `elementwise.elementwise`; None where NumPy is as good."""
    run = _plan(kernels, op, (x, *others), result)
    if run is None:
        return None
    storages = [x.storage, *(other.storage for other in others if isinstance(other, Operand))]
    return run(*storages)


def plan(arguments: tuple[Any, ...], result: DType | None = None) -> Callable[..., CpuStorage] | None:
    """What does as `elementwise` with other storages; None where numbers are among the arguments."""
    kernels, op, *operands = arguments
    if not all(isinstance(operand, Operand) for operand in operands):
        return None
    return _plan(kernels, op, tuple(operands), result)


def _plan(
    kernels: HostKernels,
    op: UnaryOp | BinaryOp | CmpOp | MethodOp,
    arguments: tuple[Operand | float, ...],
    result: DType | None,
) -> Callable[..., CpuStorage] | None:
    operands = [argument for argument in arguments if isinstance(argument, Operand)]
    first, source = operands[0], operands[-1].dtype
    target = result or op.result or source
    count = first.layout.elem_count
    if count == 0 or (count <= _FEW and ELEMENTWISE[op].is_one_step and source.compute is source):
        return None
    if op.moves:
        name = f"{op.value}_b{8 * first.dtype.itemsize}_b{8 * source.itemsize}"
    elif op is MethodOp.TO_DTYPE:
        if target is source:
            return None
        name = f"{op.value}_{target.value}_{source.value}"
    else:
        name = f"{op.value}_{source.value}"
    kernel = kernels.elementwise(name)
    if kernel is None:
        return None
    numbers = [argument for argument in arguments if not isinstance(argument, Operand)]
    bits = [_bits(number, source.compute) for number in numbers]
    rank = len(first.layout.shape)
    dims = _filled(first.layout.shape[::-1], _RANK)
    strides = [stride for operand in operands for stride in _filled(operand.layout.strides[::-1], _RANK)]
    itemsizes = (target.itemsize, *(operand.dtype.itemsize for operand in operands))
    packed = host_arguments.MAP_OPERANDS.pack(
        *(0,) * (3 + _OPERANDS), len(operands), rank, *_filled(itemsizes, 1 + _OPERANDS), count, *dims,
        *_filled(strides, _OPERANDS * _RANK), *_filled(bits, _PARAMETERS),
    )  # fmt: skip
    rest = packed[_PLACES.size :]
    offsets = [operand.layout.start_offset * operand.dtype.itemsize for operand in operands]
    without = (0,) * (_OPERANDS - len(operands))
    device, storage_class, kind = first.storage.device, type(first.storage), kind_of(target, count)
    map_operands, numpy_type = kernels.map_operands, target.numpy

    @tells_lack_of_memory
    def run(*storages: CpuStorage) -> CpuStorage:
        made: CpuStorage = object.__new__(storage_class)
        made.data = np.empty(count, numpy_type)
        made.device = device
        made.dtype = target
        made.length = count
        made.kind = kind
        places = [storage.address + offset for storage, offset in zip(storages, offsets, strict=True)]
        map_operands(_PLACES.pack(kernel, made.address, *places, *without, threads()) + rest)
        return made

    return run


_PLACES: Final = host_arguments.Struct("=5QI")


def _filled(numbers: Any, length: int) -> tuple[int, ...]:
    return (*numbers, *(0,) * (length - len(numbers)))


def _bits(number: float, dtype: DType) -> int:
    """The bits of a number in a compute dtype."""
    return int.from_bytes(cast.scalar(number, dtype).tobytes(), "little")


@tells_lack_of_memory
def reduce(kernels: HostKernels, op: ReduceOp, operand: Operand, dims: tuple[int, ...]) -> CpuStorage | None:
    """As `reduce.reduce`; None where NumPy does it."""
    layout, dtype = operand.layout, operand.dtype
    shape = layout.shape
    kept = [dim for dim in range(len(shape)) if dim not in dims]
    length, outputs = math.prod(shape[dim] for dim in dims), math.prod(shape[dim] for dim in kept)
    if layout.elem_count == 0 or not dims:
        return None
    first, last = min(dims), max(dims)
    inner = 1
    # Columns are added one row after the other, for which f64 has no wider type.
    is_column = last + 1 < len(shape) and dtype is not DType.F64
    if layout.is_contiguous and last - first + 1 == len(dims) and (is_column or last + 1 == len(shape)):
        inner = math.prod(shape[last + 1 :])
        place = operand.storage.address + layout.start_offset * dtype.itemsize
        held: Array | None = None
    else:
        held = contiguous(operand.array.reshape(shape).transpose([*kept, *sorted(dims)]))
        place = held.ctypes.data
    kernel = kernels.reduction(f"{op.value}_{dtype.value}_{'rows' if inner == 1 else 'columns'}")
    if kernel is None:
        return None
    target = op.result or dtype
    result = operand.result(np.empty(outputs, target.numpy), target)
    if inner == 1:
        states = np.empty(outputs * -(-length // _FOLD_LENGTH) * _STATE_BYTES, np.uint8)
        sizes: tuple[int, ...] = (outputs, length)
        arguments = host_arguments.FOLD_ROWS
    else:
        split = length if outputs >= _FEW_COLUMNS else max(_SPLIT_ELEMENTS // outputs, 1)
        states = np.empty(outputs * -(-length // split) * _STATE_BYTES, np.uint8)
        sizes = (outputs, length, inner, split)
        arguments = host_arguments.FOLD_COLUMNS
    kernel(arguments.pack(result.address, place, states.ctypes.data, kernels.run_parts, *sizes, threads()))
    del held  # until now, its memory was read
    return result
