"""Discrete Fourier transforms by their definition: products with the roots of unity, in extended precision."""

from __future__ import annotations

import numpy as np

from .formats import EXTENDED, Array, decode, joined
from .functions import cos_turns, sin_turns


def transform(lines: Array, direction: int) -> Array:
    """Sums over j of x[j] exp(direction 2 pi i j k / n) along the last axis; given and result are extended."""
    count = lines.shape[-1]
    indices = np.arange(count)
    turns = (np.outer(indices, indices) % count).astype(EXTENDED) / count
    cosine, sine = cos_turns(turns), direction * sin_turns(turns)
    with np.errstate(all="ignore"):
        return joined(
            lines.real @ cosine - lines.imag @ sine,
            lines.real @ sine + lines.imag @ cosine,
        )


def fft(name: str, x: Array, inverse: bool) -> Array:
    """Extended."""
    return transform(decode(name, x), 1 if inverse else -1)


def rfft(name: str, x: Array) -> Array:
    """Extended."""
    return transform(decode(name, x), -1)[..., : x.shape[-1] // 2 + 1]


def irfft(name: str, x: Array, count: int) -> Array:
    """Extended real numbers, of the half of a transform and its conjugates."""
    half = decode(name, x)
    half.imag[..., 0] = 0
    if count % 2 == 0:
        half.imag[..., -1] = 0
    remaining = np.conj(half[..., 1 : count - half.shape[-1] + 1][..., ::-1])
    full: Array = transform(np.concatenate([half, remaining], -1), 1).real
    return full
