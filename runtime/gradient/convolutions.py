"""Gradients of convolutions, with and without an epilogue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...gradients.functors import DERIVATIVES
from ...op import UnaryOp
from ..core.conv import ParamsConvolution
from ..core.layout import layout_of
from ..tensor import Tensor
from .node import arguments_of


def channels_second(x: Tensor, params: ParamsConvolution) -> Tensor:
    """The result of a convolution, or of a gradient of it, as (b, c, ..)."""
    return x.movedim(-1, 1) if params.channels_last else x


def convolution(x: Tensor, kernel: Tensor, params: ParamsConvolution) -> Tensor:
    """A convolution, which is the gradient of the gradient of its input."""
    return _convolved(x, "convolution", kernel, params, params.out_dims, x)


def convolution_input(g: Tensor, kernel: Tensor, params: ParamsConvolution) -> Tensor:
    """That of the input of a convolution."""
    return _convolved(g, "convolution_gradient_input", kernel, params, params.input_dims, g)


def convolution_weight(x: Tensor, g: Tensor, params: ParamsConvolution, kernel: Tensor) -> Tensor:
    """That of the kernel of a convolution of x."""
    return _convolved(x, "convolution_gradient_weight", g, params, params.kernel_dims, kernel)


def _convolved(
    x: Tensor, method: str, other: Tensor, params: ParamsConvolution, shape: tuple[int, ...], like: Tensor
) -> Tensor:
    """A convolution, or a gradient of one, which is channels last if `like` is."""
    params = params._replace(channels_last=like._layout.is_channels_last)
    storage = getattr(x._storage, method)(x._layout, other._storage, other._layout, params)
    return x._new(storage, layout_of(shape, params.channels_last))


def fused_convolution(
    g: Tensor,
    takes: Callable[[int], bool],
    x: Tensor,
    kernel: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: str | None,
    params: ParamsConvolution,
) -> list[Tensor | None]:
    """Those of the operands of a convolution with an epilogue, of which the activation's argument is computed again."""
    g, shape = channels_second(g, params), (-1, *[1] * len(params.result_sizes))
    if activation is not None:
        argument = _fused(x, kernel, scale, bias, residual, params)
        ((takes_parts, derivative),) = [
            each for each in (DERIVATIVES[UnaryOp(activation)] or {}).values() if each is not None
        ]
        parts = {"x": argument, "result": argument._unary(UnaryOp(activation))}
        g = derivative(g, *[parts[name] for name in takes_parts])
    dims = [0, *range(2, g.rank)]
    wide = g.to_dtype(g.dtype.compute)
    scaled = g if scale is None else wide.mul(scale.to_dtype(wide.dtype).reshape(shape)).to_dtype(g.dtype)
    plain = _fused(x, kernel, None, None, None, params) if takes(2) else None
    return [
        convolution_input(scaled, kernel, params) if takes(0) else None,
        convolution_weight(x, scaled, params, kernel) if takes(1) else None,
        None
        if scale is None or plain is None
        else wide.mul(plain.to_dtype(wide.dtype)).sum(dims).to_dtype(scale.dtype),
        None if bias is None or not takes(3) else wide.sum(dims).to_dtype(bias.dtype),
        None if residual is None else g,
    ]


def _fused(
    x: Tensor,
    kernel: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    residual: Tensor | None,
    params: ParamsConvolution,
) -> Tensor:
    """A convolution with an epilogue but for its activation."""
    params = params._replace(channels_last=x._layout.is_channels_last)
    fuse: Any = x._storage.fused_convolution
    storage = fuse(x._layout, *arguments_of(kernel, scale, bias, residual), None, params)
    return x._new(storage, layout_of(params.out_dims, params.channels_last))
