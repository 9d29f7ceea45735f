"""Discrete Fourier transforms: by hipFFT or cuFFT where they are, else on the host, by NumPy's pocketfft.

Transforms keep the precision: f32 and complex64 give complex64. `norm` says which direction is divided by the number of
points: "backward" the inverse one, "forward" the other, "ortho" both by its root. Real numbers where complex ones are
expected count as such.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from ... import results
from ...device import Device
from ...dtype import DType
from ..base.error import InvalidArgument, UnsupportedDType, describe
from ..core.argument import integer, integers, real
from ..core.conversion import conversion
from ..core.shape import Shape
from ..helpers.host_memory import raises_out_of_memory, require_memory
from ..tensor import Tensor
from .elementwise import conj
from .manipulation import axes_of, roll
from .result_layouts import result_layouts

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]

Norm = Literal["backward", "ortho", "forward"]
# How a norm of the inverse transform divides.
_REVERSED: dict[Norm, Norm] = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Transform along an axis, cut or padded with zeros to `n` points."""
    return _transformed("fft", x, *_one("fft", n, axis), norm, inverse=False)


def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Transform back what `fft` transformed."""
    return _transformed("ifft", x, *_one("ifft", n, axis), norm, inverse=True)


def fftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> Tensor:
    """Transform along several axes, by default all, cut or padded to `s` points."""
    return _transformed("fftn", x, s, axes, norm, inverse=False)


def ifftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> Tensor:
    """Transform back what `fftn` transformed."""
    return _transformed("ifftn", x, s, axes, norm, inverse=True)


def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Transform real numbers; the half of the result that the other half follows from is left out."""
    return _of_real("rfft", x, *_one("rfft", n, axis), norm)


def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Transform back what `rfft` transformed, to `n` points, by default an even number."""
    return _to_real("irfft", x, *_one("irfft", n, axis), norm)


def rfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> Tensor:
    """Transform real numbers along several axes; along the last one, half of the result is left out."""
    return _of_real("rfftn", x, s, axes, norm)


def irfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> Tensor:
    """Transform back what `rfftn` transformed."""
    return _to_real("irfftn", x, s, axes, norm)


def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Transform the half of a Hermitian sequence to `n` real numbers."""
    return _to_real("hfft", conj(x), *_one("hfft", n, axis), _reversed("hfft", norm))


