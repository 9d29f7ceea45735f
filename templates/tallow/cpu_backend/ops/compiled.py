"""Ops by the kernels for the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...backend import kind_of
from ...dtype import DType
from ...host_memory import tells_lack_of_memory
from ...kernels import host_arguments
from ...kernels.constants import FOLD_LENGTH
from ...layout import Layout
from ...limits import MAX_RANK
from ...op import BinaryOp, CmpOp, MethodOp, ReduceOp, UnaryOp
from ...threads import get_threads
from . import cast
from .array import contiguous
from .functors import ELEMENTWISE
from .operand import Operand

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

# NumPy is called sooner than a kernel, and has done so few elements by then.
_FEW: Final = 1 << 11
_OPERANDS: Final = 3
# What MAP_OPERANDS begins with: what each call has of its own.
_PLACES: Final = Struct("=5QI")
# And what it ends with: parameters.
_NUMBERS: Final = Struct("=2Q")
_PARAMETERS: Final = 2
# Of a state of any reduction.
_STATE_BYTES: Final = 16
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
    run = plan((kernels, op, x, *others), result)
    if run is None:
        return None
    storages = [x.storage, *(other.storage for other in others if isinstance(other, Operand))]
    return run(*storages)


def plan(arguments: tuple[Any, ...], result: DType | None = None) -> Callable[..., CpuStorage] | None:
    """What does as `elementwise` with other storages, and other numbers behind them; None where NumPy is as good."""
    kernels, op, *others = arguments
    operands = [argument for argument in others if isinstance(argument, Operand)]
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
    numbers = [argument for argument in others if not isinstance(argument, Operand)]
    bits = [_bits(number, source.compute) for number in numbers]
    rank = len(first.layout.shape)
    dims = _filled(first.layout.shape[::-1], MAX_RANK)
    strides = [stride for operand in operands for stride in _filled(operand.layout.strides[::-1], MAX_RANK)]
    itemsizes = (target.itemsize, *(operand.dtype.itemsize for operand in operands))
    packed = host_arguments.MAP_OPERANDS.pack(
        *(0,) * (3 + _OPERANDS), len(operands), rank, *_filled(itemsizes, 1 + _OPERANDS), count, *dims,
        *_filled(strides, _OPERANDS * MAX_RANK), *_filled(bits, _PARAMETERS),
    )  # fmt: skip
    rest, parameters = packed[_PLACES.size : -_NUMBERS.size], packed[-_NUMBERS.size :]
    offsets = [operand.layout.start_offset * operand.dtype.itemsize for operand in operands]
    without = (0,) * (_OPERANDS - len(operands))
    device, storage_class, kind = first.storage.device, type(first.storage), kind_of(target, count)
    map_operands, numpy_type, compute = kernels.map_operands, target.numpy, source.compute

    @tells_lack_of_memory
    def run(*given: Any) -> CpuStorage:
        made: CpuStorage = object.__new__(storage_class)
        made.data = np.empty(count, numpy_type)
        made.device = device
        made.dtype = target
        made.length = count
        made.kind = kind
        places = [storage.address + offset for storage, offset in zip(given, offsets, strict=False)]
        behind = given[len(offsets) :]
        if behind:
            last = _NUMBERS.pack(*_filled([_bits(number, compute) for number in behind], _PARAMETERS))
        else:
            last = parameters
        map_operands(_PLACES.pack(kernel, made.address, *places, *without, get_threads()) + rest + last)
        return made

    return run


def _filled(numbers: Any, length: int) -> tuple[int, ...]:
    return (*numbers, *(0,) * (length - len(numbers)))


def _bits(number: float, dtype: DType) -> int:
    """The bits of a number in a compute dtype."""
    # The sign tells 0.0 from -0.0, which are equal.
    return _bits_of(number, math.copysign(1, number), dtype)


@lru_cache(maxsize=1 << 12, typed=True)
def _bits_of(number: float, _sign: float, dtype: DType) -> int:
    return int.from_bytes(cast.scalar(number, dtype).tobytes(), "little")


@tells_lack_of_memory
def reduce(kernels: HostKernels, op: ReduceOp, operand: Operand, dims: tuple[int, ...]) -> CpuStorage | None:
    """As `reduce.reduce`; None where NumPy does it."""
    run = plan_reduction((kernels, op, operand, dims))
    if run is not None:
        return run(operand.storage)
    is_there = kernels.reduction(f"{op.value}_{operand.dtype.value}_rows") is not None
    if operand.layout.elem_count == 0 or not dims or not is_there:
        return None
    # The reduced dims come last, and their elements side by side.
    shape = operand.layout.shape
    order = [*(dim for dim in range(len(shape)) if dim not in dims), *sorted(dims)]
    held = contiguous(operand.array.reshape(shape).transpose(order))
    rank = len(shape) - len(dims)
    turned = Operand(operand.result(held), Layout.contiguous(held.shape))
    return reduce(kernels, op, turned, tuple(range(rank, len(shape))))


def plan_reduction(arguments: tuple[Any, ...]) -> Callable[..., CpuStorage] | None:
    """What does as `reduce` with other storages; None where the elements do not lie as kernels take them."""
    kernels, op, operand, dims = arguments
    layout, dtype = operand.layout, operand.dtype
    shape = layout.shape
    if layout.elem_count == 0 or not dims or not layout.is_contiguous or max(dims) - min(dims) + 1 != len(dims):
        return None
    last = max(dims)
    inner = math.prod(shape[last + 1 :])
    length = math.prod(shape[dim] for dim in dims)
    outputs = layout.elem_count // length
    # Columns are added one row after the other, for which f64 has no wider type.
    if inner != 1 and dtype is DType.F64:
        return None
    kernel = kernels.reduction(f"{op.value}_{dtype.value}_{'rows' if inner == 1 else 'columns'}")
    if kernel is None:
        return None
    if inner == 1:
        parts, sizes = -(-length // FOLD_LENGTH), [outputs, length]
        pack = host_arguments.FOLD_ROWS.pack
    else:
        split = length if outputs >= _FEW_COLUMNS else max(_SPLIT_ELEMENTS // outputs, 1)
        parts, sizes = -(-length // split), [outputs, length, inner, split]
        pack = host_arguments.FOLD_COLUMNS.pack
    states_bytes = outputs * parts * _STATE_BYTES if parts > 1 else 0
    target = op.result or dtype
    offset = layout.start_offset * dtype.itemsize
    run_parts, numpy_type = kernels.run_parts, target.numpy

    @tells_lack_of_memory
    def run(storage: CpuStorage) -> CpuStorage:
        made = type(storage)(storage.device, target, np.empty(outputs, numpy_type))
        states = np.empty(states_bytes, np.uint8) if states_bytes else None
        place = 0 if states is None else states.ctypes.data
        kernel(pack(made.address, storage.address + offset, place, run_parts, *sizes, get_threads()))
        return made

    return run


@tells_lack_of_memory
def softmax(kernels: HostKernels, x: Operand, dim: int) -> CpuStorage | None:
    """As `network.softmax`; None where NumPy does it."""
    return _softmax(kernels, "softmax", x, dim)


@tells_lack_of_memory
def log_softmax(kernels: HostKernels, x: Operand, dim: int) -> CpuStorage | None:
    """As `network.log_softmax`; None where NumPy does it."""
    return _softmax(kernels, "log_softmax", x, dim)


def _softmax(kernels: HostKernels, name: str, x: Operand, dim: int) -> CpuStorage | None:
    shape = x.layout.shape
    kernel = kernels.rows(f"{name}_{x.dtype.value}")
    if kernel is None or x.layout.elem_count == 0 or dim != len(shape) - 1:
        return None
    source = _Dense(x)
    result = x.result(np.empty(x.layout.elem_count, x.dtype.numpy))
    rows = math.prod(shape[:-1])
    kernel(
        host_arguments.SOFTMAX_ROWS.pack(
            result.address, source.address, kernels.run_parts, rows, shape[-1], get_threads()
        )
    )
    return result


@tells_lack_of_memory
def layer_norm(
    kernels: HostKernels,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    eps: float,
) -> tuple[CpuStorage, ...] | None:
    """As `network.layer_norm`; None where NumPy does it."""
    return _norm(kernels, "layer_norm", x, weight, bias, residual, eps)


@tells_lack_of_memory
def rms_norm(
    kernels: HostKernels, x: Operand, weight: Operand | None, residual: Operand | None, eps: float
) -> tuple[CpuStorage, ...] | None:
    """As `network.rms_norm`; None where NumPy does it."""
    return _norm(kernels, "rms_norm", x, weight, None, residual, eps)


def _norm(
    kernels: HostKernels,
    name: str,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    eps: float,
) -> tuple[CpuStorage, ...] | None:
    shape, count = x.layout.shape, x.layout.elem_count
    kernel = kernels.rows(f"{name}_{x.dtype.value}")
    if kernel is None or count == 0:
        return None
    given = [None if operand is None else _Dense(operand) for operand in (x, weight, bias, residual)]
    addresses = [0 if operand is None else operand.address for operand in given]
    results = [x.result(np.empty(count, x.dtype.numpy)) for _ in range(1 if residual is None else 2)]
    sums = results[1].address if residual is not None else 0
    kernel(
        host_arguments.NORM_ROWS.pack(
            results[0].address, *addresses, sums, kernels.run_parts, math.prod(shape[:-1]), shape[-1],
            _bits(eps, DType.F64), get_threads(),
        )
    )  # fmt: skip
    return tuple(results)


class _Dense:
    """The elements of an operand in row-major order: where they are, or a copy."""

    def __init__(self, operand: Operand) -> None:
        layout = operand.layout
        if layout.is_contiguous:
            self.address = operand.storage.address + layout.start_offset * operand.dtype.itemsize
        else:
            self.held = contiguous(operand.array)
            self.address = self.held.ctypes.data
