"""Storage methods whose results have no other bits than those of their oracle: this is all that tests need of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from .formats import Array

Compute = TypeVar("Compute", bound=Callable[..., Array])
# The arguments of a call by name: of an operand its shape, or that and how it lies.
Case = Mapping[str, Any]


class Exact(NamedTuple):
    """The oracle of a method."""

    compute: Callable[..., Array]
    """The result, of the values of operands and of parameters by the names that the spec has for them."""
    cases: tuple[Case, ...]
    """Calls besides the examples of the spec: sizes at which kernels change their ways."""
    draws: tuple[str, ...]
    """Functions of `values` that make elements."""
    zero_sign: bool
    """Whether the sign of a zero counts."""


ORACLES: dict[str, Exact] = {}
"""By the name of the method."""


def exact(*cases: Case, draws: tuple[str, ...] = ("mixed",), zero_sign: bool = True) -> Callable[[Compute], Compute]:
    """Make a function the oracle of the method that has its name."""

    def register(compute: Compute) -> Compute:
        ORACLES[compute.__name__] = Exact(compute, cases, draws, zero_sign)
        return compute

    return register
