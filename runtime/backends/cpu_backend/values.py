"""The values that programs on the CPU have besides those of all programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Never

from ....dtype import DType
from ...host.cast import scalar
from ...program.values import Address, Number, Operand, Parameter, Scalar, Value


class Threads(Value):
    """How many threads may work."""

    __slots__ = ()

    code = "I"

    def __repr__(self) -> str:
        return "threads"


class Function(Value):
    """The address of a function of a library of kernels, which a kernel calls."""

    __slots__ = ("family", "name")

    def __init__(self, family: str, name: str) -> None:
        self.family = family
        self.name = name

    def __repr__(self) -> str:
        return self.name


class IndexRecord(Value):
    """The address of a record in which a kernel notes an index that is out of range, for `fail` to raise."""

    __slots__ = ("fail",)

    def __init__(self, fail: Callable[[int], Never]) -> None:
        self.fail = fail

    def __repr__(self) -> str:
        return "index record"


class Snapshot(Address):
    """The address of a source as it was before the launch: that of a copy where it shares bytes with the target."""

    __slots__ = ("source", "target")

    def __init__(self, source: Operand, target: Operand) -> None:
        super().__init__(source.address.memory, source.address.offset)
        self.source = source
        self.target = target


THREADS: Final = Threads()
PRODUCTS: Final = 8
"""The products that take as long as an element of other kernels."""
RUN_PARTS: Final = Function("span", "run_parts")
"""Divides the work of a kernel among threads."""


def number_bits(number: complex | Parameter, dtype: DType) -> Number:
    """The bits of a number in a compute dtype."""
    return Scalar(number, bits_of, dtype) if isinstance(number, Parameter) else bits_of(number, dtype)


def bits_of(number: complex, dtype: DType) -> int:
    """The bits of a number in a compute dtype."""
    if isinstance(number, complex):
        return _bits(number, dtype)
    # The sign distinguishes 0.0 and -0.0, which are equal.
    return _cached_bits(number, math.copysign(1, number), dtype)


@lru_cache(maxsize=1 << 12, typed=True)
def _cached_bits(number: float, _sign: float, dtype: DType) -> int:
    return _bits(number, dtype)


def _bits(number: complex, dtype: DType) -> int:
    return int.from_bytes(scalar(number, dtype).tobytes(), "little")
