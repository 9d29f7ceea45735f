"""Rows over the root of their mean square, less their mean or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, JOINED_COLUMNS
from .....op import MethodOp
from ....core.shape import Shape
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Address, Buffer, Operand, address_of
from ..driver.grid import ceil_divide
from . import copy, memory, rows
from .scalar import element_bits

# The most packs of a row that a thread holds, by the bytes of an element: AMD's registers have no room for more.
_MOST_HELD: Final = {2: 4, 4: 4, 8: 2}
# Numbers that follow each other, of which threads side by side know the largest.
_RUN: Final = 32
# What the measure kernel knows of a part: so many numbers of the compute dtype.
_KNOWN: Final = 3
# The blocks of a multiprocessor that add up columns: so many are resident, and more would leave more to add up.
_RESIDENT: Final = 2


def normalized(build: ProgramBuilder, op: MethodOp, *arguments: Any) -> tuple[Buffer, ...]:
    """`layer_norm`, `rms_norm` or the gradients of one of them."""
    functions: Mapping[MethodOp, Callable[..., tuple[Buffer, ...]]] = {
        MethodOp.LAYER_NORM: layer_norm,
        MethodOp.RMS_NORM: rms_norm,
        MethodOp.LAYER_NORM_GRADIENT: layer_norm_gradient,
        MethodOp.RMS_NORM_GRADIENT: rms_norm_gradient,
    }
    return functions[op](build, *arguments)


def layer_norm(
    build: ProgramBuilder,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    eps: float,
) -> tuple[Buffer, ...]:
    """(x - mean) / sqrt(variance + eps) * weight + bias, and the sum of x and the residual where there is one."""
    return _norm(build, "layer_norm", x, weight, bias, residual, eps, is_centered=True)


def rms_norm(
    build: ProgramBuilder, x: Operand, weight: Operand | None, residual: Operand | None, eps: float
) -> tuple[Buffer, ...]:
    """x / sqrt(mean of squares + eps) * weight, and the sum of x and the residual where there is one."""
    return _norm(build, "rms_norm", x, weight, None, residual, eps, is_centered=False)


def rms_norm_by(
    build: ProgramBuilder,
    family: str,
    kernel: str,
    x: Operand,
    weight: Operand | None,
    residual: Operand | None,
    eps: float,
    result: Address,
    together: int,
) -> tuple[Buffer, ...] | None:
    """Have a kernel that takes runs of 32 numbers write what `rms_norm` makes of rows to an address, as it has them.

    So many rows lie together there. This gives the sum, where there is one; None for rows that no threads side by side
    hold such runs of.
    """
    x, residual = rows.in_rows(build, x), None if residual is None else rows.in_rows(build, residual)
    weight = None if weight is None else rows.in_rows(build, weight)
    part, *others = rows.launches(build, "rms_norm", _MOST_HELD[x.itemsize], x, x if residual is None else residual)
    if others or not part.kernel.startswith("held") or part.team * ACCESS_BYTES < _RUN * x.itemsize:
        return None
    sums = () if residual is None else (build.empty(x.dtype, x.layout.elem_count),)
    packed = arguments.make_normed_x(
        norm=_fields(part, x, weight, None, residual, eps, [result, *(made.address for made in sums)]),
        rows=part.rows, length=part.length, team=part.team, is_centered=False, together=together,
        geometry=part.geometry,
    )  # fmt: skip
    blocks = part.blocks * int(part.kernel.removeprefix("held"))
    build.launch(family, f"{kernel}_{part.kernel}", blocks, packed)
    return sums


def _fields(
    part: rows.Rows,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    eps: float,
    results: Sequence[Address],
) -> arguments.Norm:
    """What kernels of rows are given, whose results are to begin at these addresses."""
    at = [address_of(vector) for vector in (weight, bias)]
    return arguments.Norm(
        result=results[0], source=x.address + part.offsets[0] * x.itemsize,
        sum=NULL if residual is None else results[1],
        residual=NULL if residual is None else residual.address + part.offsets[1] * x.itemsize,
        weight=at[0], bias=at[1], epsilon=element_bits(eps, x.dtype.compute),
        share=element_bits(1 / x.shape[-1], x.dtype.compute),
    )  # fmt: skip


def _norm(
    build: ProgramBuilder,
    op: str,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    eps: float,
    *,
    is_centered: bool,
) -> tuple[Buffer, ...]:
    itemsize, count = x.itemsize, x.layout.elem_count
    made = [build.empty(x.dtype, count) for _ in range(1 if residual is None else 2)]
    if count == 0:
        return tuple(made)
    x, residual = rows.in_rows(build, x), None if residual is None else rows.in_rows(build, residual)
    weight, bias = [None if vector is None else rows.in_rows(build, vector) for vector in (weight, bias)]
    name = f"norm_{x.dtype.value}"
    for part in rows.launches(build, op, _MOST_HELD[x.itemsize], x, x if residual is None else residual):
        first = part.first * part.length * itemsize
        norm = _fields(part, x, weight, bias, residual, eps, [buffer.address + first for buffer in made])
        if part.team:
            packed = arguments.norm_held(
                norm=norm, rows=part.rows, length=part.length, team=part.team, is_centered=is_centered,
                geometry=part.geometry,
            )  # fmt: skip
            build.launch("norm", f"{name}_{part.kernel}", part.blocks, packed)
            continue
        parts = build.allocate(part.rows * part.splits * _KNOWN * x.dtype.compute.itemsize)
        packed = arguments.norm_long(
            norm=norm, parts=parts.address, rows=part.rows, length=part.length, splits=part.splits, chunk=part.chunk,
            is_centered=is_centered, geometry=part.geometry,
        )  # fmt: skip
        if part.splits > 1:
            build.launch("norm", f"{name}_measure", part.blocks, packed)
        build.launch("norm", f"{name}_long", part.blocks, packed)
    return tuple(made)


def layer_norm_gradient(
    build: ProgramBuilder,
    gradient: Operand,
    x: Operand,
    weight: Operand | None,
    residual: Operand | None,
    of_weight: bool,
    of_bias: bool,
    eps: float,
) -> tuple[Buffer, ...]:
    """The gradients of x and, as they are asked for, of the weight and of the bias."""
    return _gradients(
        build, "layer_norm_gradient", x, gradient, weight, residual, of_weight, of_bias, eps, is_centered=True
    )


def rms_norm_gradient(
    build: ProgramBuilder,
    gradient: Operand,
    x: Operand,
    weight: Operand | None,
    residual: Operand | None,
    of_weight: bool,
    eps: float,
) -> tuple[Buffer, ...]:
    """The gradients of x and, if it is asked for, of the weight."""
    return _gradients(
        build, "rms_norm_gradient", x, gradient, weight, residual, of_weight, False, eps, is_centered=False
    )


def _gradients(
    build: ProgramBuilder,
    op: str,
    x: Operand,
    gradient: Operand,
    weight: Operand | None,
    residual: Operand | None,
    of_weight: bool,
    of_bias: bool,
    eps: float,
    *,
    is_centered: bool,
) -> tuple[Buffer, ...]:
    itemsize, count, length = x.itemsize, x.layout.elem_count, x.shape[-1]
    compute, asked = x.dtype.compute, (of_weight, of_bias)
    if count == 0:
        zeros = [memory.zeros(build, Shape((length,)), x.dtype) for is_asked in asked if is_asked]
        return build.empty(x.dtype, 0), *zeros
    result = build.empty(x.dtype, count)
    vectors = [build.empty(x.dtype, length) if is_asked else None for is_asked in asked]
    x, gradient = rows.in_rows(build, x), rows.in_rows(build, gradient)
    weight = None if weight is None else rows.in_rows(build, weight)
    added = None if residual is None else rows.in_rows(build, copy.contiguous(build, residual))
    pieces = rows.launches(build, op, _MOST_HELD[itemsize], x, gradient)
    # Threads that hold whole packs know of which columns: they add them up. Else another kernel does.
    are_held = pieces[0].kernel.startswith("held") and pieces[0].team > 0
    columns = 1 if are_held else ceil_divide(length, BLOCK_SIZE)
    most = max(_RESIDENT * build.facts.multiprocessors // columns, 1)
    chunks = [ceil_divide(piece.rows, min(piece.rows, most)) for piece in pieces]
    parts = [
        min(piece.blocks, most) if are_held else ceil_divide(piece.rows, chunk)
        for piece, chunk in zip(pieces, chunks, strict=True)
    ]
    sums = build.allocate(sum(parts) * 2 * length * compute.itemsize) if any(asked) else None
    name, sums_at = f"norm_gradient_{x.dtype.value}", sums.address if sums else NULL
    for piece, blocks, chunk in zip(pieces, parts, chunks, strict=True):
        moments = build.allocate(piece.rows * 2 * compute.itemsize) if sums and not are_held else None
        source, given = x.address + piece.offsets[0] * itemsize, gradient.address + piece.offsets[1] * itemsize
        first = piece.first * length * itemsize
        packed = arguments.norm_gradient(
            result=result.address + first, source=source, gradient=given,
            weight=address_of(weight),
            residual=NULL if added is None else added.address + first, sums=sums_at,
            moments=address_of(moments), epsilon=element_bits(eps, compute),
            share=element_bits(1 / length, compute), rows=piece.rows, length=length, team=piece.team or BLOCK_SIZE,
            is_centered=is_centered, geometry=piece.geometry,
        )  # fmt: skip
        launched = blocks if are_held else piece.blocks if piece.team else piece.rows
        build.launch("norm_gradient", f"{name}_{piece.kernel if piece.team else 'long'}", launched, packed)
        if moments:
            packed = arguments.norm_gradient_columns(
                source=source, gradient=given, moments=moments.address, sums=sums_at, rows=piece.rows, length=length,
                chunk=chunk, geometry=piece.geometry,
            )  # fmt: skip
            build.launch("norm_gradient", f"{name}_columns", blocks * columns, packed)
        if sums:
            sums_at += blocks * 2 * length * compute.itemsize
    if sums:
        at = [address_of(vector) for vector in vectors]
        packed = arguments.norm_gradient_sums(
            weight=at[0], bias=at[1], sums=sums.address, parts=sum(parts), length=length
        )
        build.launch("norm_gradient", f"{name}_sums", 2 * ceil_divide(length, JOINED_COLUMNS), packed)
    return result, *[vector for vector in vectors if vector is not None]
