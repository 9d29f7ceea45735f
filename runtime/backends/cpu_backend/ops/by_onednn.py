"""Matrix products and convolutions by oneDNN.

A 1-d convolution is a 2-d one of height 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from .....dtype import DType
from ....core.conv import Params, ParamsConvolution
from ....core.layout import Layout
from ....host.weights import FEW_ROWS
from ....program.builder import ProgramBuilder
from ....program.program import Results
from ....program.values import Buffer, Operand
from ..kernels import HostKernels
from ..onednn import Memory, Onednn, Problem, Window
from . import conv, native_conv, native_matmul
from . import matmul as matrices
from .native_conv import are_finite

# Of fewer products tallow's own kernels are the quicker ones, as they are called with less ado; they multiply matrices
# of f32 nearly as quickly.
_FEW_PRODUCTS: Final = 1 << 17
_FEW_OF_F32: Final = 1 << 22


def matmul(
    build: ProgramBuilder, onednn: Onednn, lhs: Operand, rhs: Operand, bmnk: tuple[int, int, int, int]
) -> Buffer | None:
    """As `matmul.matmul`; None where oneDNN has no quick way."""
    outer = lhs.shape[:-2]
    if rhs.shape[:-2] != outer or _loses_subnormals(lhs.dtype, bmnk[1]):
        return None
    sides = [_memory(operand.layout, len(outer)) for operand in (lhs, rhs)]
    if sides[0] is None or sides[1] is None:
        return None
    problem = Problem("matmul", lhs.dtype, sides[0], sides[1], Memory.dense((*outer, bmnk[1], bmnk[2])))
    otherwise = _otherwise(native_matmul.matmul, matrices.matmul, lhs, rhs, bmnk)
    return _solve(build, onednn, problem, [lhs, rhs], math.prod(bmnk), otherwise)


def linear(build: ProgramBuilder, onednn: Onednn, x: Operand, weight: Operand, bias: Operand | None) -> Buffer | None:
    """As `matmul.linear`; None where oneDNN has no quick way."""
    (m, k), n = x.shape, weight.shape[0]
    row = None if bias is None else Memory.dense((1, n))
    if _loses_subnormals(x.dtype, m) or (bias is not None and n > 1 and bias.strides != (1,)):
        return None
    rows, transposed = _memory(x.layout), _memory(weight.layout.transpose(0, 1))
    if rows is None or transposed is None:
        return None
    problem = Problem("matmul", x.dtype, rows, transposed, Memory.dense((m, n)), row)
    operands = [x, weight] if bias is None else [x, weight, bias]
    otherwise = _otherwise(native_matmul.linear, matrices.linear, x, weight, bias)
    return _solve(build, onednn, problem, operands, m * n * k, otherwise)


def _loses_subnormals(dtype: DType, rows: int) -> bool:
    """Whether a product has few rows of a dtype whose instructions take subnormal numbers for 0."""
    return dtype is DType.BF16 and rows <= FEW_ROWS


def convolve(
    build: ProgramBuilder, onednn: Onednn, x: Operand, kernel: Operand, params: Params | ParamsConvolution
) -> Buffer | None:
    """As `conv.convolve`; None where oneDNN has no quick way."""
    otherwise = _otherwise(native_conv.convolve, conv.convolve, x, kernel, params)
    return _convolve(build, onednn, "convolution", x, kernel, params.general, otherwise)


def convolve_transposed(
    build: ProgramBuilder, onednn: Onednn, x: Operand, kernel: Operand, params: Params | ParamsConvolution
) -> Buffer | None:
    """As `conv.convolve_transposed`; None where oneDNN has no quick way."""
    otherwise = _otherwise(native_conv.convolve_transposed, conv.convolve_transposed, x, kernel, params)
    return _convolve(build, onednn, "deconvolution", x, kernel, params.general, otherwise)


def _convolve(
    build: ProgramBuilder,
    onednn: Onednn,
    name: str,
    x: Operand,
    kernel: Operand,
    params: ParamsConvolution,
    otherwise: partial[Results],
) -> Buffer | None:
    params = params.as_images
    rank = len(params.input_dims)
    source, weights = x.as_rank(rank), kernel.as_rank(rank)
    groups, (inner, outer), (kernel_outer, *rest) = params.groups, params.channels, weights.strides
    forms = (outer, inner), (kernel_outer, rest[0])
    (rows, columns), steps = forms if name == "convolution" else (forms[0][::-1], forms[1][::-1])
    grouped = weights.relaid((groups, rows, columns, *params.kernel), (outer * kernel_outer, *steps, *rest[1:]))
    layout = grouped.layout if groups > 1 else grouped.layout.narrow(0, 0, 1).squeeze(0)
    window = Window(params.stride, params.dilation, params.padding, params.padding_after)
    images, transposed = _memory(source.layout), _memory(layout)
    if images is None or transposed is None:
        return None
    result = Memory.dense(params.out_dims if name == "convolution" else params.input_dims)
    problem = Problem(name, x.dtype, images, transposed, result, window=window)
    products = math.prod(params.out_dims) * inner * params.taps
    # The zeros of the padding take part, which oneDNN leaves out.
    finite = kernel if params.is_padded and name == "convolution" else None
    return _solve(build, onednn, problem, [x, kernel], products, otherwise, finite)


def _solve(
    build: ProgramBuilder,
    onednn: Onednn,
    problem: Problem,
    operands: Sequence[Operand],
    products: int,
    otherwise: partial[Results],
    finite: Operand | None = None,
) -> Buffer | None:
    """Have oneDNN solve a problem; it is solved otherwise in a forked process, and where `finite` is not."""
    dtype = problem.dtype
    few = _FEW_OF_F32 if dtype is DType.F32 and problem.window is None else _FEW_PRODUCTS
    if products < few or Onednn.is_forked:
        return None
    solve = onednn.primitive(problem)
    if solve is None:
        return None
    if finite is not None:
        build.call(are_finite, finite, fallback=otherwise)
    result = build.empty(dtype, math.prod(problem.result.dims))
    build.call(solve, *[operand.address for operand in operands], result.address, fallback=otherwise)
    return result


def _otherwise(by_kernels: Callable[..., Any], by_numpy: Callable[..., Any], *arguments: Any) -> partial[Results]:
    """What does the same without oneDNN."""
    return partial(without_onednn, by_kernels=by_kernels, by_numpy=by_numpy, arguments=arguments)


def without_onednn(
    build: ProgramBuilder, by_kernels: Callable[..., Any], by_numpy: Callable[..., Any], arguments: Sequence[Any]
) -> Results:
    """The op by kernels, or by NumPy."""
    kernels = HostKernels.open()
    result = None if kernels is None else build.attempt(by_kernels, kernels, *arguments)
    return build.host(by_numpy, *arguments) if result is None else result


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
