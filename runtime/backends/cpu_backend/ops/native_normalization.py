"""Normalisation of channels by the kernels for the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..... import results
from .....kernels import host_arguments
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, address_of
from ..values import RUN_PARTS, THREADS, number_bits
from .native import contiguous, copied
from .native_copy import Written

if TYPE_CHECKING:
    from ..kernels import HostKernels

_FAMILY: Final = "host_normalization"
_KINDS: Final = {1: "rows", 2: "columns"}
# Parts of the rows of an item: as many as threads may share, whatever their number, each of so many elements at least.
_MAX_PARTS: Final = 64
_PART_LENGTH: Final = 1 << 14
# Two doubles for each part of a channel, and four numbers that it is written by.
_SUMS_BYTES: Final = 16
_FACTORS: Final = 4


def normalize_groups(
    build: ProgramBuilder,
    kernels: HostKernels,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    groups: int,
    dim: int,
    whole_batch: bool,
    eps: float,
) -> tuple[Buffer, ...] | None:
    """As `normalization.normalize_groups`; None where NumPy does it."""
    name = f"normalize_groups_{x.dtype.value}_{_KINDS[dim]}"
    if not kernels.has(_FAMILY, name):
        return None
    outputs = result, mean, variance = tuple(map(build.output, results.normalize_groups(x, groups, whole_batch)))
    _launch(
        build, name, x, dim, groups, whole_batch, eps, result=result, mean=mean, variance=variance,
        weight=_vector(build, weight), bias=_vector(build, bias),
    )  # fmt: skip
    return outputs


def normalize_groups_gradient(
    build: ProgramBuilder,
    kernels: HostKernels,
    x: Operand,
    weight: Operand | None,
    mean: Operand,
    variance: Operand,
    gradient: Operand,
    groups: int,
    dim: int,
    whole_batch: bool,
    eps: float,
) -> tuple[Buffer, ...] | None:
    """As `normalization.normalize_groups_gradient`; None where NumPy does it."""
    name = f"normalize_groups_gradient_{x.dtype.value}_{_KINDS[dim]}"
    if not kernels.has(_FAMILY, name):
        return None
    outputs = result, of_weight, of_bias = tuple(map(build.output, results.normalize_groups_gradient(x, dim)))
    _launch(
        build, name, x, dim, groups, whole_batch, eps, gradient, result=result, mean=contiguous(build, mean),
        variance=contiguous(build, variance), weight=_vector(build, weight), weight_gradient=of_weight,
        bias_gradient=of_bias,
    )  # fmt: skip
    return outputs


def normalize_channels(
    build: ProgramBuilder,
    kernels: HostKernels,
    x: Operand,
    mean: Operand,
    variance: Operand,
    weight: Operand | None,
    bias: Operand | None,
    dim: int,
    eps: float,
) -> Buffer | None:
    """As `normalization.normalize_channels`; None where NumPy does it."""
    name = f"normalize_channels_{x.dtype.value}_{_KINDS[dim]}"
    if not kernels.has(_FAMILY, name):
        return None
    result = build.empty(x.dtype, x.layout.elem_count)
    _launch(
        build, name, x, dim, x.shape[dim], True, eps, result=result, mean=contiguous(build, mean),
        variance=contiguous(build, variance), weight=_vector(build, weight), bias=_vector(build, bias),
    )  # fmt: skip
    return result


def move_statistics(
    build: ProgramBuilder, kernels: HostKernels, running: Operand, new: Operand, share: float, factor: float
) -> Written:
    """As `normalization.move_statistics`; None where NumPy does it."""
    name, compute, count = f"move_statistics_{running.dtype.value}", running.dtype.compute, running.layout.elem_count
    if not kernels.has(_FAMILY, name):
        return None
    packed = host_arguments.moved_statistics(
        result=running.address, source=new.address, result_stride=running.strides[0], source_stride=new.strides[0],
        kept=number_bits(1 - share, compute), share=number_bits(share, compute), factor=number_bits(factor, compute),
        count=count,
    )  # fmt: skip
    build.launch(_FAMILY, name, 1, packed, work=count)
    return ()


def _launch(
    build: ProgramBuilder,
    name: str,
    x: Operand,
    dim: int,
    groups: int,
    whole_batch: bool,
    eps: float,
    gradient: Operand | None = None,
    **operands: Operand | Buffer | None,
) -> None:
    x = _in_rows(build, x)
    gradient = None if gradient is None else _in_rows(build, gradient)
    batch, channels, length = x.shape[0], x.shape[dim], x.shape[3 - dim]
    vectors = 1 if whole_batch else batch
    parts, chunk = vectors, length
    if dim == 2:
        most = min(max(batch * channels * length // _PART_LENGTH, 1), _MAX_PARTS)
        chunk = max(-(-length * batch // most), 1)
        parts = batch * -(-length // chunk)
    sums = build.allocate(parts * channels * _SUMS_BYTES)
    factors = build.allocate(vectors * channels * _FACTORS * x.dtype.compute.itemsize)
    weight, mean = operands.get("weight") or operands.get("bias"), operands["mean"]
    steps = x.strides[:2], (0, 0) if gradient is None else gradient.strides[:2]
    # fmt: off
    packed = host_arguments.normalized_channels(
        source=x.address, gradient=address_of(gradient), sums=address_of(sums), factors=address_of(factors),
        run_parts=RUN_PARTS, epsilon=number_bits(eps, x.dtype.compute), source_batch=steps[0][0],
        source_step=steps[0][1], gradient_batch=steps[1][0], gradient_step=steps[1][1], batch=batch,
        channels=channels, length=length, splits=parts // max(batch, 1), chunk=chunk, group_size=channels // groups,
        batch_groups=0 if whole_batch else groups, wide_affine=_is_wide(x, weight), wide_statistics=_is_wide(x, mean),
        threads=THREADS, **{field: address_of(operands.get(field)) for field in _ADDRESSES},
    )
    # fmt: on
    build.launch(_FAMILY, name, 1, packed, work=x.layout.elem_count)


_ADDRESSES: Final = ("result", "mean", "variance", "weight", "bias", "weight_gradient", "bias_gradient")


def _in_rows(build: ProgramBuilder, x: Operand) -> Operand:
    """The elements with those of the last dim side by side: where they are, else copied."""
    return x if x.strides[2] == 1 or x.shape[2] == 1 else copied(build, x)


def _vector(build: ProgramBuilder, vector: Operand | None) -> Operand | None:
    return None if vector is None else contiguous(build, vector)


def _is_wide(x: Operand, vector: Operand | Buffer | None) -> bool:
    """Whether vectors are in the compute dtype of the elements; where they are left out no kernel asks."""
    return vector is not None and (vector.storage if isinstance(vector, Operand) else vector).dtype is not x.dtype
