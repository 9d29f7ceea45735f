"""Discrete Fourier transforms of lines along the last dim."""

from __future__ import annotations

from typing import Any

from .operand import Operand


def fft(x: Operand, inverse: bool) -> Any:
    """Transform lines of complex numbers, or transform them back, without a division."""
    return x.result(x.library.inverse_fft(x.array) if inverse else x.library.fft(x.array))


def rfft(x: Operand) -> Any:
    """Transform lines of real numbers."""
    return x.result(x.library.rfft(x.array), x.dtype.complex)


def irfft(x: Operand, count: int) -> Any:
    """Transform back to lines of `count` real numbers, without a division."""
    return x.result(x.library.irfft(x.array, count), x.dtype.real)
