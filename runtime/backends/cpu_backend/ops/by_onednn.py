"""Matrix products and convolutions by oneDNN.

A 1-d convolution is a 2-d one of height 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from .....dtype import DType
from .....op import BinaryOp, UnaryOp
from ....core.conv import Params, ParamsConvolution
from ....core.layout import Layout, layout_of
from ....host.weights import FEW_ROWS
from ....program.builder import ProgramBuilder
from ....program.program import Results
from ....program.values import Buffer, Operand
from ..kernels import HostKernels
from ..onednn import Memory, Onednn, Post, Problem, Window
from . import conv, native_conv, native_matmul
from . import matmul as matrices
from .epilogue import converted, in_memory_order
from .native import contiguous, copied
from .native_conv import are_finite
from .pointwise import Product

# Of fewer products tallow's own kernels are the quicker ones, as they are called with less ado; they multiply matrices
# of f32 nearly as quickly.
_FEW_PRODUCTS: Final = 1 << 17
_FEW_OF_F32: Final = 1 << 22
# The kernels multiply vectors along rows, which are short in results of fewer elements.
_FEW_POSITIONS: Final = 1 << 7


def matmul(
    build: ProgramBuilder, onednn: Onednn, lhs: Operand, rhs: Operand, bmnk: tuple[int, int, int, int]
) -> Buffer | None:
    """As `matmul.matmul`; None where oneDNN has no fast implementation."""
    return _multiply(build, onednn, lhs, rhs, bmnk, _otherwise(native_matmul.matmul, matrices.matmul, lhs, rhs, bmnk))


def _multiply(
    build: ProgramBuilder,
    onednn: Onednn,
    lhs: Operand,
    rhs: Operand,
    bmnk: tuple[int, int, int, int],
    otherwise: partial[Results],
    epilogue: _Epilogue | None = None,
) -> Buffer | None:
    outer = lhs.shape[:-2]
    if rhs.shape[:-2] != outer or _loses_subnormals(lhs.dtype, bmnk[1]):
        return None
    sides = [_memory(operand.layout, len(outer)) for operand in (lhs, rhs)]
    if sides[0] is None or sides[1] is None:
        return None
    problem = Problem("matmul", lhs.dtype, sides[0], sides[1], Memory.dense((*outer, bmnk[1], bmnk[2])))
    operands = [lhs, rhs]
    if epilogue is not None:
        # Channels are columns of one matrix, or rows of several.
        problem = epilogue.after(problem, -2 if outer else -1)
        operands += epilogue.operands
    return _solve(build, onednn, problem, operands, math.prod(bmnk), _few_of(lhs.dtype), otherwise)


def linear(build: ProgramBuilder, onednn: Onednn, x: Operand, weight: Operand, bias: Operand | None) -> Buffer | None:
    """As `matmul.linear`; None where oneDNN has no fast implementation."""
    (m, k), n = x.shape, weight.shape[0]
    row = None if bias is None else Memory.dense((1, n))
    if _loses_subnormals(x.dtype, m):
        return None
    rows, transposed = _memory(x.layout), _memory(weight.layout.transpose(0, 1))
    if rows is None or transposed is None:
        return None
    problem = Problem("matmul", x.dtype, rows, transposed, Memory.dense((m, n)), row)
    operands = [x, weight] if bias is None else [x, weight, contiguous(build, bias)]
    otherwise = _otherwise(native_matmul.linear, matrices.linear, x, weight, bias)
    return _solve(build, onednn, problem, operands, m * n * k, _few_of(x.dtype), otherwise)


def _few_of(dtype: DType) -> int:
    return _FEW_OF_F32 if dtype is DType.F32 else _FEW_PRODUCTS


def _loses_subnormals(dtype: DType, rows: int) -> bool:
    """Whether a product has few rows of a dtype whose instructions take subnormal numbers for 0."""
    return dtype is DType.BF16 and rows <= FEW_ROWS


def convolve(
    build: ProgramBuilder, onednn: Onednn, x: Operand, kernel: Operand, params: Params | ParamsConvolution
) -> Buffer | None:
    """As `conv.convolve`; None where oneDNN has no fast implementation."""
    otherwise = _otherwise(native_conv.convolve, conv.convolve, x, kernel, params)
    return _forward(build, onednn, x, kernel, params.general, otherwise)


class _Epilogue(NamedTuple):
    """The ops that oneDNN applies to sums, and the dtype in which it stores them."""

    ops: tuple[BinaryOp, ...]
    operands: tuple[Operand, ...]
    """Vectors along the channels, or contiguous in the order of the result's memory."""
    result: DType

    @classmethod
    def of(
        cls,
        build: ProgramBuilder,
        scale: Operand | None,
        bias: Operand | None,
        residual: Operand | None,
        result: DType,
        params: ParamsConvolution,
    ) -> _Epilogue:
        """Return that of a fused convolution, with vectors in f32."""
        ops, operands = [], []
        for op, vector in ((BinaryOp.MUL, scale), (BinaryOp.ADD, bias)):
            if vector is not None:
                ops.append(op)
                operands.append(contiguous(build, converted(build, vector, DType.F32)))
        if residual is not None:
            ops.append(BinaryOp.ADD)
            operands.append(contiguous(build, in_memory_order(residual, params)))
        return cls(tuple(ops), tuple(operands), result)

    def after(self, problem: Problem, channel_dim: int) -> Problem:
        """The problem with these ops on its result."""
        vector = [1] * len(problem.result.dims)
        vector[channel_dim] = problem.result.dims[channel_dim]
        posts = tuple(
            Post(op, Memory.dense(vector) if len(x.shape) == 1 else problem.result, x.dtype)
            for op, x in zip(self.ops, self.operands, strict=True)
        )
        return problem._replace(posts=posts, result_dtype=self.result)


