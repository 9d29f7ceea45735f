"""Means of losses."""

from __future__ import annotations

from ..... import results
from .....kernels import arguments
from .....op import BinaryOp, ReduceOp, UnaryOp
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, dense
from . import elementwise, reduce


def ratio_of_sums(build: ProgramBuilder, x: Operand, divisor: Operand, saves: bool = True) -> tuple[Buffer, ...]:
    """The sum of all elements over that of the divisor's; with `saves` also the latter, and 1 over it.

    One launch where a block sums.
    """
    every = (x, divisor)
    subgroup_size = reduce.subgroup_of_one_row(build, x)
    if (
        subgroup_size is None
        or x.layout.elem_count != divisor.layout.elem_count
        or reduce.subgroup_of_one_row(build, divisor) is None
    ):
        total, below = (reduce.reduce(build, ReduceOp.SUM, each, tuple(range(len(each.shape)))) for each in every)
        ratio = elementwise.binary(build, BinaryOp.DIV, dense(total, ()), dense(below, ()))
        if not saves:
            return (ratio,)
        return ratio, below, elementwise.unary(build, UnaryOp.RECIP, dense(below, ()))
    ratio, *saved = [build.output(result) for result in results.ratio_of_sums(x, saves) if result is not None]
    # The kernel writes both unread results to the same memory.
    below, slope = saved or [build.empty(x.dtype, 1)] * 2
    packed = arguments.ratio_of_sums(
        result=ratio.address, total=below.address, slope=slope.address, source=x.address,
        divisor=divisor.address, length=x.layout.elem_count, subgroup_size=subgroup_size,
    )  # fmt: skip
    build.launch("reduce", f"ratio_of_sums_{x.dtype.value}", 1, packed)
    return (ratio, *saved)
