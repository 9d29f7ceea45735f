"""Steps of optimisers, in the compute dtype of the parameters, to which each is rounded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....core.layout import Layout
from ....core.optim import parts_of
from .. import strided
from . import cast
from .operand import Operand


def paired(first: Any, rest: Sequence[Any]) -> tuple[list[Any], Sequence[Any]]:
    """The parameters and their gradients, of a first parameter, the others, and the gradients."""
    count = (len(rest) + 1) // 2
    return [first, *rest[: count - 1]], rest[count - 1 :]


def sgd_step(first: Operand, velocities: Any, numbers: Any, is_nesterov: bool, *rest: Operand) -> None:
    """Gradient descent: x -= rate * (g + momentum * v) with Nesterov's momentum, else x -= rate * v."""
    rate, momentum, decay = _each(numbers.data, 3)

    def step(x: Any, g: Any, held: Sequence[Any]) -> tuple[Any, ...]:
        g = g + decay * x
        if not held:
            return (x - rate * g,)
        velocity = momentum * held[0] + g
        return x - rate * (g + momentum * velocity if is_nesterov else velocity), velocity

    _step(first, velocities, 1 if velocities.length else 0, step, rest)


def adam_step(first: Operand, moments: Any, numbers: Any, is_decoupled: bool, *rest: Operand) -> None:
    """Adam, which counts the step first."""
    library = first.library
    wide = cast.widest(library, numbers.data[:8], numbers.dtype)
    steps = wide[5:6] + 1
    # 1 - beta**steps, of which small differences are not lost.
    scales = -1 / library.expm1(steps * library.log(wide[1:3]))
    values = cast.narrow(library, library.concat([wide[:5], steps, scales], 0), numbers.dtype)
    numbers.write(Layout.contiguous((8,)), values)
    rate, beta1, beta2, epsilon, decay, _, scale1, scale2 = _each(values, 8)

    def step(x: Any, g: Any, held: Sequence[Any]) -> tuple[Any, ...]:
        x, g = (x - rate * decay * x, g) if is_decoupled else (x, g + decay * x)
        mean = beta1 * held[0] + (1 - beta1) * g
        square = beta2 * held[1] + (1 - beta2) * g * g
        return x - rate * scale1 * mean / (library.sqrt(square * scale2) + epsilon), mean, square

    _step(first, moments, 2, step, rest)


def _each(values: Any, count: int) -> Iterator[Any]:
    """The first elements of a vector, each as an array of one."""
    return (values[place : place + 1] for place in range(count))


def _step(
    first: Operand, state: Any, kinds: int, step: Callable[..., tuple[Any, ...]], rest: Sequence[Operand]
) -> None:
    """Write what `step` makes of each parameter, its gradient and its parts of the state."""
    library = first.library
    parameters, gradients = paired(first, rest)
    places = parts_of(parameter.layout.elem_count for parameter in parameters)
    kept: list[list[Any]] = [[] for _ in range(kinds)]
    for parameter, gradient, begin, behind in zip(parameters, gradients, places[:-1], places[1:], strict=True):
        x, g = (library.reshape(cast.widen(library, each.array, each.dtype), (-1,)) for each in (parameter, gradient))
        end = begin + strided.size(x)
        of_kind = [kind * places[-1] for kind in range(kinds)]
        x, *held = step(x, g, [state.data[start + begin : start + end] for start in of_kind])
        parameter.write(library.reshape(cast.narrow(library, x, parameter.dtype), parameter.layout.shape or (1,)))
        for start, parts, part in zip(of_kind, kept, held, strict=True):
            parts += [part, state.data[start + end : start + behind]]
    if kinds:
        joined = library.concat([part for parts in kept for part in parts], 0)
        state.write(Layout.contiguous((kinds * places[-1],)), joined)
