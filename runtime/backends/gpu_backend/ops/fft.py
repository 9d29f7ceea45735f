"""Discrete Fourier transforms of lines along the last dim: by a library, else on the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..... import results
from .....dtype import Array
from ....core.tensor_type import TensorType
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand
from ..libraries.library import Transform
from . import copy, on_host

if TYPE_CHECKING:
    from ..libraries.library import Transforms


def by_library(build: ProgramBuilder, library: Transforms, x: Operand, inverse: bool) -> Buffer:
    """Transforms of complex numbers, without a division."""
    form = Transform.INVERSE if inverse else Transform.FORWARD
    return _transformed(build, library, x, form, x.shape[-1], results.fft(x))


def real_by_library(build: ProgramBuilder, library: Transforms, x: Operand) -> Buffer:
    """Transforms of real numbers."""
    return _transformed(build, library, x, Transform.REAL, x.shape[-1], results.rfft(x))


def inverse_real_by_library(build: ProgramBuilder, library: Transforms, x: Operand, count: int) -> Buffer:
    """Transforms back to `count` real numbers, without a division."""
    return _transformed(build, library, x, Transform.INVERSE_REAL, count, results.irfft(x, count))


def _transformed(
    build: ProgramBuilder, library: Transforms, x: Operand, form: Transform, count: int, transforms: TensorType
) -> Buffer:
    lines, result = math.prod(x.shape[:-1]), build.output(transforms)
    if lines:
        # A library may write to what it transforms to real numbers.
        is_kept = form is Transform.INVERSE_REAL or not x.address.is_aligned()
        source = copy.copied(build, x) if is_kept else copy.contiguous(build, x)
        build.append(library.transform(x.dtype.real, form, count, lines, source.address, result.address))
    return result


def fft(build: ProgramBuilder, x: Operand, inverse: bool) -> Buffer:
    """Transform on the host."""
    return _on_host(build, x, partial(np.fft.ifft, norm="forward") if inverse else np.fft.fft, results.fft(x))


def rfft(build: ProgramBuilder, x: Operand) -> Buffer:
    """Transform real numbers."""
    return _on_host(build, x, np.fft.rfft, results.rfft(x))


def irfft(build: ProgramBuilder, x: Operand, count: int) -> Buffer:
    """Transform back to `count` real numbers."""
    return _on_host(build, x, partial(np.fft.irfft, n=count, norm="forward"), results.irfft(x, count))


def _on_host(build: ProgramBuilder, x: Operand, compute: Callable[[Array], Any], transforms: TensorType) -> Buffer:
    return on_host.computed(build, lambda lines: (compute(lines),), (x,), transforms)[0]
