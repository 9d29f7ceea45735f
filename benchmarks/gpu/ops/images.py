"""Pooling and upsampling of images. The larger side of each has as many elements as the size of the run says."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from ..libraries import Data
from ..work import Op, Work, close

_FACTOR = 2
_NO_IMAGES = "CuPy has no pooling and no upsampling of NCHW"


def _text(shape: torch.Size) -> str:
    return " x ".join(map(str, shape))


def _pool(name: str, theirs: Callable[[torch.Tensor, int], torch.Tensor], ulps: float, absolute: float) -> Op:
    def build(data: Data) -> Work:
        images = data.images(data.elements)
        ours = getattr(images.tallow, name)
        return Work(
            shape=f"{_text(images.torch.shape)}, windows of {_FACTOR} x {_FACTOR}",
            nbytes=(data.elements + data.elements // _FACTOR**2) * data.itemsize,
            tallow=lambda: ours(_FACTOR),
            torch=lambda: theirs(images.torch, _FACTOR),
            cupy=_NO_IMAGES,
            check=close(lambda: theirs(images.torch.double(), _FACTOR), data, ulps, absolute),
        )

    return Op("images", name, build)


def _upsample(name: str, interpolate: Callable[[torch.Tensor], torch.Tensor], ulps: float, absolute: float) -> Op:
    def build(data: Data) -> Work:
        small = data.elements // _FACTOR**2
        images = data.images(small)
        ours = getattr(images.tallow, name)
        height, width = (_FACTOR * size for size in images.torch.shape[2:])
        return Work(
            shape=f"{_text(images.torch.shape)} to {height} x {width}",
            nbytes=(data.elements + small) * data.itemsize,
            tallow=lambda: ours(height, width),
            torch=lambda: interpolate(images.torch),
            cupy=_NO_IMAGES,
            check=close(lambda: interpolate(images.torch.double()), data, ulps, absolute),
        )

    return Op("images", name, build)


def _nearest(images: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(images, scale_factor=_FACTOR, mode="nearest")


def _bilinear(images: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(images, scale_factor=_FACTOR, mode="bilinear", align_corners=False)


OPS = (
    _pool("avg_pool2d", functional.avg_pool2d, ulps=1, absolute=2),
    _pool("max_pool2d", functional.max_pool2d, ulps=0, absolute=0),
    _upsample("upsample_nearest2d", _nearest, ulps=0, absolute=0),
    _upsample("upsample_bilinear2d", _bilinear, ulps=1, absolute=4),
)
