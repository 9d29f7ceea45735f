"""The layers of networks by the kernels for the host."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...dtype import DType
from ...host_memory import tells_lack_of_memory
from ...kernels import host_arguments
from ...threads import get_threads
from .array import contiguous
from .compiled import bits_of
from .operand import Operand

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage


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
    kernel = kernels.kernel("host_rows", f"{name}_{x.dtype.value}")
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
    kernel = kernels.kernel("host_rows", f"{name}_{x.dtype.value}")
    if kernel is None or count == 0:
        return None
    given = [None if operand is None else _Dense(operand) for operand in (x, weight, bias, residual)]
    addresses = [0 if operand is None else operand.address for operand in given]
    results = [x.result(np.empty(count, x.dtype.numpy)) for _ in range(1 if residual is None else 2)]
    sums = results[1].address if residual is not None else 0
    kernel(
        host_arguments.NORM_ROWS.pack(
            results[0].address, *addresses, sums, kernels.run_parts, math.prod(shape[:-1]), shape[-1],
            bits_of(eps, DType.F64), get_threads(),
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
