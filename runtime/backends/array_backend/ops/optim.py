"""Steps of optimisers, in the compute dtype of the parameters, to which each is rounded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....core.layout import Layout
from ....core.optim import parts_of
from .. import strided
from . import cast
from .operand import Operand


def paired(first: Any, others: Sequence[Any]) -> tuple[list[Any], Sequence[Any]]:
    """The parameters and their gradients, of a first parameter, the others, and the gradients."""
    count = (len(others) + 1) // 2
    return [first, *others[: count - 1]], others[count - 1 :]


def sgd_step(first: Operand, velocities: Any, numbers: Any, is_nesterov: bool, *others: Operand) -> None:
    """Gradient descent: x -= rate * (g + momentum * v) with Nesterov's momentum, else x -= rate * v."""
    rate, momentum, decay = _each(numbers.data, 3)

    def step(x: Any, g: Any, state: Sequence[Any]) -> tuple[Any, ...]:
        g = g + decay * x
        if not state:
            return (x - rate * g,)
        velocity = momentum * state[0] + g
        return x - rate * (g + momentum * velocity if is_nesterov else velocity), velocity

    _step(first, velocities, 1 if velocities.length else 0, step, others)


def adam_step(first: Operand, moments: Any, numbers: Any, is_decoupled: bool, *others: Operand) -> None:
    """Adam, which counts the step first."""
    library = first.library
    wide = cast.widest(library, numbers.data[:8], numbers.dtype)
    steps = wide[5:6] + 1
    # 1 - beta**steps, of which small differences are not lost.
    scales = -1 / library.expm1(steps * library.log(wide[1:3]))
    values = cast.narrow(library, library.concat([wide[:5], steps, scales], 0), numbers.dtype)
    numbers.write(Layout.contiguous((8,)), values)
    rate, beta1, beta2, epsilon, decay, _, scale1, scale2 = _each(values, 8)

    def step(x: Any, g: Any, state: Sequence[Any]) -> tuple[Any, ...]:
        x, g = (x - rate * decay * x, g) if is_decoupled else (x, g + decay * x)
        mean = beta1 * state[0] + (1 - beta1) * g
        square = beta2 * state[1] + (1 - beta2) * g * g
        return x - rate * scale1 * mean / (library.sqrt(square * scale2) + epsilon), mean, square

    _step(first, moments, 2, step, others)


def _each(values: Any, count: int) -> Iterator[Any]:
    """The first elements of a vector, each as an array of one."""
    return (values[index : index + 1] for index in range(count))


def _step(
    first: Operand, state: Any, kinds: int, step: Callable[..., tuple[Any, ...]], others: Sequence[Operand]
) -> None:
    """Write what `step` makes of each parameter, its gradient and its parts of the state."""
    library = first.library
    parameters, gradients = paired(first, others)
    starts = parts_of(parameter.layout.elem_count for parameter in parameters)
    updated: list[list[Any]] = [[] for _ in range(kinds)]
    for parameter, gradient, begin, after in zip(parameters, gradients, starts[:-1], starts[1:], strict=True):
        x, g = (library.reshape(cast.widen(library, each.array, each.dtype), (-1,)) for each in (parameter, gradient))
        end = begin + strided.size(x)
        of_kind = [kind * starts[-1] for kind in range(kinds)]
        x, *new = step(x, g, [state.data[start + begin : start + end] for start in of_kind])
        parameter.write(library.reshape(cast.narrow(library, x, parameter.dtype), parameter.layout.shape or (1,)))
        for start, parts, part in zip(of_kind, updated, new, strict=True):
            parts += [part, state.data[start + end : start + after]]
    if kinds:
        flat = library.concat([part for parts in updated for part in parts], 0)
        state.write(Layout.contiguous((kinds * starts[-1],)), flat)
