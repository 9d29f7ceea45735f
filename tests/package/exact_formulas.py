"""Formulas of the spec evaluated with hundreds of digits, and their derivatives by differences of these."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mpmath import mp, mpf

if TYPE_CHECKING:
    from opgen.formula.nodes import Node

Number = Any
Numbers = Mapping[str, Number]

# Others have mpmath's names.
SMOOTH: dict[str, Callable[..., Number]] = {
    "-x": operator.neg,
    "x + y": operator.add,
    "x - y": operator.sub,
    "x * y": operator.mul,
    "x / y": operator.truediv,
    "multiply_add": lambda x, y, z: x * y + z,
    "square": lambda x: x * x,
    "pow": mp.power,
    "exp2": lambda x: mp.power(2, x),
    "log2": lambda x: mp.log(x, 2),
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "silu": lambda x: x / (1 + mp.exp(-x)),
    "softplus": lambda x: mp.log1p(mp.exp(x)),
}
CONDITIONS: dict[str, Callable[..., bool]] = {
    "x == y": operator.eq,
    "x != y": operator.ne,
    "x < y": operator.lt,
    "x <= y": operator.le,
    "x > y": operator.gt,
    "x >= y": operator.ge,
}
# Functions with pieces: the number of the argument that is the result, or -1 for 0.
CHOICES: dict[str, Callable[..., int]] = {
    "where": lambda condition: 1 if condition else 2,
    "minimum": lambda x, y: 0 if x < y else 1,
    "maximum": lambda x, y: 0 if x > y else 1,
    "relu": lambda x: 0 if x > 0 else -1,
}
STEPS: dict[str, Callable[[Number], Number]] = {
    "sign": mp.sign,
    "floor": mp.floor,
    "ceil": mp.ceil,
    "trunc": lambda x: mp.sign(x) * mp.floor(abs(x)),
    "round": lambda x: mp.sign(x) * mp.floor(abs(x) + mpf(1) / 2),
}
# Two differences of numbers up to 2**1200 leave more than 300 bits.
BITS = 2048
_STEP = mpf(2) ** -240


def value(node: Node, moved: Numbers, at: Numbers) -> Number:
    """Return what a formula is of numbers, on the piece of the function that it has at others."""
    from opgen.formula.nodes import Name, Number

    if isinstance(node, Number):
        return mpf(node.value)
    if isinstance(node, Name):
        return moved[node.text] if node.text in moved else mpf(node.text)
    # What is not chosen may be no number.
    count = 1 if node.primitive == "where" else len(node.arguments)
    numbers = [value(argument, at, at) for argument in node.arguments[:count]]
    if node.primitive in CONDITIONS:
        return CONDITIONS[node.primitive](*numbers)
    if node.primitive in STEPS:
        return STEPS[node.primitive](*numbers)
    if node.primitive == "abs":
        return mp.sign(numbers[0]) * value(node.arguments[0], moved, at)
    if node.primitive in CHOICES:
        chosen = CHOICES[node.primitive](*numbers)
        return mpf(0) if chosen < 0 else value(node.arguments[chosen], moved, at)
    function = SMOOTH.get(node.primitive) or getattr(mp, node.primitive)
    return function(*[value(argument, moved, at) for argument in node.arguments])


def slopes(node: Node, x: Number, parameters: Numbers) -> tuple[Number, Number]:
    """Return the first and the second derivative by x; at infinity their limits, or NaN."""
    with mp.workprec(BITS):
        if mp.isinf(x):
            near, far = (slopes(node, mp.sign(x) * mpf(2) ** exponent, parameters) for exponent in (1100, 1200))
            return far if [*map(float, near)] == [*map(float, far)] else (mp.nan, mp.nan)
        at = {**parameters, "x": x}
        low, middle, high = (value(node, {**at, "x": x + part * _STEP}, at) for part in (-1, 0, 1))
        noise = max(map(abs, (low, middle, high))) * mpf(2) ** (8 - BITS)
        return (high - low) / (2 * _STEP), mp.chop(high - 2 * middle + low, noise) / _STEP**2


def is_smooth(node: Node, operands: Numbers) -> bool:
    """Return whether the function has one piece around its operands."""
    with mp.workprec(BITS):
        at = {name: mpf(number) for name, number in operands.items()}
        for parts in itertools.product((-1, 1), repeat=len(at)):
            moved = {name: number + part * _STEP for (name, number), part in zip(at.items(), parts, strict=True)}
            if value(node, moved, moved) != value(node, moved, at):
                return False
        return True
