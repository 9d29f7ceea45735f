"""The layers of networks by the kernels for the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...array_backend.ops.operand import Operand
from ...dtype import DType
from ...error import InvalidIndex
from ...host_memory import tells_lack_of_memory
from ...kernels import host_arguments
from ...kernels.constants import COUNTED_LENGTH, SORTED_LINES
from ...kernels.host_arguments import Packer
from ...threads import get_threads
from .. import room
from ..kernels import Result, Source, bits_of
from .compiled import by_plan
from .compiled_copy import Dense

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

# The fields before the sizes.
_NORM_ADDRESSES: Final = 6
_MOST_POSITIONS: Final = 1 << 32
# Room for so many elements has a place for any of their dtypes where it ends.
_ROOM: Final = 8


@by_plan
def softmax(kernels: HostKernels, x: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `network.softmax`; None where NumPy does it."""
    return _plan_softmax("softmax", kernels, x, dim)


@by_plan
def log_softmax(kernels: HostKernels, x: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `network.log_softmax`; None where NumPy does it."""
    return _plan_softmax("log_softmax", kernels, x, dim)


def _plan_softmax(name: str, kernels: HostKernels, x: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    shape = x.layout.shape
    if dim != len(shape) - 1:
        return None
    sizes = math.prod(shape[:-1]), shape[-1]
    return _plan_one(kernels, f"{name}_{x.dtype.value}", host_arguments.SOFTMAX_ROWS, x, sizes)


def _plan_one(
    kernels: HostKernels, name: str, packer: Packer, x: Operand, sizes: tuple[int, ...]
) -> Callable[..., CpuStorage] | None:
    """What makes as many elements of an operand's: the arguments are addresses, `run_parts`, sizes and threads."""
    kernel = kernels.address("host_rows", name)
    if kernel is None or x.layout.elem_count == 0:
        return None
    packed = packer.pack(0, 0, kernels.run_parts, *sizes, 1)
    result = Result(packer.places["result"], x.layout.elem_count, x.dtype)
    return _plan_rows(kernels, kernel, packer, packed, {"source": x}, result)


def _plan_rows(
    kernels: HostKernels,
    kernel: int,
    packer: Packer,
    packed: bytes,
    operands: Mapping[str, Operand | None],
    results: Result | Sequence[Result],
    scratch: Result | None = None,
) -> Callable[..., Any]:
    """What gives a kernel dense operands, by the names of their fields."""
    there = {name: operand for name, operand in operands.items() if operand is not None}
    sources = [Dense(kernels, operand) for operand in there.values()]
    call = kernels.call(
        kernel,
        packer,
        packed,
        next(iter(there.values())).storage,
        results,
        [Source(packer.places[name], source.offset) for name, source in zip(there, sources, strict=True)],
        scratch=scratch,
    )
    if all(source.is_there for source in sources):
        return call
    return lambda *storages: call(*[source.of(each) for source, each in zip(sources, storages, strict=True)])


@by_plan
def layer_norm(
    kernels: HostKernels,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    eps: float,
) -> Callable[..., tuple[CpuStorage, ...]] | None:
    """As `network.layer_norm`; None where NumPy does it."""
    return _plan_norm("layer_norm", kernels, [x, weight, bias, residual], eps)


@by_plan
def rms_norm(
    kernels: HostKernels, x: Operand, weight: Operand | None, residual: Operand | None, eps: float
) -> Callable[..., tuple[CpuStorage, ...]] | None:
    """As `network.rms_norm`; None where NumPy does it."""
    return _plan_norm("rms_norm", kernels, [x, weight, None, residual], eps)


def _plan_norm(
    name: str, kernels: HostKernels, operands: list[Operand | None], eps: float
) -> Callable[..., tuple[CpuStorage, ...]] | None:
    """What makes the norm of operands: x, and those of the weight, the bias and the residual that are there."""
    x, packer = operands[0], host_arguments.NORM_ROWS
    assert x is not None
    shape = x.layout.shape
    kernel = kernels.address("host_rows", f"{name}_{x.dtype.value}")
    if kernel is None or x.layout.elem_count == 0:
        return None
    sizes = kernels.run_parts, math.prod(shape[:-1]), shape[-1], bits_of(eps, DType.F64)
    packed = packer.pack(*(0,) * _NORM_ADDRESSES, *sizes, 1)
    names = ["result"] if operands[-1] is None else ["result", "sums"]
    results = [Result(packer.places[name], x.layout.elem_count, x.dtype) for name in names]
    named = dict(zip(("source", "weight", "bias", "residual"), operands, strict=True))
    return _plan_rows(kernels, kernel, packer, packed, named, results)


@by_plan
def rope(
    kernels: HostKernels, x: Operand, cos: Operand, sin: Operand, positions: Operand, interleaved: bool
) -> Callable[..., CpuStorage] | None:
    """As `network.rope`; None where NumPy does it."""
    shape, count, dtype = x.layout.shape, x.layout.elem_count, x.dtype
    kernel = kernels.kernel("host_rows", f"rope_{dtype.value}")
    # NumPy looks at positions of no elements.
    if kernel is None or count == 0:
        return None
    tokens, length = shape[-2:]
    rows, begins_count = count // length, positions.layout.elem_count
    sizes = kernels.run_parts, rows, length, tokens, rows // begins_count, interleaved
    sources = [Dense(kernels, operand) for operand in (x, cos, sin)]
    pack, numpy_type, most = host_arguments.ROPE_ROWS.pack, dtype.numpy, cos.layout.shape[0] - tokens

    @tells_lack_of_memory
    def run(storage: CpuStorage, cos: CpuStorage, sin: CpuStorage, chosen: CpuStorage) -> CpuStorage:
        begins = chosen.view(positions.layout).astype(np.int64).reshape(-1)
        wrong = (begins < 0) | (begins > most)
        if wrong.any():
            raise InvalidIndex("rope", int(begins[wrong][0]), most + 1)
        made = type(storage)(storage.device, dtype, room.empty(count, numpy_type))
        held = [source.of(each) for source, each in zip(sources, (storage, cos, sin), strict=True)]
        places = [each.address + source.offset for source, each in zip(sources, held, strict=True)]
        kernel(pack(made.address, *places, begins.ctypes.data, *sizes, get_threads()))
        return made

    return run


@by_plan
def cross_entropy(
    kernels: HostKernels, x: Operand, targets: Operand, dim: int, ignored: int
) -> Callable[..., tuple[CpuStorage, ...]] | None:
    """As `network.cross_entropy`; None where NumPy does it."""
    shape, count, dtype = x.layout.shape, x.layout.elem_count, x.dtype
    kernel = kernels.kernel("host_rows", f"cross_entropy_{dtype.value}")
    if kernel is None or count == 0 or dim != len(shape) - 1:
        return None
    source, size, mark = Dense(kernels, x), shape[-1], targets.dtype.index_mark
    sizes = kernels.run_parts, count // size, size
    pack, numpy_type, compute = host_arguments.CROSS_ENTROPY_ROWS.pack, dtype.numpy, dtype.compute

    @tells_lack_of_memory
    def run(storage: CpuStorage, chosen: CpuStorage) -> tuple[CpuStorage, ...]:
        rows = chosen.view(targets.layout).astype(np.int64).reshape(-1)
        counts = (rows != ignored) & (rows != mark)
        wrong = counts & ((rows < 0) | (rows >= size))
        if wrong.any():
            raise InvalidIndex("cross_entropy", int(rows[wrong][0]), size)
        rows[~counts] = -1
        made = type(storage)(storage.device, dtype, room.empty(len(rows), numpy_type))
        held = source.of(storage)
        kernel(pack(made.address, held.address + source.offset, rows.ctypes.data, *sizes, get_threads()))
        return made, type(storage)(storage.device, compute, counts.astype(compute.numpy))

    return run


@by_plan
def cumsum(kernels: HostKernels, x: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `scan.cumsum`; None where NumPy does it."""
    shape = x.layout.shape
    sizes = math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])
    return _plan_one(kernels, f"cumsum_{x.dtype.value}", host_arguments.CUMSUM_LINES, x, sizes)


@by_plan
def argsort(kernels: HostKernels, x: Operand, descending: bool) -> Callable[..., CpuStorage] | None:
    """As `sort.argsort`; None where NumPy does it."""
    shape, count, dtype, packer = x.layout.shape, x.layout.elem_count, x.dtype, host_arguments.ARGSORT_LINES
    kernel = kernels.address("host_sort", f"argsort_{dtype.value}")
    length = shape[-1] if shape else 1
    # NumPy's positions have 64 bits.
    if kernel is None or count == 0 or length >= _MOST_POSITIONS:
        return None
    lines, room = count // length, -(-length // _ROOM) * _ROOM
    packed = packer.pack(0, 0, 0, kernels.run_parts, lines, length, room, descending, 1)
    scratch = None
    if length > COUNTED_LENGTH[dtype.itemsize]:
        nbytes = min(lines, SORTED_LINES) * room * (2 * dtype.itemsize + DType.U32.itemsize)
        scratch = Result(packer.places["scratch"], nbytes, DType.U8)
    result = Result(packer.places["result"], count, DType.U32)
    return _plan_rows(kernels, kernel, packer, packed, {"source": x}, result, scratch)
