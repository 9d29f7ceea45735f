"""Discrete Fourier transforms of lines along the last dim: by a library, else on the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .....dtype import Array, DType
from .....kernels.constants import ACCESS_BYTES
from ..libraries.library import Transform
from . import copy, on_host
from .operand import Operand

if TYPE_CHECKING:
    from ..libraries.library import Transforms
    from ..memory.storage import GpuStorage


def by_library(library: Transforms, x: Operand, inverse: bool) -> GpuStorage:
    """Transforms of complex numbers, without a division."""
    form = Transform.INVERSE if inverse else Transform.FORWARD
    return _enqueued(library, x, form, x.shape[-1], x.dtype, x.shape[-1])


def real_by_library(library: Transforms, x: Operand) -> GpuStorage:
    """Transforms of real numbers."""
    return _enqueued(library, x, Transform.REAL, x.shape[-1], _complex(x.dtype), x.shape[-1] // 2 + 1)


def inverse_real_by_library(library: Transforms, x: Operand, count: int) -> GpuStorage:
    """Transforms back to `count` real numbers, without a division."""
    return _enqueued(library, x, Transform.INVERSE_REAL, count, x.dtype.real, count)


def _enqueued(library: Transforms, x: Operand, form: Transform, count: int, dtype: DType, length: int) -> GpuStorage:
    lines = math.prod(x.shape[:-1])
    result = x.device.empty(dtype, lines * length)
    if lines:
        # A library may write to what it transforms to real numbers.
        is_kept = form is Transform.INVERSE_REAL or x.address % ACCESS_BYTES
        source = copy.copied(x) if is_kept else copy.contiguous(x)
        library.transform(dtype.real, form, count, lines, source.address, result.memory.address)
    return result


def _complex(dtype: DType) -> DType:
    found = dtype.complex
    assert found is not None, "the spec lists dtypes that are parts of complex numbers"
    return found


def fft(x: Operand, inverse: bool) -> GpuStorage:
    """The same on the host."""
    return _on_host(x, partial(np.fft.ifft, norm="forward") if inverse else np.fft.fft, x.dtype)


def rfft(x: Operand) -> GpuStorage:
    """The same of real numbers."""
    return _on_host(x, np.fft.rfft, _complex(x.dtype))


def irfft(x: Operand, count: int) -> GpuStorage:
    """The same back to `count` real numbers."""
    return _on_host(x, partial(np.fft.irfft, n=count, norm="forward"), x.dtype.real)


def _on_host(x: Operand, compute: Callable[[Array], Any], dtype: DType) -> GpuStorage:
    (found,) = on_host.computed(lambda lines: (compute(lines).astype(dtype.numpy, copy=False),), x)
    return found
