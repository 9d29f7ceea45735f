"""The values that programs on the CPU have besides those of all programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Never

from ...program.values import Address, Operand, Value


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
