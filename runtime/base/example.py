"""The types of examples of calls; the examples of each method are in the package `examples`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Operand(NamedTuple):
    """A storage that a method works on."""

    layout: str | None
    """The parameter that is its layout."""
    dtype: str
    """`same` as the call is for, `compute`, that which it computes in, or the name of one."""
    values: str | None = None
    """A property of its elements: `ascending`, `definite`, `positive`, `small`, `units` or `below`."""
    below: Callable[..., int] | None = None
    """The bound of integers, over arguments by their names."""


class Method(NamedTuple):
    """The parameters of a method, its operands, and calls of it."""

    parameters: dict[str, str]
    """The type of each, by its name."""
    operands: dict[str, Operand]
    calls: tuple[dict[str, Any], ...]
    """Of operands their shapes, of parameters their values: the smallest first, and the largest last."""
