"""The layers of networks by the kernels for the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from .....dtype import DType
from .....kernels import host_arguments
from .....kernels.constants import COUNTED_LENGTH, SELECTED_COUNT, SORTED_LINES
from ....core.layout import Layout
from ....program.argument_struct import PackedArguments
from ....program.builder import ProgramBuilder
from ....program.operand import Operand, dense
from ....program.values import NOWHERE, Buffer, Pointer
from ..values import RUN_PARTS, THREADS, address_of, number_bits
from .native import contiguous, copied
from .native_index import gathered, index_record, index_stride

if TYPE_CHECKING:
    from ..kernels import HostKernels

_LEAST_I64, _MOST_I64 = -(1 << 63), (1 << 63) - 1
# Of rows whose gradients are added up, and the least elements of one.
_MOST_PARTS: Final = 64
_PART_LENGTH: Final = 1 << 13
_MOST_POSITIONS: Final = 1 << 32
# Room for so many elements has a place for any of their dtypes where it ends.
_ROOM: Final = 8


def softmax(build: ProgramBuilder, kernels: HostKernels, x: Operand, dim: int) -> Buffer | None:
    """As `softmax.softmax`; None where NumPy does it."""
    return _softmax(build, kernels, f"softmax_{x.dtype.value}", x, dim)


def log_softmax(build: ProgramBuilder, kernels: HostKernels, x: Operand, dim: int) -> Buffer | None:
    """As `softmax.log_softmax`; None where NumPy does it."""
    return _softmax(build, kernels, f"log_softmax_{x.dtype.value}", x, dim)


def _softmax(build: ProgramBuilder, kernels: HostKernels, kernel: str, x: Operand, dim: int) -> Buffer | None:
    shape, count = x.shape, x.layout.elem_count
    if not kernels.has("host_rows", kernel) or count == 0 or dim != len(shape) - 1:
        return None
    x = contiguous(build, x)
    result = build.empty(x.dtype, count)
    packed = host_arguments.softmax_rows(
        result=result.address, source=x.address, run_parts=RUN_PARTS, rows=count // shape[-1], length=shape[-1],
        threads=THREADS,
    )  # fmt: skip
    build.launch("host_rows", kernel, 1, packed)
    return result


def softmax_gradient(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, gradient: Operand, dim: int
) -> Buffer | None:
    """As `softmax.softmax_gradient`; None where NumPy does it."""
    return _softmax_gradient(build, kernels, f"softmax_gradient_{x.dtype.value}", x, gradient, dim)


def log_softmax_gradient(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, gradient: Operand, dim: int
) -> Buffer | None:
    """As `softmax.log_softmax_gradient`; None where NumPy does it."""
    return _softmax_gradient(build, kernels, f"log_softmax_gradient_{x.dtype.value}", x, gradient, dim)


def _softmax_gradient(
    build: ProgramBuilder, kernels: HostKernels, kernel: str, x: Operand, gradient: Operand, dim: int
) -> Buffer | None:
    shape, count = x.shape, x.layout.elem_count
    if not kernels.has("host_rows", kernel) or count == 0 or dim != len(shape) - 1:
        return None
    x, gradient = contiguous(build, x), contiguous(build, gradient)
    result = build.empty(x.dtype, count)
    packed = host_arguments.softmax_gradient_rows(
        result=result.address, source=x.address, gradient=gradient.address, run_parts=RUN_PARTS,
        rows=count // shape[-1], length=shape[-1], threads=THREADS,
    )  # fmt: skip
    build.launch("host_rows", kernel, 1, packed)
    return result


def layer_norm(
    build: ProgramBuilder,
    kernels: HostKernels,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    eps: float,
) -> tuple[Buffer, ...] | None:
    """As `network.layer_norm`; None where NumPy does it."""
    return _norm(build, kernels, f"layer_norm_{x.dtype.value}", x, weight, bias, residual, eps)


def rms_norm(
    build: ProgramBuilder,
    kernels: HostKernels,
    x: Operand,
    weight: Operand | None,
    residual: Operand | None,
    eps: float,
) -> tuple[Buffer, ...] | None:
    """As `network.rms_norm`; None where NumPy does it."""
    return _norm(build, kernels, f"rms_norm_{x.dtype.value}", x, weight, None, residual, eps)


def _norm(
    build: ProgramBuilder,
    kernels: HostKernels,
    kernel: str,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    eps: float,
) -> tuple[Buffer, ...] | None:
    shape, count = x.shape, x.layout.elem_count
    if not kernels.has("host_rows", kernel) or count == 0:
        return None
    x = contiguous(build, x)
    weight, bias, residual = (each and contiguous(build, each) for each in (weight, bias, residual))
    results = [build.empty(x.dtype, count) for _ in range(1 if residual is None else 2)]
    packed = host_arguments.norm_rows(
        result=results[0].address, source=x.address, weight=address_of(weight), bias=address_of(bias),
        residual=address_of(residual), sums=NOWHERE if residual is None else results[1].address, run_parts=RUN_PARTS,
        rows=count // shape[-1], length=shape[-1], epsilon=number_bits(eps, DType.F64), threads=THREADS,
    )  # fmt: skip
    build.launch("host_rows", kernel, 1, packed)
    return tuple(results)


def layer_norm_gradient(
    build: ProgramBuilder,
    kernels: HostKernels,
    x: Operand,
    gradient: Operand,
    weight: Operand | None,
    residual: Operand | None,
    of_weight: bool,
    of_bias: bool,
    eps: float,
) -> tuple[Buffer, ...] | None:
    """As `network.layer_norm_gradient`; None where NumPy does it."""
    kernel = f"layer_norm_gradient_{x.dtype.value}"
    return _norm_gradient(build, kernels, kernel, x, gradient, weight, residual, of_weight, of_bias, eps)


def rms_norm_gradient(
    build: ProgramBuilder,
    kernels: HostKernels,
    x: Operand,
    gradient: Operand,
    weight: Operand | None,
    residual: Operand | None,
    of_weight: bool,
    eps: float,
) -> tuple[Buffer, ...] | None:
    """As `network.rms_norm_gradient`; None where NumPy does it."""
    kernel = f"rms_norm_gradient_{x.dtype.value}"
    return _norm_gradient(build, kernels, kernel, x, gradient, weight, residual, of_weight, False, eps)


def _norm_gradient(
    build: ProgramBuilder,
    kernels: HostKernels,
    kernel: str,
    x: Operand,
    gradient: Operand,
    weight: Operand | None,
    residual: Operand | None,
    of_weight: bool,
    of_bias: bool,
    eps: float,
) -> tuple[Buffer, ...] | None:
    count, length, dtype = x.layout.elem_count, x.shape[-1], x.dtype
    if not kernels.has("host_rows", kernel) or count == 0:
        return None
    rows = count // length
    x, gradient = contiguous(build, x), contiguous(build, gradient)
    weight, residual = (each and contiguous(build, each) for each in (weight, residual))
    # As many parts as threads may share, whatever their number; sums of few numbers are short.
    together = max(-(-rows // _MOST_PARTS), _PART_LENGTH // length + 1)
    sums = build.empty(DType.F32, -(-rows // together) * 2 * length) if of_weight or of_bias else None
    result = build.empty(dtype, count)
    vectors = [build.empty(dtype, length) if is_asked else None for is_asked in (of_weight, of_bias)]
    addresses = [NOWHERE if buffer is None else buffer.address for buffer in (*vectors, sums)]
    packed = host_arguments.norm_gradient_rows(
        result=result.address, source=x.address, gradient=gradient.address, weight=address_of(weight),
        residual=address_of(residual), of_weight=addresses[0], of_bias=addresses[1], scratch=addresses[2],
        run_parts=RUN_PARTS, rows=rows, length=length, together=together, epsilon=number_bits(eps, DType.F64),
        threads=THREADS,
    )  # fmt: skip
    build.launch("host_rows", kernel, 1, packed)
    return result, *(vector for vector in vectors if vector is not None)


def rope(
    build: ProgramBuilder,
    kernels: HostKernels,
    x: Operand,
    cos: Operand,
    sin: Operand,
    positions: Operand,
    interleaved: bool,
) -> Buffer | None:
    """As `network.rope`; None where NumPy does it."""
    count, kernel = x.layout.elem_count, f"rope_{x.dtype.value}"
    # NumPy looks at positions of no elements.
    if not kernels.has("host_rows", kernel) or count == 0:
        return None
    tokens, length = x.shape[-2:]
    most, (_, index_bytes, index_shift) = cos.shape[0] - tokens, positions.dtype.index_form
    x, cos, sin = (contiguous(build, each) for each in (x, cos, sin))
    result = build.empty(x.dtype, count)
    packed = host_arguments.rope_rows(
        result=result.address, source=x.address, cosines=cos.address, sines=sin.address, indexes=positions.address,
        wrong=index_record("rope", positions.dtype, most + 1), run_parts=RUN_PARTS, rows=count // length,
        length=length, tokens=tokens, rows_of_index=count // length // positions.layout.elem_count, most=most,
        index_stride=index_stride(positions), index_bytes=index_bytes, index_shift=index_shift,
        interleaved=interleaved, threads=THREADS,
    )  # fmt: skip
    build.launch("host_rows", kernel, 1, packed)
    return result


def cross_entropy(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, targets: Operand, dim: int, ignored: int
) -> tuple[Buffer, ...] | None:
    """As `loss.cross_entropy`; None where NumPy does it."""
    if not _has_loss(kernels, "cross_entropy", x, targets, dim):
        return None
    x, count = contiguous(build, x), targets.layout.elem_count
    losses, counted = build.empty(x.dtype.compute, count), build.empty(x.dtype.compute, count)
    pack = partial(host_arguments.cross_entropy_rows, result=losses.address, counted=counted.address)
    _launch_loss(build, "cross_entropy", pack, x, targets, ignored)
    return losses, counted


def cross_entropy_gradient(
    build: ProgramBuilder,
    kernels: HostKernels,
    x: Operand,
    losses: Operand,
    gradient: Operand,
    targets: Operand,
    dim: int,
    ignored: int,
    _overwrites: bool,
) -> Buffer | None:
    """As `loss.cross_entropy_gradient`; None where NumPy does it."""
    if not _has_loss(kernels, "cross_entropy_gradient", x, targets, dim):
        return None
    x, losses, gradient = (contiguous(build, each) for each in (x, losses, gradient))
    result = build.empty(x.dtype, x.layout.elem_count)
    pack = partial(
        host_arguments.cross_entropy_gradient_rows,
        result=result.address, losses=losses.address, gradient=gradient.address,
    )  # fmt: skip
    _launch_loss(build, "cross_entropy_gradient", pack, x, targets, ignored)
    return result


def _has_loss(kernels: HostKernels, op: str, x: Operand, targets: Operand, dim: int) -> bool:
    """Whether a kernel computes the losses of rows."""
    rank = len(x.shape)
    is_vector = rank < 3 or targets.layout.is_contiguous
    return (
        kernels.has("host_rows", f"{op}_{x.dtype.value}") and x.layout.elem_count != 0 and dim == rank - 1 and is_vector
    )


def _launch_loss(
    build: ProgramBuilder, op: str, pack: Callable[..., PackedArguments], x: Operand, targets: Operand, ignored: int
) -> None:
    size, count = x.shape[-1], x.layout.elem_count
    mark, index_bytes, index_shift = targets.dtype.index_form
    # Any other number that is ignored is no index either.
    packed = pack(
        source=x.address, indexes=targets.address, wrong=index_record(op, targets.dtype, size), run_parts=RUN_PARTS,
        rows=count // size, length=size, ignored=min(max(ignored, _LEAST_I64), _MOST_I64),
        index_stride=index_stride(targets), index_bytes=index_bytes, index_shift=index_shift, index_mark=mark,
        threads=THREADS,
    )  # fmt: skip
    build.launch("host_rows", f"{op}_{x.dtype.value}", 1, packed, work=count)


def cumsum(build: ProgramBuilder, kernels: HostKernels, x: Operand, dim: int) -> Buffer | None:
    """As `scan.cumsum`; None where NumPy does it."""
    return _scan(build, kernels, f"scan_sum_{x.dtype.value}", x, dim)


def cumprod(build: ProgramBuilder, kernels: HostKernels, x: Operand, dim: int) -> Buffer | None:
    """As `scan.cumprod`; None where NumPy does it."""
    return _scan(build, kernels, f"scan_prod_{x.dtype.value}", x, dim)


def _scan(build: ProgramBuilder, kernels: HostKernels, kernel: str, x: Operand, dim: int) -> Buffer | None:
    shape, count = x.shape, x.layout.elem_count
    if not kernels.has("host_scan", kernel) or count == 0:
        return None
    x = contiguous(build, x)
    result = build.empty(x.dtype, count)
    packed = host_arguments.scan_lines(
        result=result.address, source=x.address, run_parts=RUN_PARTS, rows=math.prod(shape[:dim]), length=shape[dim],
        inner=math.prod(shape[dim + 1 :]), threads=THREADS,
    )  # fmt: skip
    build.launch("host_scan", kernel, 1, packed)
    return result


def searchsorted(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, values: Operand, right: bool
) -> Buffer | None:
    """As `sort.searchsorted`; None where NumPy does it."""
    shape, wanted, kernel = x.shape, values.shape, f"search_{x.dtype.value}"
    if not kernels.has("host_sort", kernel) or wanted.elem_count == 0 or shape.elem_count == 0:
        return None
    x, values = contiguous(build, x), contiguous(build, values)
    result = build.empty(DType.I64, wanted.elem_count)
    packed = host_arguments.find_places(
        result=result.address, source=x.address, values=values.address, run_parts=RUN_PARTS,
        count=wanted.elem_count, per_line=wanted[-1] if len(shape) > 1 else wanted.elem_count, length=shape[-1],
        right=right, threads=THREADS,
    )  # fmt: skip
    build.launch("host_sort", kernel, 1, packed)
    return result


def argsort(build: ProgramBuilder, kernels: HostKernels, x: Operand, descending: bool, count: int) -> Buffer | None:
    """As `sort.argsort`; None where NumPy does it."""
    kernel, elements = f"argsort_{x.dtype.value}", x.layout.elem_count
    length = x.shape[-1] if x.shape else 1
    # NumPy's positions have 64 bits.
    if not kernels.has("host_sort", kernel) or elements * count == 0 or length >= _MOST_POSITIONS:
        return None
    lines, room = elements // length, -(-length // _ROOM) * _ROOM
    sorted_count = count if count <= SELECTED_COUNT else length
    scratch: Pointer = NOWHERE
    if sorted_count == length > COUNTED_LENGTH[x.itemsize]:
        nbytes = min(lines, SORTED_LINES) * room * (2 * x.itemsize + DType.U32.itemsize)
        scratch = build.allocate(nbytes).address
    x = contiguous(build, x)
    result = build.empty(DType.U32, lines * sorted_count)
    packed = host_arguments.argsort_lines(
        result=result.address, source=x.address, scratch=scratch, run_parts=RUN_PARTS, lines=lines, length=length,
        count=sorted_count, room=room, descending=descending, threads=THREADS,
    )  # fmt: skip
    build.launch("host_sort", kernel, 1, packed, work=elements)
    if sorted_count == count:
        return result
    first: Buffer = copied(build, Operand(result, Layout((lines, count), (length, 1)))).storage
    return first


def sort(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, descending: bool, count: int
) -> tuple[Buffer, ...] | None:
    """As `sort.sort`; None where NumPy does it."""
    positions = argsort(build, kernels, x, descending, count)
    if positions is None:
        return None
    line = x.with_a_dim
    first = dense(positions, (*line.shape[:-1], count))
    values = gathered(build, "sort", line, first, len(first.shape) - 1)
    return None if values is None else (values, positions)
