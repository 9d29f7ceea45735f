"""The layers of networks by the kernels for the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .....dtype import DType
from .....kernels import host_arguments
from .....kernels.constants import COUNTED_LENGTH, SELECTED_COUNT, SORTED_LINES
from ....core.layout import Layout
from ....program.values import NOWHERE, Address
from ...array_backend.ops.operand import Operand
from ..kernels import THREADS, Result, Scratch, bits_of
from .native import by_plan
from .native_copy import Dense, plan_dense
from .native_index import index_stride, plan_gather, wrong_index

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

_LEAST_I64, _MOST_I64 = -(1 << 63), (1 << 63) - 1
# Of rows whose gradients are added up, and the least elements of one.
_MOST_PARTS: Final = 64
_PART_LENGTH: Final = 1 << 13
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
    pack = partial(host_arguments.softmax_rows, rows=math.prod(shape[:-1]), length=shape[-1])
    return _plan_one(kernels, f"{name}_{x.dtype.value}", x, pack)


@by_plan
def softmax_gradient(kernels: HostKernels, x: Operand, gradient: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `softmax.softmax_gradient`; None where NumPy does it."""
    return _plan_gradient("softmax_gradient", kernels, x, gradient, dim)


@by_plan
def log_softmax_gradient(
    kernels: HostKernels, x: Operand, gradient: Operand, dim: int
) -> Callable[..., CpuStorage] | None:
    """As `softmax.log_softmax_gradient`; None where NumPy does it."""
    return _plan_gradient("log_softmax_gradient", kernels, x, gradient, dim)


def _plan_gradient(
    name: str, kernels: HostKernels, x: Operand, gradient: Operand, dim: int
) -> Callable[..., CpuStorage] | None:
    shape, count = x.layout.shape, x.layout.elem_count
    kernel = kernels.address("host_rows", f"{name}_{x.dtype.value}")
    if kernel is None or count == 0 or dim != len(shape) - 1:
        return None
    rows = _Rows(kernels, x, gradient)
    packed = host_arguments.softmax_gradient_rows(
        result=Result(count, x.dtype), source=rows.sources[0], gradient=rows.sources[1], run_parts=kernels.run_parts,
        rows=count // shape[-1], length=shape[-1], threads=THREADS,
    )  # fmt: skip
    return rows.plan(kernel, packed)


def _plan_one(
    kernels: HostKernels, name: str, x: Operand, pack: Callable[..., bytes], family: str = "host_rows"
) -> Callable[..., CpuStorage] | None:
    """What makes as many elements of an operand's."""
    kernel = kernels.address(family, name)
    if kernel is None or x.layout.elem_count == 0:
        return None
    rows = _Rows(kernels, x)
    result = Result(x.layout.elem_count, x.dtype)
    packed = pack(result=result, source=rows.sources[0], run_parts=kernels.run_parts, threads=THREADS)
    return rows.plan(kernel, packed)


class _Rows:
    """The operands of a kernel, dense but for indexes, in the order in which a plan is given those that are there."""

    def __init__(
        self, kernels: HostKernels, x: Operand, *others: Operand | None, indexes: Operand | None = None
    ) -> None:
        self._kernels = kernels
        self._storage = x.storage
        self._dense: list[Dense] = []
        self.sources = [self._source(operand) for operand in (x, *others)]
        """Where each is; NOWHERE what is not there."""
        self.indexes = self._source(indexes, is_there=True)

    def _source(self, operand: Operand | None, *, is_there: bool = False) -> Address:
        if operand is None:
            return NOWHERE
        self._dense.append(Dense(self._kernels, operand, is_there=is_there))
        return self._dense[-1].source(len(self._dense) - 1)

    def plan(self, kernel: Address, packed: bytes, *, as_tuple: bool = False) -> Callable[..., Any]:
        """What calls the kernel with them."""
        call, dense = self._kernels.call(kernel, packed, self._storage, as_tuple=as_tuple), self._dense
        if all(operand.is_there for operand in dense):
            return call
        return lambda *storages: call(*[operand.of(each) for operand, each in zip(dense, storages, strict=True)])


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
    return _plan_norm("layer_norm", kernels, x, weight, bias, residual, eps)


