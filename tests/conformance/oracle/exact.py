"""Storage methods of which tests need their oracle alone: its bits, or a result and how much one may be off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from .formats import Array

Compute = TypeVar("Compute", bound=Callable[..., Array])
# The arguments of a call by name: of an operand its shape, or that and how it lies.
Case = Mapping[str, Any]


class Exact(NamedTuple):
    """The oracle of a method."""

    compute: Callable[..., Any]
    """The result, of the values of operands and of parameters by the names that the spec has for them."""
    cases: tuple[Case, ...]
    """Calls besides the examples of the spec: sizes at which kernels change their ways."""
    draws: tuple[str, ...]
    """Functions of `values` that make elements."""
    zero_sign: bool
    """Whether the sign of a zero counts."""
    is_exact: bool = True
    """Whether results have these bits; else they are extended, with how much they may be off besides."""


ORACLES: dict[str, Exact] = {}
"""By the name of the method."""


def exact(*cases: Case, draws: tuple[str, ...] = ("mixed",), zero_sign: bool = True) -> Callable[[Compute], Compute]:
    """Make a function the oracle of the method that has its name."""

    def register(compute: Compute) -> Compute:
        ORACLES[compute.__name__] = Exact(compute, cases, draws, zero_sign)
        return compute

    return register


def close(compute: Callable[..., tuple[Array, Array]]) -> Callable[..., tuple[Array, Array]]:
    """Make a function the oracle of the method that has its name: its extended result, and the allowed error."""
    ORACLES[compute.__name__] = Exact(compute, (), ("modest",), zero_sign=False, is_exact=False)
    return compute
