"""Means of losses."""

from __future__ import annotations

from typing import Any

from .....op import BinaryOp, ReduceOp, UnaryOp
from ....core.layout import Layout
from .elementwise import computing
from .operand import Operand
from .reduce import reducing


def ratio_of_sums(x: Operand, divisor: Operand, saves: bool = True) -> tuple[Any, ...]:
    """The sum of all elements over that of the divisor's; with `saves` also the latter, and 1 over it."""
    library, handle = x.library, x.device.handle

    def _total(operand: Operand) -> Any:
        return reducing(library, handle, ReduceOp.SUM, operand, tuple(range(len(operand.shape))))(operand.storage)

    above, below = (type(x)(_total(each), Layout.contiguous(())) for each in (x, divisor))
    quotient = computing(library, handle, BinaryOp.DIV, [above, below])(above.storage, below.storage)
    if not saves:
        return (quotient,)
    return quotient, below.storage, computing(library, handle, UnaryOp.RECIP, [below])(below.storage)