def fused(
    build: ProgramBuilder,
    onednn: Onednn,
    x: Operand,
    kernel: Operand,
    scale: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    activation: str | None,
    params: ParamsConvolution,
) -> Buffer | None:
    """As `conv.fused`, with the activation by kernels; None where oneDNN refuses or is slow.

    In f32 each op of the epilogue is a kernel, which has the bits of the op alone.
    """
    if HostKernels.open() is None or x.dtype.compute is not DType.F32:
        return None
    parts = scale, bias, residual, activation, params
    otherwise = _otherwise(native_conv.fused, conv.fused, x, kernel, *parts)
    if x.dtype is not DType.F32:
        result = build.attempt(_rounded_once, onednn, x, kernel, parts, otherwise)
        if isinstance(result, Buffer):
            return result
    wide, weights = (converted(build, each, DType.F32) for each in (x, kernel))
    product = _forward(build, onednn, wide, weights, params, otherwise)
    return None if product is None else native_conv.finished(build, x.dtype, product, *parts)


def _rounded_once(
    build: ProgramBuilder,
    onednn: Onednn,
    x: Operand,
    kernel: Operand,
    parts: tuple[Operand | None, Operand | None, Operand | None, str | None, ParamsConvolution],
    otherwise: partial[Results],
) -> Buffer | None:
    """A fused convolution of 16 bits, of which oneDNN computes all but the activation; `parts` are those of `fused`."""
    scale, bias, residual, activation, params = parts
    # An activation is of sums that were not rounded; relu rounds to the same bits before or after.
    stored = x.dtype if activation in (None, UnaryOp.RELU.value) else DType.F32
    epilogue = _Epilogue.of(build, scale, bias, residual, stored, params)
    result = _forward(build, onednn, x, kernel, params, otherwise, epilogue)
    if result is None:
        return None
    return native_conv.finished(build, x.dtype, result, None, None, None, activation, params)


def _forward(
    build: ProgramBuilder,
    onednn: Onednn,
    x: Operand,
    kernel: Operand,
    params: ParamsConvolution,
    otherwise: partial[Results],
    epilogue: _Epilogue | None = None,
) -> Buffer | None:
    product = Product.of(build, x, kernel, params)
    if product is not None:
        return None if product.has_few_rows else _multiply(build, onednn, *product[:3], otherwise, epilogue)
    # Kernels would compute an epilogue in f32, op by op.
    if epilogue is None and _is_by_planes(x, params):
        return None
    images = params.as_images
    memories = _images(x, images), _kernels(kernel.layout, images), _result(images, images.out_dims)
    result = _convolve(build, onednn, "convolution", x, kernel, memories, images, otherwise, _FEW_PRODUCTS, epilogue)
    if result is not None and params.is_padded:
        inside = _first_inside(params, params.result_sizes, params.stride, params.kernel, params.dilation)
        output = Operand(result, layout_of(params.out_dims, params.channels_last))
        # An epilogue leaves what is not finite so.
        _check_padding(build, output, 0, inside, kernel, otherwise)
    return result


