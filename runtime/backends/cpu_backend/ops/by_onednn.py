"""Matrix products and convolutions by oneDNN.

A 1-d convolution is a 2-d one of height 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from .....dtype import DType
from ....core.conv import ParamsConv1D, ParamsConv2D, ParamsConvTranspose1D, ParamsConvTranspose2D
from ....core.layout import Layout
from ....helpers.host_memory import require_room, tells_lack_of_memory
from ....host.weights import FEW_ROWS
from ...array_backend.ops.operand import Operand
from .. import buffer_pool
from ..onednn import Memory, Onednn, Problem, Window
from . import conv, native_conv, native_matmul
from . import matmul as matrices
from .native import by_plan
from .native_conv import as_image, is_finite

if TYPE_CHECKING:
    from ..storage import CpuStorage

# Of fewer products tallow's own kernels are the quicker ones, as they are called with less ado; they multiply matrices
# of f32 nearly as quickly.
_FEW_PRODUCTS: Final = 1 << 17
_FEW_OF_F32: Final = 1 << 22


@by_plan
def matmul(
    onednn: Onednn, lhs: Operand, rhs: Operand, bmnk: tuple[int, int, int, int]
) -> Callable[..., CpuStorage] | None:
    """As `matmul.matmul`; None where oneDNN has no quick way."""
    outer = lhs.layout.shape[:-2]
    if rhs.layout.shape[:-2] != outer or _loses_subnormals(lhs.dtype, bmnk[1]):
        return None
    sides = [_memory(operand.layout, len(outer)) for operand in (lhs, rhs)]
    if sides[0] is None or sides[1] is None:
        return None
    problem = Problem("matmul", lhs.dtype, sides[0], sides[1], Memory.dense((*outer, bmnk[1], bmnk[2])))
    otherwise = _otherwise(native_matmul.matmul, matrices.matmul, [lhs, rhs], bmnk)
    return _plan(onednn, problem, [lhs, rhs], math.prod(bmnk), otherwise)


@by_plan
def linear(onednn: Onednn, x: Operand, weight: Operand, bias: Operand | None) -> Callable[..., CpuStorage] | None:
    """As `matmul.linear`; None where oneDNN has no quick way."""
    (m, k), n = x.layout.shape, weight.layout.shape[0]
    row = None if bias is None else Memory.dense((1, n))
    if _loses_subnormals(x.dtype, m) or (bias is not None and n > 1 and bias.layout.strides != (1,)):
        return None
    rows, transposed = _memory(x.layout), _memory(weight.layout.transpose(0, 1))
    if rows is None or transposed is None:
        return None
    problem = Problem("matmul", x.dtype, rows, transposed, Memory.dense((m, n)), row)
    operands = [x, weight] if bias is None else [x, weight, bias]
    otherwise = _otherwise(native_matmul.linear, matrices.linear, operands, *[None] * (bias is None))
    return _plan(onednn, problem, operands, m * n * k, otherwise)


def _loses_subnormals(dtype: DType, rows: int) -> bool:
    """Whether a product has few rows of a dtype whose instructions take subnormal numbers for 0."""
    return dtype is DType.BF16 and rows <= FEW_ROWS


@by_plan
def conv1d(onednn: Onednn, x: Operand, kernel: Operand, params: ParamsConv1D) -> Callable[..., CpuStorage] | None:
    """As `conv.conv1d`; None where oneDNN has no quick way."""
    otherwise = _otherwise(native_conv.conv1d, conv.conv1d, [x, kernel], params)
    return _plan_conv(onednn, "convolution", as_image(x), as_image(kernel), params, (0, params.padding), otherwise)


@by_plan
def conv2d(onednn: Onednn, x: Operand, kernel: Operand, params: ParamsConv2D) -> Callable[..., CpuStorage] | None:
    """As `conv.conv2d`; None where oneDNN has no quick way."""
    otherwise = _otherwise(native_conv.conv2d, conv.conv2d, [x, kernel], params)
    return _plan_conv(onednn, "convolution", x, kernel, params, (params.padding, params.padding), otherwise)


@by_plan
def conv_transpose1d(
    onednn: Onednn, x: Operand, kernel: Operand, params: ParamsConvTranspose1D
) -> Callable[..., CpuStorage] | None:
    """As `conv.conv_transpose1d`; None where oneDNN has no quick way."""
    otherwise = _otherwise(native_conv.conv_transpose1d, conv.conv_transpose1d, [x, kernel], params)
    return _plan_conv(onednn, "deconvolution", as_image(x), as_image(kernel), params, (0, params.padding), otherwise)


@by_plan
def conv_transpose2d(
    onednn: Onednn, x: Operand, kernel: Operand, params: ParamsConvTranspose2D
) -> Callable[..., CpuStorage] | None:
    """As `conv.conv_transpose2d`; None where oneDNN has no quick way."""
    otherwise = _otherwise(native_conv.conv_transpose2d, conv.conv_transpose2d, [x, kernel], params)
    return _plan_conv(onednn, "deconvolution", x, kernel, params, (params.padding, params.padding), otherwise)


def _plan_conv(
    onednn: Onednn,
    name: str,
    x: Operand,
    kernel: Operand,
    params: ParamsConv1D | ParamsConv2D | ParamsConvTranspose1D | ParamsConvTranspose2D,
    padding: tuple[int, int],
    otherwise: Callable[..., Any],
) -> Callable[..., CpuStorage] | None:
    weights = kernel.layout if name == "convolution" else kernel.layout.transpose(0, 1)
    sizes, taps = x.layout.shape[2:], weights.shape[2:]
    batch, channels, *rest = params.out_dims
    out = (1, *rest)[-2:]
    # How far windows go beyond the end: in a transposed convolution those of the source's elements over the result.
    inner, outer = (out, sizes) if name == "convolution" else (sizes, out)
    behind = [
        (count - 1) * params.stride + params.dilation * (tap - 1) + 1 - size - before
        for count, tap, size, before in zip(inner, taps, outer, padding, strict=True)
    ]
    strides, dilations = (params.stride, params.stride), (params.dilation, params.dilation)
    window = Window(strides, dilations, padding, (behind[0], behind[1]))
    images, transposed, result = _memory(x.layout), _memory(weights), Memory.dense((batch, channels, *out))
    if images is None or transposed is None:
        return None
    problem = Problem(name, x.dtype, images, transposed, result, window=window)
    products = math.prod(result.dims) * math.prod(weights.shape[1:])
    # The zeros of the padding take part, which oneDNN leaves out.
    return _plan(onednn, problem, [x, kernel], products, otherwise, checks=any(padding) and name == "convolution")


def _plan(
    onednn: Onednn,
    problem: Problem,
    operands: Sequence[Operand],
    products: int,
    otherwise: Callable[..., Any],
    *,
    checks: bool = False,
) -> Callable[..., CpuStorage] | None:
    """What solves a problem; what `checks` say is not for oneDNN, and a forked process, have it done `otherwise`."""
    dims, dtype = problem.result.dims, problem.dtype
    require_room(dims, dtype)
    few = _FEW_OF_F32 if dtype is DType.F32 and problem.window is None else _FEW_PRODUCTS
    if products < few or Onednn.is_forked:
        return None
    solve = onednn.primitive(problem)
    if solve is None:
        return None
    count, numpy_type = math.prod(dims), dtype.numpy
    offsets = [operand.layout.start_offset * dtype.itemsize for operand in operands]
    weights = operands[1].layout

    @tells_lack_of_memory
    def run(*storages: CpuStorage) -> Any:
        if Onednn.is_forked or (checks and not is_finite(storages[1].view(weights), dtype)):
            return otherwise(*storages)
        first = storages[0]
        made = type(first)(first.device, dtype, buffer_pool.empty(count, numpy_type))
        solve(*(each.address + offset for each, offset in zip(storages, offsets, strict=True)), made.address)
        return made

    return run


def _otherwise(
    by_kernels: Callable[..., Any], by_numpy: Callable[..., Any], operands: Sequence[Operand], *rest: Any
) -> Callable[..., Any]:
    """The same without oneDNN, of storages that are like those of the operands."""
    layouts = [operand.layout for operand in operands]

    def call(*storages: CpuStorage) -> Any:
        given = [Operand(storage, layout) for storage, layout in zip(storages, layouts, strict=True)]
        kernels = storages[0].device.kernels
        made = None if kernels is None else by_kernels(kernels, *given, *rest)
        return by_numpy(*given, *rest) if made is None else made

    return call


def _memory(layout: Layout, outer: int = 0) -> Memory | None:
    """The layout as oneDNN has them; None of one with repetitions, but for those along so many outer dims."""
    dims = list(layout.shape)
    for place, stride in enumerate(layout.strides):
        if stride == 0 and dims[place] > 1:
            if place >= outer:
                return None
            dims[place] = 1
    # Of one element, any stride is right.
    dense = Memory.dense(dims).strides
    strides = (ours if size > 1 else usual for size, ours, usual in zip(dims, layout.strides, dense, strict=True))
    return Memory(tuple(dims), tuple(strides))
