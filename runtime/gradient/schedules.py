"""Schedules: functions that give the learning rate of each step, counted from 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from ..base.error import InvalidArgument, describe
from ..core.argument import integer
from .parameters import RATE, number_setting

Schedule: TypeAlias = Callable[[int], float]


def constant_rate(rate: float) -> Schedule:
    """Make a schedule that gives the same rate for every step, which `warm_up` may lead to.

    >>> schedule = tl.optim.warm_up(4, tl.optim.constant_rate(0.1))
    >>> [round(schedule(step), 3) for step in (0, 1, 2, 4, 5)]
    [0.0, 0.025, 0.05, 0.1, 0.1]
    """
    value = number_setting("constant_rate", RATE, rate)
    return lambda _: value


def cosine_rate(rate: float, steps: int, end: float = 0.0) -> Schedule:
    """Make a schedule that goes from a rate to `end` along half a wave of a cosine, in some steps, and stays there.

    >>> schedule = tl.optim.cosine_rate(0.1, 100)
    >>> [round(schedule(step), 3) for step in (0, 50, 100, 200)]
    [0.1, 0.05, 0.0, 0.0]
    """
    op = "cosine_rate"
    first, last, count = number_setting(op, RATE, rate), number_setting(op, "end", end), _steps(op, "steps", steps)
    return lambda step: last + (first - last) * (1 + math.cos(math.pi * min(step / count, 1.0))) / 2


def step_rate(rate: float, every: int, factor: float = 0.1) -> Schedule:
    """Make a schedule that multiplies a rate by a factor every `every` steps.

    >>> schedule = tl.optim.step_rate(0.1, every=30)
    >>> [round(schedule(step), 5) for step in (0, 29, 30, 60)]
    [0.1, 0.1, 0.01, 0.001]
    """
    op = "step_rate"
    first, share = number_setting(op, RATE, rate), number_setting(op, "factor", factor)
    count = _steps(op, "every", every)
    return lambda step: first * share ** (step // count)


def warm_up(steps: int, schedule: Schedule, start: float = 0.0) -> Schedule:
    """Make a schedule that goes linearly from a share of the first rate of another schedule to all of it, and then on.

    After `steps` steps follows the first step of the other schedule.

    >>> schedule = tl.optim.warm_up(10, tl.optim.cosine_rate(0.1, 100), start=0.5)
    >>> [round(schedule(step), 3) for step in (0, 5, 10, 60, 110)]
    [0.05, 0.075, 0.1, 0.05, 0.0]
    """
    op = "warm_up"
    count, share = _steps(op, "steps", steps), number_setting(op, "start", start)
    if not callable(schedule):
        reason = f"schedule is a function of the step, such as constant_rate(0.1), not {describe(schedule)}"
        raise InvalidArgument(op, reason)

    def rate(step: int) -> float:
        if step >= count:
            return schedule(step - count)
        return schedule(0) * (share + (1 - share) * step / count)

    return rate


def _steps(op: str, name: str, value: int) -> int:
    count = integer(op, name, value)
    if count < 1:
        raise InvalidArgument(op, f"{name} is 1 or more, not {count}")
    return count
