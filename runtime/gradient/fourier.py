"""Gradients of Fourier transforms: transforms with the other sign."""

from __future__ import annotations

from ..tensor import Tensor


def fft(g: Tensor, inverse: bool) -> Tensor:
    """Return the gradient of lines that were transformed."""
    return Tensor._new(g._storage.fft(g._layout, not inverse), g._layout.dense)


def rfft(g: Tensor, count: int) -> Tensor:
    """Return the gradient of lines of `count` real points."""
    return fft(g.pad([(0, count - g.shape[-1])]), inverse=False).real()


def irfft(g: Tensor, count: int) -> Tensor:
    """Return the gradient of the first half of transforms of `count` real points, of which most count twice."""
    size = count // 2 + 1
    transform = Tensor.from_storage(g.storage.rfft(g.layout), (*g.shape[:-1], size))
    positions = Tensor.arange(0, size, device=g.device)
    is_alone = (positions == 0) | (positions * 2 == count)
    return is_alone.where(transform, transform * 2)
