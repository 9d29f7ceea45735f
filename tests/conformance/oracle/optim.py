"""Steps of optimisers, by the papers.

Momentum of Nesterov is that of Sutskever, Martens, Dahl and Hinton (2013) as PyTorch has it. Adam is algorithm 1 of
Kingma and Ba (2015), and algorithm 2 of Loshchilov and Hutter (2019) where the decay is decoupled. Each function gives,
for a parameter and then its state, the extended results and how much they may be off besides their units in the last
place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .formats import EXTENDED, Array
from .network import epsilon

Results = list[tuple[Array, Array]]
# Roundings of a step, generously.
_ROUNDINGS = 16


def sgd(
    name: str, theta: Array, gradient: Array, velocity: Array | None, numbers: Sequence[float], *, is_nesterov: bool
) -> Results:
    """Gradient descent with momentum, or without."""
    rate, momentum, decay = map(EXTENDED, numbers)
    with np.errstate(all="ignore"):
        regularised = gradient + decay * theta
        size = np.abs(gradient) + np.abs(decay * theta)
        if velocity is None:
            return [_with_slack(name, theta - rate * regularised, np.abs(theta) + rate * size)]
        moved = momentum * velocity + regularised
        size = size + np.abs(momentum * velocity)
        direction = regularised + momentum * moved if is_nesterov else moved
        return [
            _with_slack(name, theta - rate * direction, np.abs(theta) + 2 * rate * size),
            _with_slack(name, moved, size),
        ]


def adam(
    name: str,
    theta: Array,
    gradient: Array,
    moments: tuple[Array, Array],
    numbers: Sequence[float],
    steps: int,
    *,
    is_decoupled: bool,
) -> Results:
    """Step number `steps` of Adam."""
    alpha, beta1, beta2, small, decay = map(EXTENDED, numbers)
    with np.errstate(all="ignore"):
        g = gradient if is_decoupled else gradient + decay * theta
        size = np.abs(gradient) + (0 if is_decoupled else np.abs(decay * theta))
        first = beta1 * moments[0] + (1 - beta1) * g
        second = beta2 * moments[1] + (1 - beta2) * g**2
        first_size = np.abs(beta1 * moments[0]) + (1 - beta1) * size
        second_size = beta2 * moments[1] + (1 - beta2) * size**2
        root = np.sqrt(second / (1 - beta2**steps)) + small
        scale = alpha / (1 - beta1**steps) / root
        kept = theta - alpha * decay * theta if is_decoupled else theta
        # What is off of the second moment counts by its share.
        share = np.where(second > 0, second_size / np.where(second > 0, second, 1), 1)
        return [
            _with_slack(name, kept - scale * first, np.abs(theta) + scale * (first_size + np.abs(first) * share)),
            _with_slack(name, first, first_size),
            _with_slack(name, second, second_size),
        ]


def _with_slack(name: str, result: Array, size: Array) -> tuple[Array, Array]:
    return result, np.where(np.isfinite(size), size, 0) * _ROUNDINGS * epsilon(name)