@by_plan
def rms_norm(
    kernels: HostKernels, x: Operand, weight: Operand | None, residual: Operand | None, eps: float
) -> Callable[..., tuple[CpuStorage, ...]] | None:
    """As `network.rms_norm`; None where NumPy does it."""
    return _plan_norm("rms_norm", kernels, x, weight, None, residual, eps)


def _plan_norm(
    name: str,
    kernels: HostKernels,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    eps: float,
) -> Callable[..., tuple[CpuStorage, ...]] | None:
    shape = x.layout.shape
    kernel = kernels.address("host_rows", f"{name}_{x.dtype.value}")
    if kernel is None or x.layout.elem_count == 0:
        return None
    rows = _Rows(kernels, x, weight, bias, residual)
    packed = host_arguments.norm_rows(
        result=Result(x.layout.elem_count, x.dtype), source=rows.sources[0], weight=rows.sources[1],
        bias=rows.sources[2], residual=rows.sources[3],
        sums=NOWHERE if residual is None else Result(x.layout.elem_count, x.dtype), run_parts=kernels.run_parts,
        rows=math.prod(shape[:-1]), length=shape[-1], epsilon=bits_of(eps, DType.F64), threads=THREADS,
    )  # fmt: skip
    return rows.plan(kernel, packed, as_tuple=True)


@by_plan
def layer_norm_gradient(
    kernels: HostKernels,
    x: Operand,
    gradient: Operand,
    weight: Operand | None,
    residual: Operand | None,
    of_weight: bool,
    of_bias: bool,
    eps: float,
) -> Callable[..., tuple[CpuStorage, ...]] | None:
    """As `network.layer_norm_gradient`; None where NumPy does it."""
    return _plan_norm_gradient("layer_norm_gradient", kernels, x, gradient, weight, residual, of_weight, of_bias, eps)


@by_plan
def rms_norm_gradient(
    kernels: HostKernels,
    x: Operand,
    gradient: Operand,
    weight: Operand | None,
    residual: Operand | None,
    of_weight: bool,
    eps: float,
) -> Callable[..., tuple[CpuStorage, ...]] | None:
    """As `network.rms_norm_gradient`; None where NumPy does it."""
    return _plan_norm_gradient("rms_norm_gradient", kernels, x, gradient, weight, residual, of_weight, False, eps)


