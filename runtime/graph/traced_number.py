"""Numbers of functions that are traced: what stands for them and for what is computed of them."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from ..tensor.base import TensorBase
from ..tensor.number import NumberLike

Find: TypeAlias = Callable[[Sequence[float]], float]
"""Computes a number of a trace from the number arguments."""

_PACKAGE: Final = __name__.partition(".")[0]


class Trace(Protocol):
    """The run of a function that a number takes part in."""

    number_arguments: Sequence[float]
    read: set[int]


class TracedNumber(NumberLike):
    """Stands for a number. Arithmetic gives another one; whoever asks for the value gets it, and it counts as read."""

    __slots__ = ("_trace", "_uses", "find")

    def __init__(self, trace: Trace, find: Find, uses: frozenset[int]) -> None:
        self._trace = trace
        self._uses = uses
        self.find = find

    @property
    def value(self) -> float:
        """Its value in this trace."""
        return self.find(self._trace.number_arguments)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # The package asks what stands there, and everybody else what it stands for.
        asks = sys._getframe(1).f_globals.get("__name__", "")
        return TracedNumber if asks.partition(".")[0] == _PACKAGE else type(self.read())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.read(), name)

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        # NumPy's functions take it for what it is.
        return np.asarray(self.read()).__array__(*arguments, **options)

    def read(self) -> float:
        """Its value, on which it depends from now on what the function does."""
        self._trace.read |= self._uses
        return self.value


def _worked_out(function: Callable[..., Any], *, swaps: bool = False) -> Callable[..., Any]:
    """A method that gives the number which a function of the operands works out."""

    def work_out(self: TracedNumber, *others: Any) -> Any:
        if any(isinstance(other, TensorBase) for other in others):
            return NotImplemented
        operands = (*others, self) if swaps else (self, *others)
        uses = frozenset().union(*[part._uses for part in operands if isinstance(part, TracedNumber)])

        def find(numbers: Sequence[float]) -> float:
            values = [part.find(numbers) if isinstance(part, TracedNumber) else part for part in operands]
            result: float = function(*values)
            return result

        return TracedNumber(self._trace, find, uses)

    return work_out


def _asked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method that reads the value."""

    def ask(self: TracedNumber, *others: Any) -> Any:
        if any(isinstance(other, TensorBase) for other in others):
            return NotImplemented
        values = [other.read() if isinstance(other, TracedNumber) else other for other in others]
        return function(self.read(), *values)

    return ask


def _swapped(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda left, right: function(right, left)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(TracedNumber, f"__{_name}__", _worked_out(getattr(operator, _name)))
    setattr(TracedNumber, f"__r{_name}__", _worked_out(getattr(operator, _name), swaps=True))
for _name in ("neg", "pos", "abs"):
    setattr(TracedNumber, f"__{_name}__", _worked_out(getattr(operator, _name)))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "index", "and_", "or_", "xor", "lshift", "rshift", "invert"):
    setattr(TracedNumber, f"__{_name.strip('_')}__", _asked(getattr(operator, _name)))
for _name in ("and_", "or_", "xor", "lshift", "rshift"):
    setattr(TracedNumber, f"__r{_name.strip('_')}__", _asked(_swapped(getattr(operator, _name))))
TracedNumber.__rdivmod__ = _asked(_swapped(divmod))  # type: ignore[attr-defined]
for _asking in (float, int, bool, complex, divmod, round, math.trunc, math.floor, math.ceil, hash, repr, str, format):
    setattr(TracedNumber, f"__{_asking.__name__}__", _asked(_asking))