def _is_by_planes(x: Operand, params: ParamsConvolution) -> bool:
    """Whether kernels convolve each channel alone, as quickly as oneDNN, which converts images to its own layout."""
    has_planes = params.channels == (1, 1) and x.strides[-1] == 1 and not params.channels_last
    return has_planes and math.prod(params.result_sizes) >= _FEW_POSITIONS and HostKernels.open() is not None


def convolve_transposed(
    build: ProgramBuilder, onednn: Onednn, x: Operand, kernel: Operand, params: Params | ParamsConvolution
) -> Buffer | None:
    """As `conv.convolve_transposed`; None where oneDNN has no fast implementation."""
    otherwise = _otherwise(native_conv.convolve_transposed, conv.convolve_transposed, x, kernel, params)
    images, x = params.general.as_images, _unrepeated(build, x)
    transposed = _kernels(kernel.layout, images, is_transposed=True)
    memories = _images(x, images), transposed, _result(images, images.input_dims)
    few = 0 if native_conv.is_product(images) else _FEW_PRODUCTS
    return _convolve(build, onednn, "deconvolution", x, kernel, memories, images, otherwise, few)


def gradient_weight(
    build: ProgramBuilder, onednn: Onednn, x: Operand, gradient: Operand, params: ParamsConvolution
) -> Buffer | None:
    """As `conv.gradient_weight`; None where oneDNN has no fast implementation."""
    otherwise = _otherwise(native_conv.gradient_weight, conv.gradient_weight, x, gradient, params)
    images, gradient = params.as_images, _unrepeated(build, gradient)
    kernels = _kernels(layout_of(params.kernel_dims, params.channels_last), images)
    memories = _images(x, images), _images(gradient, images), kernels
    few = 0 if native_conv.is_product(images) else _FEW_PRODUCTS
    name = "convolution_gradient_weight"
    result = _convolve(build, onednn, name, x, gradient, memories, images, otherwise, few)
    if result is not None and params.is_padded:
        inside = _first_inside(params, params.kernel, params.dilation, params.result_sizes, params.stride)
        output = Operand(result, layout_of(params.kernel_dims, params.channels_last))
        _check_padding(build, output, 1, inside, gradient, otherwise)
    return result


def _unrepeated(build: ProgramBuilder, gradient: Operand) -> Operand:
    """The gradient, or a copy if elements are repeated, as those of a sum: oneDNN has no strides of 0."""
    return copied(build, gradient) if gradient.layout.repeated_dims else gradient


def _images(x: Operand, params: ParamsConvolution) -> Memory | None:
    return _memory(x.as_rank(len(params.input_dims)).layout)


def _result(params: ParamsConvolution, dims: tuple[int, ...]) -> Memory:
    return Memory(dims, layout_of(dims, params.channels_last).strides)


def _kernels(layout: Layout, params: ParamsConvolution, *, is_transposed: bool = False) -> Memory | None:
    """The kernel in oneDNN's layout of groups: with a dim for these in front; transposed, channels are swapped."""
    groups, (inner, outer) = params.groups, params.channels
    steps = layout.strides[2:]
    channels, strides = (outer, inner), (layout.strides[0], layout.strides[1])
    if is_transposed:
        channels, strides = channels[::-1], strides[::-1]
    taps = (0,) * (len(params.kernel) - len(steps)) + steps
    of_group = Layout((*channels, *params.kernel), (*strides, *taps), layout.start_offset)
    if groups == 1:
        return _memory(of_group)
    return _memory(Layout((groups, *of_group.shape), (outer * layout.strides[0], *of_group.strides), 0))