def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Transform back what `hfft` transformed."""
    return conj(_of_real("ihfft", x, *_one("ihfft", n, axis), _reversed("ihfft", norm)))


@raises_out_of_memory
def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """Return the frequencies of the results of `fft` of `n` points at distances `d`."""
    points = _sampled("fftfreq", n, d)
    return Tensor(np.fft.fftfreq(*points), dtype=DType.F32 if dtype is None else dtype, device=device)


@raises_out_of_memory
def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """Return the frequencies of the results of `rfft` of `n` points at distances `d`."""
    points = _sampled("rfftfreq", n, d)
    return Tensor(np.fft.rfftfreq(*points), dtype=DType.F32 if dtype is None else dtype, device=device)


def fftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Move frequency 0 to the middle of some axes, by default all."""
    chosen = _chosen("fftshift", x, axes)
    return roll(x, tuple(x.shape[axis] // 2 for axis in chosen), axis=chosen)


def ifftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Move back what `fftshift` moved."""
    chosen = _chosen("ifftshift", x, axes)
    return roll(x, tuple(-(x.shape[axis] // 2) for axis in chosen), axis=chosen)


def _sampled(op: str, n: int, d: float) -> tuple[int, float]:
    count, distance = integer(op, "n", n), real(op, "d", d)
    require_memory(DType.F64, (count,))
    if count < 1 or distance == 0:
        raise InvalidArgument(op, f"n is 1 or more and d is not 0, not n {n} and d {d}")
    return count, distance


def _chosen(op: str, x: Tensor, axes: int | Sequence[int] | None) -> tuple[int, ...]:
    if axes is None:
        return tuple(range(x.rank))
    return tuple([x.shape.dim(op, axis, "axes") for axis in axes_of(op, axes, "axes")])


def _one(op: str, n: int | None, axis: int) -> tuple[Sequence[int] | None, Sequence[int]]:
    return None if n is None else (integer(op, "n", n),), (integer(op, "axis", axis),)


def _transformed(
    op: str, x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None, norm: Norm, *, inverse: bool
) -> Tensor:
    """Transform complex numbers along axes."""
    chosen = _points(op, x, s, axes)
    result = _complex(op, x)
    for axis, count in chosen.items():
        result = _along(_cut(result, axis, count), axis, inverse)
    return _divided(op, result, list(chosen.values()), norm, inverse=inverse)


def _of_real(op: str, x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None, norm: Norm) -> Tensor:
    """Transform real numbers along the last of some axes, and complex ones along the others."""
    *others, (axis, count) = _points(op, x, s, axes).items()
    line = _last(_cut(x, axis, count), axis)
    half = Tensor._new(line.storage.rfft(line.layout), *result_layouts(results.rfft, line))
    result = _moved_back(half, axis)
    for other, length in others:
        result = _along(_cut(result, other, length), other, False)
    return _divided(op, result, [count, *(length for _, length in others)], norm, inverse=False)


def _to_real(op: str, x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None, norm: Norm) -> Tensor:
    """Transform complex numbers back along some axes, along the last of them to real numbers."""
    *others, (axis, count) = _points(op, x, s, axes).items()
    if s is None:
        count = max(2 * (count - 1), 1)
    result = _complex(op, x)
    for other, length in others:
        result = _along(_cut(result, other, length), other, True)
    line = _last(_cut(result, axis, count // 2 + 1), axis)
    signal = Tensor._new(line.storage.irfft(line.layout, count), *result_layouts(results.irfft, line, count))
    return _divided(op, _moved_back(signal, axis), [count, *(length for _, length in others)], norm, inverse=True)


def _points(op: str, x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None) -> Mapping[int, int]:
    """Return the number of points along each axis that is transformed."""
    sizes = None if s is None else integers(op, "s", s)
    return _points_of(op, x.shape, sizes, None if axes is None else integers(op, "axes", axes))


@lru_cache(maxsize=4096)
def _points_of(op: str, shape: Shape, sizes: tuple[int, ...] | None, axes: tuple[int, ...] | None) -> Mapping[int, int]:
    if axes is None:
        axes = tuple(range(len(shape) if sizes is None else len(sizes)))
        axes = tuple([axis + len(shape) - len(axes) for axis in axes])
    chosen = [shape.dim(op, axis, "axis") for axis in axes]
    counts = [shape[axis] for axis in chosen] if sizes is None else list(sizes)
    if not chosen or len({*chosen}) != len(chosen) or len(counts) != len(chosen):
        raise InvalidArgument(op, f"there are {len(chosen)} axes; name one or more, each once, with as many sizes")
    if min(counts) < 1:
        raise InvalidArgument(op, f"{min(counts)} points have no transform; use at least 1")
    return dict(zip(chosen, counts, strict=True))


def _complex(op: str, x: Tensor) -> Tensor:
    if x.dtype.is_complex:
        return x
    dtype = x.dtype.complex if x.dtype.is_inexact else None
    if dtype is None:
        reason, fix = "transforms are of f32, f64 and complex numbers", conversion(x.dtype, (DType.F32, DType.F64))
        raise UnsupportedDType(op, x.dtype, x.device.backend, reason, fix)
    return x.to_dtype(dtype)


def _cut(x: Tensor, axis: int, count: int) -> Tensor:
    """Cut an axis, or pad it with zeros, to `count` points."""
    size = x.shape[axis]
    if count == size:
        return x
    return x.narrow(axis, 0, count) if count < size else x.pad_with_zeros(axis, 0, count - size)


def _along(x: Tensor, axis: int, inverse: bool) -> Tensor:
    line = _last(x, axis)
    return _moved_back(line._like(line.storage.fft(line.layout, inverse)), axis)


def _last(x: Tensor, axis: int) -> Tensor:
    """Make an axis the last one."""
    return x if axis == x.rank - 1 else x.movedim(axis, -1)


def _moved_back(x: Tensor, axis: int) -> Tensor:
    """Move the last axis back."""
    return x if axis == x.rank - 1 else x.movedim(-1, axis)


def _require_norm(op: str, norm: Norm) -> None:
    if not isinstance(norm, str) or norm not in _REVERSED:
        raise InvalidArgument(op, f"there is no norm {describe(norm)}; use {', '.join(_REVERSED)}")


def _reversed(op: str, norm: Norm) -> Norm:
    _require_norm(op, norm)
    return _REVERSED[norm]


def _divided(op: str, x: Tensor, counts: Sequence[int], norm: Norm, *, inverse: bool) -> Tensor:
    _require_norm(op, norm)
    if norm == "ortho":
        return x / math.sqrt(math.prod(counts))
    return x / math.prod(counts) if (norm == "backward") == inverse else x
