"""The layers of networks by the kernels for the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Never

import numpy as np

from .....dtype import DType
from .....kernels import host_arguments
from .....kernels.constants import COUNTED_LENGTH, SELECTED_COUNT, SORTED_LINES
from .....kernels.host_arguments import Packer
from ....core.layout import Layout
from ...array_backend.ops.operand import Operand
from ..kernels import Result, Source, bits_of
from .native import by_plan
from .native_copy import Dense, plan_dense
from .native_index import few_indexes, wrong_index

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

# The fields before the sizes.
_NORM_ADDRESSES: Final = 6
_ROPE_ADDRESSES: Final = 6
_CROSS_ENTROPY_ADDRESSES: Final = 5
_LEAST_I64, _MOST_I64 = -(1 << 63), (1 << 63) - 1
_MOST_POSITIONS: Final = 1 << 32
# Room for so many elements has a place for any of their dtypes where it ends.
_ROOM: Final = 8


@by_plan
def softmax(kernels: HostKernels, x: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `softmax.softmax`; None where NumPy does it."""
    return _plan_softmax("softmax", kernels, x, dim)


@by_plan
def log_softmax(kernels: HostKernels, x: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `softmax.log_softmax`; None where NumPy does it."""
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
    *,
    scratch: Result | None = None,
    wrong: tuple[int, Callable[[int], Never]] | None = None,
) -> Callable[..., Any]:
    """What gives a kernel dense operands, by the names of their fields, and indexes as they are."""
    there = {name: operand for name, operand in operands.items() if operand is not None}
    sources = [Dense(kernels, operand, is_there=name == "indexes") for name, operand in there.items()]
    call = kernels.call(
        kernel,
        packer,
        packed,
        next(iter(there.values())).storage,
        results,
        [
            Source(packer.places[name], source.offset, given)
            for given, (name, source) in enumerate(zip(there, sources, strict=True))
        ],
        scratch=scratch,
        wrong=wrong,
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
    count, dtype, packer = x.layout.elem_count, x.dtype, host_arguments.ROPE_ROWS
    kernel = kernels.address("host_rows", f"rope_{dtype.value}")
    # NumPy looks at positions of no elements.
    if kernel is None or count == 0:
        return None
    tokens, length = x.layout.shape[-2:]
    rows, most = count // length, cos.layout.shape[0] - tokens
    stride, index_bytes, index_shift, _ = few_indexes(positions)
    packed = packer.pack(
        *(0,) * _ROPE_ADDRESSES, kernels.run_parts, rows, length, tokens, rows // positions.layout.elem_count, most,
        stride, index_bytes, index_shift, interleaved, 1,
    )  # fmt: skip
    operands = {"source": x, "cosines": cos, "sines": sin, "indexes": positions}
    result = Result(packer.places["result"], count, dtype)
    wrong = wrong_index("rope", packer.places["wrong"], positions.dtype, most + 1)
    return _plan_rows(kernels, kernel, packer, packed, operands, result, wrong=wrong)


@by_plan
def cross_entropy(
    kernels: HostKernels, x: Operand, targets: Operand, dim: int, ignored: int
) -> Callable[..., tuple[CpuStorage, ...]] | None:
    """As `loss.cross_entropy`; None where NumPy does it."""
    shape, count, dtype, packer = x.layout.shape, x.layout.elem_count, x.dtype, host_arguments.CROSS_ENTROPY_ROWS
    kernel = kernels.address("host_rows", f"cross_entropy_{dtype.value}")
    if kernel is None or count == 0 or dim != len(shape) - 1:
        return None
    size = shape[-1]
    # Any other number is no index either.
    sizes = kernels.run_parts, count // size, size, min(max(ignored, _LEAST_I64), _MOST_I64)
    packed = packer.pack(*(0,) * _CROSS_ENTROPY_ADDRESSES, *sizes, *few_indexes(targets), 1)
    results = [Result(packer.places[place], count // size, dtype.compute) for place in ("result", "counted")]
    wrong = wrong_index("cross_entropy", packer.places["wrong"], targets.dtype, size)
    return _plan_rows(kernels, kernel, packer, packed, {"source": x, "indexes": targets}, results, wrong=wrong)


@by_plan
def cumsum(kernels: HostKernels, x: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `scan.cumsum`; None where NumPy does it."""
    shape = x.layout.shape
    sizes = math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])
    return _plan_one(kernels, f"cumsum_{x.dtype.value}", host_arguments.CUMSUM_LINES, x, sizes)


@by_plan
def argsort(kernels: HostKernels, x: Operand, descending: bool, count: int) -> Callable[..., CpuStorage] | None:
    """As `sort.argsort`; None where NumPy does it."""
    shape, elements, dtype, packer = x.layout.shape, x.layout.elem_count, x.dtype, host_arguments.ARGSORT_LINES
    kernel = kernels.address("host_sort", f"argsort_{dtype.value}")
    length = shape[-1] if shape else 1
    # NumPy's positions have 64 bits.
    if kernel is None or elements * count == 0 or length >= _MOST_POSITIONS:
        return None
    lines, room = elements // length, -(-length // _ROOM) * _ROOM
    made = count if count <= SELECTED_COUNT else length
    packed = packer.pack(0, 0, 0, kernels.run_parts, lines, length, made, room, descending, 1)
    scratch = None
    if made == length > COUNTED_LENGTH[dtype.itemsize]:
        nbytes = min(lines, SORTED_LINES) * room * (2 * dtype.itemsize + DType.U32.itemsize)
        scratch = Result(packer.places["scratch"], nbytes, DType.U8)
    result = Result(packer.places["result"], lines * made, DType.U32)
    sort = _plan_rows(kernels, kernel, packer, packed, {"source": x}, result, scratch=scratch)
    if made == count:
        return sort
    positions = Operand(
        type(x.storage)(x.device, DType.U32, np.empty(0, np.uint32)), Layout((lines, count), (length, 1))
    )
    first = plan_dense(kernels, positions)
    return lambda storage: first(sort(storage))
