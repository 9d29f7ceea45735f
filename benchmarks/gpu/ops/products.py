"""Ops that are bound by arithmetic: matmul and conv2d. f32 is full f32, never TF32."""

from __future__ import annotations

import math

import tallow as tl
import torch
from tallow.runtime.backends.gpu_backend.ops import matmul
from tallow.runtime.program.operand import Operand
from torch.nn import functional

from ..libraries import Data
from ..work import Op, Work, close

# A product of matrices with 2^28 elements would take as long as all the rest.
_LARGEST_MATRIX = 8192
_WINDOW = 3


def _matmul(data: Data, part: int = 1, *, by_kernel: bool = False) -> Work:
    size = max(min(data.rows, _LARGEST_MATRIX) // part, 1)
    x, y = (data.share(operand.torch.view(-1)[: size**2].view(size, size)) for operand in (data.x, data.y))
    return Work(
        shape=f"{size} x {size} by {size} x {size}",
        nbytes=3 * size**2 * data.itemsize,
        flops=2 * size**3,
        tallow=lambda: _by_kernel(x.tallow, y.tallow) if by_kernel else x.tallow.matmul(y.tallow),
        torch=lambda: torch.matmul(x.torch, y.torch),
        cupy=lambda: data.cupy.matmul(x.cupy, y.cupy),
        # As conformance bounds a sum: by 4 + log2 of its length, for terms of which the absolute values are 2 / pi.
        check=close(
            lambda: torch.matmul(x.torch.double(), y.torch.double()),
            data,
            ulps=1,
            absolute=(4 + math.log2(size)) * size * 2 / math.pi,
        ),
    )


def _by_kernel(x: tl.Tensor, y: tl.Tensor) -> tl.Tensor:
    """A product of square matrices by tallow's own kernel, which matmul calls where no library is there."""
    lhs, rhs = (Operand(operand.storage.inner, operand.layout) for operand in (x, y))
    size = x.shape[0]
    result = x.device.inner.run(matmul.matmul, lhs, rhs, (1, size, size, size))
    return tl.Tensor.from_storage(tl.Storage(result), x.shape)


def _conv2d(data: Data) -> Work:
    images = data.images(data.elements)
    channels = images.torch.shape[1]
    products = channels * _WINDOW**2
    kernel = data.share(data.normal(channels, channels, _WINDOW, _WINDOW) / math.sqrt(products))
    shape = " x ".join(map(str, images.torch.shape))

    def expected() -> torch.Tensor:
        # One image at a time, for the work space that a convolution in f64 takes.
        weights = kernel.torch.double()
        return torch.cat([functional.conv2d(image.double(), weights, padding=1) for image in images.torch.split(1)])

    return Work(
        shape=f"{shape}, {channels} kernels of {_WINDOW} x {_WINDOW}",
        nbytes=(2 * data.elements + kernel.torch.numel()) * data.itemsize,
        flops=2 * data.elements * products,
        tallow=lambda: images.tallow.conv2d(kernel.tallow, padding=1),
        torch=lambda: functional.conv2d(images.torch, kernel.torch, padding=1),
        cupy="CuPy has no convolution of NCHW",
        # The kernel is scaled so that results are about 1, and so are the errors of their sums.
        check=close(expected, data, ulps=1, absolute=4 * math.sqrt(products)),
    )


def _linear(data: Data) -> Work:
    size = min(data.rows, _LARGEST_MATRIX)
    x, weight = (data.share(operand.torch.view(-1)[: size**2].view(size, size)) for operand in (data.x, data.y))
    bias = data.share(data.normal(size))
    return Work(
        shape=f"{size} x {size} by {size} x {size}",
        nbytes=3 * size**2 * data.itemsize,
        flops=2 * size**3,
        tallow=lambda: x.tallow.linear(weight.tallow, bias.tallow),
        torch=lambda: functional.linear(x.torch, weight.torch, bias.torch),
        cupy="CuPy has no product with a bias",
        check=close(
            lambda: functional.linear(x.torch.double(), weight.torch.double(), bias.torch.double()),
            data,
            ulps=1,
            absolute=(4 + math.log2(size)) * size * 2 / math.pi,
        ),
    )


OPS = (
    Op("products", "matmul", _matmul),
    Op("products", "matmul, own kernels", lambda data: _matmul(data, by_kernel=True)),
    Op("products", "matmul of half the side, own kernels", lambda data: _matmul(data, 2, by_kernel=True)),
    Op("products", "linear", _linear),
    Op("images", "conv2d", _conv2d),
)
