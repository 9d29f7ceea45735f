"""Discrete Fourier transforms of lines along the last dim: by a library, else on the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .....dtype import Array, DType
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand
from ..libraries.library import Transform
from . import copy, on_host

if TYPE_CHECKING:
    from ..libraries.library import Transforms


def by_library(build: ProgramBuilder, library: Transforms, x: Operand, inverse: bool) -> Buffer:
    """Transforms of complex numbers, without a division."""
    form = Transform.INVERSE if inverse else Transform.FORWARD
    return _transformed(build, library, x, form, x.shape[-1], x.dtype, x.shape[-1])


def real_by_library(build: ProgramBuilder, library: Transforms, x: Operand) -> Buffer:
    """Transforms of real numbers."""
    return _transformed(build, library, x, Transform.REAL, x.shape[-1], _complex(x.dtype), x.shape[-1] // 2 + 1)


def inverse_real_by_library(build: ProgramBuilder, library: Transforms, x: Operand, count: int) -> Buffer:
    """Transforms back to `count` real numbers, without a division."""
    return _transformed(build, library, x, Transform.INVERSE_REAL, count, x.dtype.real, count)


def _transformed(
    build: ProgramBuilder, library: Transforms, x: Operand, form: Transform, count: int, dtype: DType, length: int
) -> Buffer:
    lines = math.prod(x.shape[:-1])
    result = build.empty(dtype, lines * length)
    if lines:
        # A library may write to what it transforms to real numbers.
        is_kept = form is Transform.INVERSE_REAL or not x.address.is_aligned()
        source = copy.copied(build, x) if is_kept else copy.contiguous(build, x)
        build.append(library.transform(dtype.real, form, count, lines, source.address, result.address))
    return result


def _complex(dtype: DType) -> DType:
    found = dtype.complex
    assert found is not None, "the spec lists dtypes that are parts of complex numbers"
    return found


def fft(build: ProgramBuilder, x: Operand, inverse: bool) -> Buffer:
    """The same on the host."""
    compute = partial(np.fft.ifft, norm="forward") if inverse else np.fft.fft
    return _on_host(build, x, compute, x.dtype, x.shape[-1])


def rfft(build: ProgramBuilder, x: Operand) -> Buffer:
    """The same of real numbers."""
    return _on_host(build, x, np.fft.rfft, _complex(x.dtype), x.shape[-1] // 2 + 1)


def irfft(build: ProgramBuilder, x: Operand, count: int) -> Buffer:
    """The same back to `count` real numbers."""
    return _on_host(build, x, partial(np.fft.irfft, n=count, norm="forward"), x.dtype.real, count)


def _on_host(build: ProgramBuilder, x: Operand, compute: Callable[[Array], Any], dtype: DType, length: int) -> Buffer:
    results = dtype, math.prod(x.shape[:-1]) * length
    return on_host.computed(build, lambda lines: (compute(lines),), (x,), results)[0]
