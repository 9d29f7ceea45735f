"""Checks of shapes and arguments of neural network ops: layers, quantized weights and optimiser steps.

Like those of `check`, each function raises one of the errors of `tallow.error` or returns None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...dtype import DType
from ...op import UnaryOp
from ..base.error import DTypeMismatch, InvalidArgument, ShapeMismatch
from .check import has_compute_dtype, has_rank
from .conv import Params, ParamsConvolution
from .layout import Layout
from .optim import parts_of
from .pool import ParamsPool
from .result_shapes import group_statistics
from .shape import Shape

if TYPE_CHECKING:
    from ...dtype import Array
    from ...ggml_dtype import GgmlDType
    from .protocols import Blocks, HasInner, Typed


def attention_shapes(
    op: str,
    layout: Layout,
    key_layout: Layout,
    value_layout: Layout,
    mask_layout: Layout | None,
    lengths_layout: Layout | None,
) -> None:
    """Check that queries, keys and values fit, that key heads serve equally many heads, and mask and lengths."""
    shapes = layout.shape, key_layout.shape, value_layout.shape
    if len(shapes[0]) != 4 or len(shapes[1]) != 4 or shapes[1] != shapes[2]:
        raise ShapeMismatch(op, shapes, "queries, keys and values are (b, heads, n, size), keys and values alike")
    (batches, heads, queries, size), (key_batches, key_heads, keys, key_size) = shapes[:2]
    if batches != key_batches or size != key_size:
        raise ShapeMismatch(
            op, shapes, "queries, keys and values need one b and one size of a head; expand or reshape one"
        )
    if heads % key_heads if key_heads else heads:
        raise ShapeMismatch(op, shapes, f"{key_heads} key heads do not divide {heads} heads; repeat or narrow the keys")
    if mask_layout is not None and mask_layout.shape != (batches, heads, queries, keys):
        reason = f"the mask must be {(batches, heads, queries, keys)}; broadcast it"
        raise ShapeMismatch(op, (shapes[0], mask_layout.shape), reason)
    if lengths_layout is not None and lengths_layout.shape not in ((), (1,), (batches,)):
        reason = f"lengths have one element, or {batches}, one for each batch; reshape them"
        raise ShapeMismatch(op, (shapes[0], lengths_layout.shape), reason)


def logsumexp_of(op: str, layout: Layout, dtype: DType, logsumexp_layout: Layout, actual: DType) -> None:
    """Check that there is a number for each query, in the compute dtype."""
    has_compute_dtype(op, "logsumexp", dtype, actual)
    if logsumexp_layout.shape != layout.shape[:3]:
        reason = f"logsumexp must be {layout.shape[:3]}, a number for each query; give that of the result"
        raise ShapeMismatch(op, (layout.shape, logsumexp_layout.shape), reason)


def whole_blocks(op: str, elem_count: int, dtype: GgmlDType) -> None:
    """Check that `elem_count` weights fill blocks completely."""
    size = dtype.block_size
    if elem_count < 0 or elem_count % size:
        raise InvalidArgument(
            op, f"elem_count is a multiple of the {size} weights of a {dtype} block, not {elem_count}"
        )


def block_bytes(op: str, data: Array, dtype: GgmlDType) -> None:
    """Check that an array holds the bytes of complete blocks."""
    size = dtype.type_size
    if data.dtype != np.uint8 or not data.flags.c_contiguous or data.size % size:
        actual = f"{data.dtype} of shape {data.shape}"
        raise InvalidArgument(op, f"data must be contiguous uint8, {size} bytes for each {dtype} block, not {actual}")


def as_many_weights(op: str, blocks: Blocks, elem_count: int) -> None:
    """Check that there are `elem_count` weights."""
    if blocks.length != elem_count:
        raise InvalidArgument(op, f"elem_count is that of the blocks, {blocks.length}, not {elem_count}")


def block_rows(op: str, blocks: Blocks, rows: int, hidden: int) -> None:
    """Check that the weights are a matrix of `rows` rows, each of complete blocks."""
    size = blocks.dtype.block_size
    if min(rows, hidden) < 0 or rows * hidden != blocks.length:
        raise InvalidArgument(op, f"the blocks have {blocks.length} weights, which are no {rows} rows of {hidden}")
    if hidden % size:
        raise InvalidArgument(op, f"hidden is a multiple of the {size} weights of a {blocks.dtype} block, not {hidden}")


def block_product(op: str, layout: Layout, hidden: int) -> None:
    """Check that a layout holds a matrix whose rows are as long as those of the weights."""
    if layout.rank != 2 or layout.shape[1] != hidden:
        raise ShapeMismatch(op, (layout.shape,), f"it is a matrix with rows of {hidden}, as the weights have")


def known_activations(op: str, activations: object) -> None:
    """Check the name of a rounding of the activations."""
    if activations not in (None, "q8_1"):
        raise InvalidArgument(op, f"activations is 'q8_1' or None, not {activations!r}")


def block_activations(op: str, blocks: Blocks, activations: str | None) -> None:
    """Check that a product with these weights may round its activations like this."""
    known_activations(op, activations)
    if activations is not None and blocks.dtype.block_size == 1:
        raise InvalidArgument(op, f"activations is None for weights in {blocks.dtype}, which have no quants")


def linear_shapes(op: str, layout: Layout, weight_layout: Layout, bias_layout: Layout | None) -> None:
    """Check that the layouts hold matrices (m, k) and (n, k), and a vector of n where there is a bias."""
    shapes = tuple(each.shape for each in (layout, weight_layout, bias_layout) if each is not None)
    inner, outer = layout.shape[-1:], weight_layout.shape[:1]
    fits = layout.rank == weight_layout.rank == 2 and weight_layout.shape[-1:] == inner
    if not fits or shapes[2:] not in ((), (outer,)):
        raise ShapeMismatch(op, shapes, "they are (m, k), a weight (n, k) and a bias (n)")


def norm_shapes(
    op: str, layout: Layout, weight_layout: Layout | None, bias_layout: Layout | None, residual_layout: Layout | None
) -> None:
    """Check that there is a last dim, that weight and bias are vectors of its size, and the residual has the shape."""
    shape = layout.shape
    if not shape:
        raise ShapeMismatch(op, (shape,), "there is no dim to go over; unsqueeze it first")
    for name, vector in (("weight", weight_layout), ("bias", bias_layout)):
        if vector is not None and vector.shape != shape[-1:]:
            reason = f"the {name} is a vector of the size of the last dim, {shape[-1]}"
            raise ShapeMismatch(op, (shape, vector.shape), reason)
    if residual_layout is not None and residual_layout.shape != shape:
        raise ShapeMismatch(op, (shape, residual_layout.shape), "the residual has the shape of what it is added to")


def cell_shapes(
    op: str,
    gates: int,
    layout: Layout,
    products_layout: Layout,
    bias_layout: Layout | None,
    state_layout: Layout,
) -> None:
    """Check the shapes of the operands of a cell with a number of gates."""
    rows, width = _gated(op, gates, layout, 2)
    _has_shapes(
        op, layout, products=(products_layout, layout.shape), bias=(bias_layout, (width,)),
        state=(state_layout, (rows, width // gates)),
    )  # fmt: skip


def cell_gradient_shape(op: str, states: int, state_layout: Layout, gradient_layout: Layout) -> None:
    """Check that the gradient is that of a number of states."""
    _has_shapes(op, state_layout, gradient=(gradient_layout, (states, *state_layout.shape)))


def recurrent_shapes(
    op: str,
    gates: int,
    states: int,
    layout: Layout,
    weight_layout: Layout,
    bias_layout: Layout | None,
    state_layout: Layout,
    lengths_layout: Layout | None,
) -> None:
    """Check the shapes of the operands of a sequence of cells with a number of gates and states."""
    _, rows, width = _gated(op, gates, layout, 3)
    units = width // gates
    _has_shapes(
        op, layout, weight=(weight_layout, (width, units)), bias=(bias_layout, (width,)),
        state=(state_layout, (states, rows, units)), lengths=(lengths_layout, (rows,)),
    )  # fmt: skip


def recurrent_gradient_shapes(
    op: str,
    layout: Layout,
    state_layout: Layout,
    states_layout: Layout,
    products_layout: Layout,
    gradient_layout: Layout,
) -> None:
    """Check the shapes of the states after each step, of their gradients, and of the products."""
    states, rows, units = state_layout.shape
    all_states = states, layout.shape[0], rows, units
    _has_shapes(
        op, layout, states=(states_layout, all_states), products=(products_layout, layout.shape),
        gradient=(gradient_layout, all_states),
    )  # fmt: skip


def _gated(op: str, gates: int, layout: Layout, rank: int) -> Shape:
    has_rank(op, layout, rank)
    if layout.shape[-1] % gates:
        raise ShapeMismatch(op, (layout.shape,), f"the last dim concatenates {gates} gates of one size")
    return layout.shape


def _has_shapes(op: str, layout: Layout, **operands: tuple[Layout | None, tuple[int, ...]]) -> None:
    """Check the shapes of operands, which follow from that of the first one; optional operands may be None."""
    for name, (operand, expected) in operands.items():
        if operand is not None and operand.shape != expected:
            raise ShapeMismatch(op, (layout.shape, operand.shape), f"the shape of the {name} must be {expected}")


def channel_groups(op: str, layout: Layout, groups: int, dim: int) -> None:
    """Check that elements are (b, c, s) or (b, s, c), with the channels along `dim`, which make groups of one size."""
    has_rank(op, layout, 3)
    if dim not in (1, 2):
        raise InvalidArgument(op, f"the channels are along dim 1 or 2, not {dim}")
    if groups < 1 or layout.shape[dim] % groups:
        raise InvalidArgument(op, f"{layout.shape[dim]} channels are not {groups} groups of one size; choose a divisor")


def channel_vectors(op: str, layout: Layout, dim: int, vectors: Sequence[Layout | None]) -> None:
    """Check that the vectors that are not None have a number for each channel."""
    for vector in vectors:
        if vector is not None and vector.shape != (layout.shape[dim],):
            reason = (
                f"there are {layout.shape[dim]} channels along dim {dim}, and a vector has the shape {vector.shape}"
            )
            raise InvalidArgument(op, f"{reason}; give a number for each")


def statistics_shapes(op: str, layout: Layout, groups: int, whole_batch: bool, mean: Layout, variance: Layout) -> None:
    """Check the shapes of the means and the variances of groups of channels."""
    expected = group_statistics(layout.shape, groups, whole_batch)
    for statistics in (mean, variance):
        if statistics.shape != expected:
            reason = f"the groups have statistics of shape {expected}, not {statistics.shape}"
            raise InvalidArgument(op, f"{reason}; give those of normalize_groups")


def vector_dtypes(op: str, dtype: DType, *vectors: HasInner | None) -> None:
    """Check that vectors for elements of a dtype are in one dtype: that of the elements or its compute dtype."""
    dtypes = {vector.inner.dtype for vector in vectors if vector is not None}
    if len(dtypes) > 1 or not dtypes <= {dtype, dtype.compute}:
        raise DTypeMismatch(op, (dtype, *sorted(dtypes, key=lambda it: it.value)))


def compute_dtypes(op: str, dtype: DType, *statistics: HasInner) -> None:
    """Check that statistics of elements of a dtype are in its compute dtype."""
    for storage in statistics:
        has_compute_dtype(op, "statistics", dtype, storage.inner.dtype)


def rope_shapes(op: str, layout: Layout, cos_layout: Layout, sin_layout: Layout, positions_layout: Layout) -> None:
    """Check that rows have pairs, that the tables have an angle for each and rows for all tokens, and the positions."""
    shape, table, positions = layout.shape, cos_layout.shape, positions_layout.shape
    if len(shape) < 2 or shape[-1] % 2:
        raise ShapeMismatch(op, (shape,), "it needs dims (.., tokens, d), with an even d; unsqueeze or narrow it first")
    if len(table) != 2 or table[1] != shape[-1] // 2 or sin_layout.shape != table:
        reason = f"the tables need a row of {shape[-1] // 2} angles for each position"
        raise ShapeMismatch(op, (shape, table, sin_layout.shape), reason)
    if table[0] < shape[-2]:
        raise InvalidArgument(op, f"tables of {table[0]} rows are too short for {shape[-2]} tokens; make longer ones")
    if positions not in ((), (1,), shape[:1] if len(shape) > 2 else ()):
        reason = "the positions are one index, or one for each of a batch, which the first of three dims or more counts"
        raise ShapeMismatch(op, (shape, positions), reason)


def conv_shapes(op: str, layout: Layout, kernel_layout: Layout, params: Params) -> None:
    """Check that input and kernel have the shapes that the parameters state."""
    if layout.shape != params.input_dims or kernel_layout.shape != params.kernel_dims:
        reason = f"the parameters are for an input {params.input_dims} and a kernel {params.kernel_dims}"
        raise ShapeMismatch(op, (layout.shape, kernel_layout.shape), reason)


def convolution_shapes(
    op: str,
    params: ParamsConvolution,
    layout: Layout | None,
    kernel_layout: Layout | None,
    result_layout: Layout | None,
) -> None:
    """Check that the layouts that are not None have the shapes that the parameters state; one of them is the result."""
    stated = (
        ("an input", layout, params.input_dims),
        ("a kernel", kernel_layout, params.kernel_dims),
        ("a result", result_layout, params.out_dims),
    )
    operands = [(what, layout.shape, shape) for what, layout, shape in stated if layout is not None]
    if any(actual != shape for _, actual, shape in operands):
        reason = " and ".join(f"{what} {shape}" for what, _, shape in operands)
        raise ShapeMismatch(op, tuple(actual for _, actual, _ in operands), f"the parameters are for {reason}")


def known_activation(op: str, activation: str | None) -> None:
    """Check the name of an activation, which is an op of one float that gives a float."""
    known = [each.value for each in UnaryOp if DType.F32 in each.dtypes and each.result_of(DType.F32) is DType.F32]
    if activation is not None and activation not in known:
        raise InvalidArgument(op, f"activation is one of {', '.join(known)}, or None, not {activation!r}")


def pool_shapes(op: str, params: ParamsPool, inputs: Sequence[Layout], pooled: Sequence[Layout]) -> None:
    """Check that what has the input's shape and what has the result's have those that the parameters state."""
    shapes = [layout.shape for layout in (*inputs, *pooled)]
    stated = [params.input_dims] * len(inputs) + [params.out_dims] * len(pooled)
    if shapes != stated:
        reason = f"the parameters are for an input {params.input_dims} and a result {params.out_dims}"
        raise ShapeMismatch(op, tuple(shapes), reason)


def pool_window(op: str, layout: Layout, kernel_size: tuple[int, int], stride: tuple[int, int]) -> None:
    """Check that the input is (b, c, h, w), and that a window of `kernel_size` fits into (h, w)."""
    has_rank(op, layout, 4)
    if min(kernel_size) < 1 or min(stride) < 1:
        raise InvalidArgument(op, f"kernel size {kernel_size} and stride {stride} must be 1 or more")
    height, width = layout.shape[2:]
    if kernel_size[0] > height or kernel_size[1] > width:
        reason = f"a window of size {kernel_size} does not fit into {(height, width)}; use a smaller one"
        raise InvalidArgument(op, reason)


def upsample_sizes(op: str, layout: Layout, rank: int, sizes: tuple[int, ...]) -> None:
    """Check that the input has `rank` dims, that the new sizes exist, and that there is something to sample."""
    has_rank(op, layout, rank)
    if min(sizes) < 0:
        raise InvalidArgument(op, f"the new sizes are 0 or more, not {sizes}")
    if layout.elem_count == 0 and math.prod((*layout.shape[:2], *sizes)) > 0:
        reason = f"no elements can't be stretched to sizes {sizes}; use an input with elements"
        raise ShapeMismatch(op, (layout.shape,), reason)


def upsample_scales(op: str, scale_h: float | None, scale_w: float | None) -> None:
    """Check that the scale factors that are not None are finite and above 0."""
    for name, scale in (("scale_h", scale_h), ("scale_w", scale_w)):
        if scale is not None and not 0 < scale < math.inf:
            raise InvalidArgument(op, f"{name} is finite and above 0, or None, not {scale}")


def step_shapes(op: str, layout: Layout, other_layouts: Sequence[Layout], gradient_layouts: Sequence[Layout]) -> None:
    """Check that parameters are contiguous, and that each has a gradient of its shape."""
    layouts = [layout, *other_layouts]
    if len(gradient_layouts) != len(layouts):
        reason = f"{len(layouts)} parameters need as many gradients, not {len(gradient_layouts)}; give each its own"
        raise InvalidArgument(op, reason)
    for parameter, gradient in zip(layouts, gradient_layouts, strict=True):
        if parameter.shape != gradient.shape:
            reason = "a gradient has the shape of its parameter; reshape it"
            raise ShapeMismatch(op, (parameter.shape, gradient.shape), reason)
        if not parameter.is_contiguous:
            raise InvalidArgument(
                op, f"a parameter of shape {parameter.shape} is a view; step with its contiguous copy"
            )


def step_state(op: str, parameter: Typed, state: Typed, kinds: int, layout: Layout, others: Sequence[Layout]) -> None:
    """Check that the state holds `kinds` numbers of each parameter; one kind may be left out."""
    has_compute_dtype(op, "the state", parameter.dtype, state.dtype)
    size = kinds * parts_of([layout.elem_count, *(other.elem_count for other in others)])[-1]
    if state.length < size and not (kinds == 1 and state.length == 0):
        reason = f"the state of these parameters has {size} elements, and this one {state.length}; make a new one"
        raise InvalidArgument(op, reason)


def step_numbers(op: str, parameter: Typed, numbers: Typed, count: int) -> None:
    """Check that there are as many numbers as a step depends on."""
    has_compute_dtype(op, "the numbers", parameter.dtype, numbers.dtype)
    if numbers.length < count:
        raise InvalidArgument(op, f"a step depends on {count} numbers, not {numbers.length}; the docs list them")
