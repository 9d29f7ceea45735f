"""Functions of `numpy.fft` that the standard does not have, for tensors: the transforms of planes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...tensor import Tensor
from .. import fft

__all__ = ["fft2", "ifft2", "irfft2", "rfft2"]


def _of_planes(transform: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def of_planes(
        a: Tensor, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: Any = "backward"
    ) -> Tensor:
        return transform(a, s=s, axes=axes, norm=norm)

    return of_planes


fft2, ifft2, rfft2, irfft2 = map(_of_planes, (fft.fftn, fft.ifftn, fft.rfftn, fft.irfftn))
