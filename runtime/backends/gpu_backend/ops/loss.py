"""Losses of rows at their targets."""

from __future__ import annotations

from typing import Final

from ..... import results
from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, REDUCE_IN_FLIGHT
from .....op import BinaryOp, ReduceOp, UnaryOp
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, address_of, dense
from ..driver.grid import ceil_divide, power_of_two
from . import elementwise, index, reduce, rows

# What the measure kernel knows of a part: so many numbers of the compute dtype.
_KNOWN: Final = 2


def cross_entropy(build: ProgramBuilder, x: Operand, targets: Operand, dim: int, ignored: int) -> tuple[Buffer, Buffer]:
    """Minus log_softmax at each target along `dim`, and 1 where a target counts."""
    compute = x.dtype.compute
    losses, counted = map(build.output, results.cross_entropy(x, targets))
    if losses.length == 0:
        return losses, counted
    given = index.Rows.of(build, "cross_entropy", targets, x.shape[dim])
    x = rows.in_rows(build, rows.moved_last(x, dim))
    name = f"cross_entropy_{x.dtype.value}"
    for part in rows.launches(build, "cross_entropy", REDUCE_IN_FLIGHT, x, _repeated(targets, x)):
        team = _team(x)
        parts = build.allocate(part.rows * part.splits * _KNOWN * compute.itemsize) if part.splits > 1 else None
        packed = arguments.cross_entropy(
            result=losses.address + part.first * compute.itemsize,
            counted=counted.address + part.first * compute.itemsize,
            source=x.address + part.offsets[0] * x.itemsize, parts=address_of(parts),
            indexes=targets.address + part.offsets[1] * targets.itemsize, index=given.fields, rows=part.rows,
            ignored=_ignored(ignored, given), length=part.length, team=team, splits=part.splits, chunk=part.chunk,
            geometry=part.geometry,
        )  # fmt: skip
        if parts:
            build.launch("cross_entropy", f"{name}_measure", part.blocks, packed)
        build.launch("cross_entropy", name, ceil_divide(part.rows * team, BLOCK_SIZE), packed)
        build.expect_error()
    return losses, counted


def cross_entropy_gradient(
    build: ProgramBuilder,
    x: Operand,
    losses: Operand,
    gradient: Operand,
    targets: Operand,
    dim: int,
    ignored: int,
    overwrites: bool,
) -> Buffer:
    """(softmax(x) - 1) * g at each target along `dim`, softmax(x) * g elsewhere, 0 where a target does not count."""
    shape = x.shape
    is_whole = x.layout.dense is x.layout and x.layout.elem_count == x.storage.length and dim == len(shape) - 1
    result = x.storage if overwrites and is_whole else build.output(results.cross_entropy_gradient(x))
    if targets.layout.elem_count == 0:
        return result
    given = index.Rows.of(build, "cross_entropy_gradient", targets, shape[dim])
    x = rows.in_rows(build, rows.moved_last(x, dim))
    others = (_repeated(each, x) for each in (targets, losses, gradient))
    for part in rows.launches(build, "cross_entropy_gradient", REDUCE_IN_FLIGHT, x, *others):
        team = _team(x)
        packed = arguments.cross_entropy_gradient(
            result=result.address + part.first * part.length * x.itemsize,
            source=x.address + part.offsets[0] * x.itemsize,
            losses=losses.address + part.offsets[2] * losses.itemsize,
            gradient=gradient.address + part.offsets[3] * gradient.itemsize,
            indexes=targets.address + part.offsets[1] * targets.itemsize, index=given.fields, rows=part.rows,
            ignored=_ignored(ignored, given), length=part.length, team=team, geometry=part.geometry,
        )  # fmt: skip
        name, blocks = f"cross_entropy_gradient_{x.dtype.value}", ceil_divide(part.rows * team, BLOCK_SIZE)
        build.launch("cross_entropy", name, blocks, packed)
        build.expect_error()
    return rows.moved_back(build, result, shape, dim)


def ratio_of_sums(build: ProgramBuilder, x: Operand, divisor: Operand) -> tuple[Buffer, ...]:
    """The sum of all elements over that of the divisor's, the latter, and 1 over it: one launch where a block sums."""
    every = (x, divisor)
    team = reduce.team_of_one(build, x)
    if team is None or x.layout.elem_count != divisor.layout.elem_count or reduce.team_of_one(build, divisor) is None:
        total, below = (reduce.reduce(build, ReduceOp.SUM, each, tuple(range(len(each.shape)))) for each in every)
        ratio = elementwise.binary(build, BinaryOp.DIV, dense(total, ()), dense(below, ()))
        return ratio, below, elementwise.unary(build, UnaryOp.RECIP, dense(below, ()))
    ratio, below, slope = map(build.output, results.ratio_of_sums(x))
    packed = arguments.ratio_of_sums(
        result=ratio.address, total=below.address, slope=slope.address, source=x.address,
        divisor=divisor.address, length=x.layout.elem_count, team=team,
    )  # fmt: skip
    build.launch("reduce", f"ratio_of_sums_{x.dtype.value}", 1, packed)
    return ratio, below, slope


def _repeated(numbers: Operand, x: Operand) -> Operand:
    """A number of each row as one of each element of it."""
    return numbers.relaid(x.shape, (*numbers.strides, 0))


def _team(x: Operand) -> int:
    """How many threads take a row: each has as many accesses in flight as it can, before more of them take it."""
    return min(power_of_two(ceil_divide(x.shape[-1] * x.itemsize, ACCESS_BYTES * REDUCE_IN_FLIGHT)), BLOCK_SIZE)


def _ignored(ignored: int, targets: index.Rows) -> int:
    """What kernels ignore; any other number is no index either."""
    return ignored if abs(ignored) < 1 << 63 else targets.indexes.dtype.index_form[0]