def _plan_norm_gradient(
    name: str,
    kernels: HostKernels,
    x: Operand,
    gradient: Operand,
    weight: Operand | None,
    residual: Operand | None,
    of_weight: bool,
    of_bias: bool,
    eps: float,
) -> Callable[..., tuple[CpuStorage, ...]] | None:
    count, dtype = x.layout.elem_count, x.dtype
    kernel = kernels.address("host_rows", f"{name}_{dtype.value}")
    if kernel is None or count == 0:
        return None
    length = x.layout.shape[-1]
    lines, rows = count // length, _Rows(kernels, x, gradient, weight, residual)
    # As many parts as threads may share, whatever their number; sums of few numbers are short.
    together = max(-(-lines // _MOST_PARTS), _PART_LENGTH // length + 1)
    sums = Scratch(-(-lines // together) * 2 * length, DType.F32) if of_weight or of_bias else NOWHERE
    vectors = [Result(length, dtype) if is_asked else NOWHERE for is_asked in (of_weight, of_bias)]
    packed = host_arguments.norm_gradient_rows(
        result=Result(count, dtype), source=rows.sources[0], gradient=rows.sources[1], weight=rows.sources[2],
        residual=rows.sources[3], of_weight=vectors[0], of_bias=vectors[1], scratch=sums,
        run_parts=kernels.run_parts, rows=lines, length=length, together=together,
        epsilon=bits_of(eps, DType.F64), threads=THREADS,
    )  # fmt: skip
    return rows.plan(kernel, packed, as_tuple=True)


@by_plan
def rope(
    kernels: HostKernels, x: Operand, cos: Operand, sin: Operand, positions: Operand, interleaved: bool
) -> Callable[..., CpuStorage] | None:
    """As `network.rope`; None where NumPy does it."""
    count, dtype = x.layout.elem_count, x.dtype
    kernel = kernels.address("host_rows", f"rope_{dtype.value}")
    # NumPy looks at positions of no elements.
    if kernel is None or count == 0:
        return None
    tokens, length = x.layout.shape[-2:]
    most, (_, index_bytes, index_shift) = cos.layout.shape[0] - tokens, positions.dtype.index_form
    rows = _Rows(kernels, x, cos, sin, indexes=positions)
    packed = host_arguments.rope_rows(
        result=Result(count, dtype), source=rows.sources[0], cosines=rows.sources[1], sines=rows.sources[2],
        indexes=rows.indexes, wrong=wrong_index("rope", positions.dtype, most + 1), run_parts=kernels.run_parts,
        rows=count // length, length=length, tokens=tokens,
        rows_of_index=count // length // positions.layout.elem_count, most=most, index_stride=index_stride(positions),
        index_bytes=index_bytes, index_shift=index_shift, interleaved=interleaved, threads=THREADS,
    )  # fmt: skip
    return rows.plan(kernel, packed)


@by_plan
def cross_entropy(
    kernels: HostKernels, x: Operand, targets: Operand, dim: int, ignored: int
) -> Callable[..., tuple[CpuStorage, ...]] | None:
    """As `loss.cross_entropy`; None where NumPy does it."""
    rows, made = _Rows(kernels, x, indexes=targets), Result(targets.layout.elem_count, x.dtype.compute)
    pack = partial(host_arguments.cross_entropy_rows, result=made, counted=made)
    return _plan_loss("cross_entropy", kernels, x, rows, targets, dim, ignored, pack, as_tuple=True)


@by_plan
def cross_entropy_gradient(
    kernels: HostKernels,
    x: Operand,
    losses: Operand,
    gradient: Operand,
    targets: Operand,
    dim: int,
    ignored: int,
    _overwrites: bool,
) -> Callable[..., CpuStorage] | None:
    """As `loss.cross_entropy_gradient`; None where NumPy does it."""
    rows = _Rows(kernels, x, losses, gradient, indexes=targets)
    pack = partial(
        host_arguments.cross_entropy_gradient_rows, result=Result(x.layout.elem_count, x.dtype),
        losses=rows.sources[1], gradient=rows.sources[2],
    )  # fmt: skip
    return _plan_loss("cross_entropy_gradient", kernels, x, rows, targets, dim, ignored, pack)


def _plan_loss(
    op: str,
    kernels: HostKernels,
    x: Operand,
    rows: _Rows,
    targets: Operand,
    dim: int,
    ignored: int,
    pack: Callable[..., bytes],
    *,
    as_tuple: bool = False,
) -> Callable[..., Any] | None:
    shape, count = x.layout.shape, x.layout.elem_count
    kernel = kernels.address("host_rows", f"{op}_{x.dtype.value}")
    is_vector = len(shape) < 3 or targets.layout.is_contiguous
    if kernel is None or count == 0 or dim != len(shape) - 1 or not is_vector:
        return None
    size = shape[-1]
    mark, index_bytes, index_shift = targets.dtype.index_form
    # Any other number that is ignored is no index either.
    packed = pack(
        source=rows.sources[0], indexes=rows.indexes, wrong=wrong_index(op, targets.dtype, size),
        run_parts=kernels.run_parts, rows=count // size, length=size, ignored=min(max(ignored, _LEAST_I64), _MOST_I64),
        index_stride=index_stride(targets), index_bytes=index_bytes, index_shift=index_shift, index_mark=mark,
        threads=THREADS,
    )  # fmt: skip
    return rows.plan(kernel, packed, as_tuple=as_tuple)


@by_plan
def cumsum(kernels: HostKernels, x: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `scan.cumsum`; None where NumPy does it."""
    return _plan_scan("sum", kernels, x, dim)


@by_plan
def cumprod(kernels: HostKernels, x: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `scan.cumprod`; None where NumPy does it."""
    return _plan_scan("prod", kernels, x, dim)


def _plan_scan(op: str, kernels: HostKernels, x: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    shape = x.layout.shape
    rows, inner = math.prod(shape[:dim]), math.prod(shape[dim + 1 :])
    pack = partial(host_arguments.scan_lines, rows=rows, length=shape[dim], inner=inner)
    return _plan_one(kernels, f"scan_{op}_{x.dtype.value}", x, pack, "host_scan")


@by_plan
def searchsorted(kernels: HostKernels, x: Operand, values: Operand, right: bool) -> Callable[..., CpuStorage] | None:
    """As `sort.searchsorted`; None where NumPy does it."""
    shape, wanted = x.layout.shape, values.layout.shape
    kernel = kernels.address("host_sort", f"search_{x.dtype.value}")
    if kernel is None or wanted.elem_count == 0 or shape.elem_count == 0:
        return None
    rows = _Rows(kernels, x, values)
    packed = host_arguments.find_places(
        result=Result(wanted.elem_count, DType.I64), source=rows.sources[0], values=rows.sources[1],
        run_parts=kernels.run_parts, count=wanted.elem_count,
        per_line=wanted[-1] if len(shape) > 1 else wanted.elem_count, length=shape[-1], right=right, threads=THREADS,
    )  # fmt: skip
    return rows.plan(kernel, packed)


@by_plan
def argsort(kernels: HostKernels, x: Operand, descending: bool, count: int) -> Callable[..., CpuStorage] | None:
    """As `sort.argsort`; None where NumPy does it."""
    return _plan_order(kernels, x, descending, count)


@by_plan
def sort(
    kernels: HostKernels, x: Operand, descending: bool, count: int
) -> Callable[..., tuple[CpuStorage, ...]] | None:
    """As `sort.sort`; None where NumPy does it."""
    order = _plan_order(kernels, x, descending, count)
    line = x.with_a_dim
    first = Layout.contiguous((*line.layout.shape[:-1], count))
    take = plan_gather("sort", kernels, line, Operand(_no_positions(x), first), first, len(first.shape) - 1)
    if order is None or take is None:
        return None

    def run(storage: CpuStorage) -> tuple[CpuStorage, ...]:
        positions = order(storage)
        return take(storage, positions), positions

    return run


def _no_positions(x: Operand) -> CpuStorage:
    made: CpuStorage = type(x.storage)(x.device, DType.U32, np.empty(0, np.uint32))
    return made


def _plan_order(kernels: HostKernels, x: Operand, descending: bool, count: int) -> Callable[..., CpuStorage] | None:
    shape, elements, dtype = x.layout.shape, x.layout.elem_count, x.dtype
    kernel = kernels.address("host_sort", f"argsort_{dtype.value}")
    length = shape[-1] if shape else 1
    # NumPy's positions have 64 bits.
    if kernel is None or elements * count == 0 or length >= _MOST_POSITIONS:
        return None
    lines, room = elements // length, -(-length // _ROOM) * _ROOM
    made = count if count <= SELECTED_COUNT else length
    scratch = NOWHERE
    if made == length > COUNTED_LENGTH[dtype.itemsize]:
        nbytes = min(lines, SORTED_LINES) * room * (2 * dtype.itemsize + DType.U32.itemsize)
        scratch = Scratch(nbytes, DType.U8)
    rows = _Rows(kernels, x)
    packed = host_arguments.argsort_lines(
        result=Result(lines * made, DType.U32), source=rows.sources[0], scratch=scratch, run_parts=kernels.run_parts,
        lines=lines, length=length, count=made, room=room, descending=descending, threads=THREADS,
    )  # fmt: skip
    sort = rows.plan(kernel, packed)
    if made == count:
        return sort
    first = plan_dense(kernels, Operand(_no_positions(x), Layout((lines, count), (length, 1))))
    return lambda storage: first(sort(storage))