def _convolve(
    build: ProgramBuilder,
    onednn: Onednn,
    name: str,
    x: Operand,
    other: Operand,
    memories: tuple[Memory | None, Memory | None, Memory | None],
    params: ParamsConvolution,
    otherwise: partial[Results],
    few: int,
    epilogue: _Epilogue | None = None,
) -> Buffer | None:
    source, weights, result = memories
    if source is None or weights is None or result is None:
        return None
    window = Window(params.stride, params.dilation, params.padding, params.padding_after)
    problem = Problem(name, x.dtype, source, weights, result, window=window)
    products = math.prod(params.out_dims) * params.channels[0] * params.taps
    operands = [x, other]
    if epilogue is not None:
        problem = epilogue.after(problem, 1)
        operands += epilogue.operands
    return _solve(build, onednn, problem, operands, products, few, otherwise)


def _first_inside(
    params: ParamsConvolution,
    counts: Sequence[int],
    steps: Sequence[int],
    lengths: Sequence[int],
    spacings: Sequence[int],
) -> list[int] | None:
    """Along each dim, the first window of `counts` that meets no padding; None if some dim has none.

    The stride of windows is `steps`; they have `lengths` elements of the input, with strides `spacings`.
    """
    first = [-(-padding // step) for padding, step in zip(params.padding, steps, strict=True)]
    ends = [
        index * step - padding + (length - 1) * spacing
        for index, step, padding, length, spacing in zip(first, steps, params.padding, lengths, spacings, strict=True)
    ]
    is_inside = all(index < count for index, count in zip(first, counts, strict=True))
    return first if is_inside and all(end < size for end, size in zip(ends, params.sizes, strict=True)) else None


def _check_padding(
    build: ProgramBuilder,
    result: Operand,
    dim: int,
    inside: Sequence[int] | None,
    multiplied: Operand,
    otherwise: partial[Results],
) -> None:
    """Have the result computed otherwise if padding, whose zeros oneDNN leaves out, meets infinities or NaN.

    Each of these in `multiplied` spreads to an element of the result at the index `inside`, with index 0 along `dim`.
    """
    witness = multiplied
    if inside is not None:
        layout = result.layout.narrow(dim, 0, 1)
        for axis, index in enumerate(inside, 2):
            layout = layout.narrow(axis, index, 1)
        witness = Operand(result.storage, layout)
    build.call(_is_either_finite, witness, multiplied, fallback=otherwise)


def _is_either_finite(witness: Operand, multiplied: Operand) -> bool:
    return are_finite(witness) or (witness is not multiplied and are_finite(multiplied))


def _solve(
    build: ProgramBuilder,
    onednn: Onednn,
    problem: Problem,
    operands: Sequence[Operand],
    products: int,
    few: int,
    otherwise: partial[Results],
) -> Buffer | None:
    """Have oneDNN solve a problem of at least `few` products; it is solved otherwise in a forked process."""
    if products < few or Onednn.is_forked:
        return None
    solve = onednn.primitive(problem)
    if solve is None:
        return None
    result = build.empty(problem.result_dtype or problem.dtype, math.prod(problem.result.dims))
    build.call(solve, *[operand.address for operand in operands], result.address, fallback=otherwise)
    return result


def _otherwise(by_kernels: Callable[..., Any], by_numpy: Callable[..., Any], *arguments: Any) -> partial[Results]:
    """Compute the same result without oneDNN."""
    return partial(without_onednn, by_kernels=by_kernels, by_numpy=by_numpy, arguments=arguments)


def without_onednn(
    build: ProgramBuilder, by_kernels: Callable[..., Any], by_numpy: Callable[..., Any], arguments: Sequence[Any]
) -> Results:
    """The op by kernels, or by NumPy."""
    kernels = HostKernels.open()
    result = None if kernels is None else build.attempt(by_kernels, kernels, *arguments)
    return build.host(by_numpy, *arguments) if result is None else result


def _memory(layout: Layout, outer: int = 0) -> Memory | None:
    """The layout in oneDNN's terms; None if it repeats elements, except along the `outer` outermost dims."""
    dims = list(layout.shape)
    for dim, stride in enumerate(layout.strides):
        if stride == 0 and dims[dim] > 1:
            if dim >= outer:
                return None
            dims[dim] = 1
    # Of one element, any stride is right.
    dense = Memory.dense(dims).strides
    strides = (ours if size > 1 else usual for size, ours, usual in zip(dims, layout.strides, dense, strict=True))
    return Memory(tuple(dims), tuple(strides))
