"""Upper bounds of the cost of calls in a chat template, from the sizes of their operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from string import Formatter
from typing import Any, Final, NamedTuple

CALL: Final = 4
"""The work of a call, in units of about a quarter of a microsecond."""
ELEMENT: Final = 4
"""The work of an element that is read or created."""
_CHARACTERS: Final = 8
"""How many characters are a unit, and how many pairs of them that are compared."""
_STEPS: Final = 4
"""How many characters of a path, such as an attribute's, are a unit for each element."""
_MAX_DIGITS: Final = 9
# A conversion in a text for `%`, and for dates, with its flags, its width and its precision.
_CONVERSION: Final = re.compile(r"%(?:\([^()]*\))?[-#0 +_^]*(\*|\d+)?(?:\.(\*|\d+))?")


class TooMuch(Exception):
    """A template computes more than it may."""


class Cost(NamedTuple):
    """How the work of a call follows from its operands.

    It grows with their sizes, with the product of those of each two texts, one of which may be searched for
    at any offset of the other, and with that of a text and the elements of a list, to each of which it may be applied.
    """

    is_shallow: bool = False
    """Whether it leaves alone what the elements of a list hold."""
    is_compared: bool = False
    """Whether texts are compared or concatenated, once each."""
    is_iterated: bool = False
    """Whether texts are lists of characters."""
    has_sizes: bool = False
    """Whether the result may be as many times as large as each integer among the operands."""
    factor: int = 1
    widths: Callable[[str], Iterator[str]] | None = None
    """Of a format: yields the width of each of its conversions, as written there."""

    def of(self, operands: Sequence[Any]) -> int:
        """The work of a call. Raises TooMuch."""
        if self.widths is not None and operands and isinstance(operands[0], str):
            return self._of_format(self.widths, *operands)
        work, characters, elements, times = CALL, 0, 0, 1
        for operand in operands:
            if isinstance(operand, str | bytes):
                if self.is_iterated and not characters:
                    work += ELEMENT * len(operand)
                if not self.is_compared:
                    work += len(operand) * (characters // _CHARACTERS + elements // _STEPS)
                characters += len(operand)
            elif isinstance(operand, range) or is_container(operand):
                work += len(operand) * characters // _STEPS
                elements += len(operand)
            elif self.has_sizes and isinstance(operand, int) and not isinstance(operand, bool):
                times *= _bounded(operand)
            work += size_of(operand)
        return work * times * self.factor

    def _of_format(self, widths: Callable[[str], Iterator[str]], text: str, *arguments: Any) -> int:
        """Each conversion may have all arguments, and has its width; one of `*` is that of any integer among them."""
        conversions = [*widths(text)]
        if max(map(len, conversions), default=0) > _MAX_DIGITS:
            raise TooMuch
        all_arguments, largest = _total(arguments)
        width = sum(largest if "*" in each else int(each or 0) for each in conversions)
        return CALL + size_of(text) + len(conversions) * (ELEMENT + all_arguments) + width // _CHARACTERS


def of_percent(text: str) -> Iterator[str]:
    """The widths and precisions in a text for `%`."""
    for width, precision in _CONVERSION.findall(text):
        yield from (width, precision)


def of_braces(text: str) -> Iterator[str]:
    """The widths and precisions in a text for `format`; one that is an argument is `*`."""
    for _, name, form, _ in Formatter().parse(text):
        if name is not None:
            form = form or ""
            yield from ["*", "*"] if "{" in form else re.findall(r"\d+", form) or [""]


def size_of(value: Any) -> int:
    """The work of reading a value once, without what its elements hold."""
    if isinstance(value, str | bytes):
        return 1 + len(value) // _CHARACTERS
    return ELEMENT * (1 + len(value)) if isinstance(value, range) or is_container(value) else 0


def is_container(value: Any) -> bool:
    """Whether a value holds others."""
    return isinstance(value, list | tuple | set | frozenset | Mapping)


def _bounded(number: int) -> int:
    """How many times an integer may be meant."""
    if number.bit_length() > 64:
        raise TooMuch
    return max(abs(number), 1)


def _total(values: Sequence[Any]) -> tuple[int, int]:
    """The sizes of values with all that they hold, which were counted before, and the largest integer among them."""
    total, largest, waiting = 0, 1, [*values]
    while waiting:
        value = waiting.pop()
        total += size_of(value)
        if isinstance(value, int):
            largest = max(largest, _bounded(value))
        if is_container(value):
            waiting += value
            if isinstance(value, Mapping):
                waiting += value.values()
    return total, largest
