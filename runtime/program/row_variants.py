"""Variants of ops of rows, which have kernels of their own for calls without the optional operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...kernels.constants import ROWS

T = TypeVar("T")


def variant_for(
    op: str, operands: Sequence[T], is_absent: Callable[[T], bool] = lambda operand: operand is None
) -> tuple[str, Sequence[T]]:
    """Return the op of rows itself, or its variant if all optional operands are absent, and the operands that it takes.

    What follows the operands still follows them.
    """
    facts = ROWS[op]
    if not facts.variant:
        return op, operands
    optional = [index for index, number in enumerate(facts.absent) if number is not None]
    if not all(is_absent(operands[index]) for index in optional):
        return op, operands
    return facts.variant, [operand for index, operand in enumerate(operands) if index not in optional]
