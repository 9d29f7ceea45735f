"""The cost of recording: the processor's time of calls on variables, and of the same calls on tensors."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from timeit import Timer

import tallow as tl
from tallow import Var

# Operands are so small that nearly all time is Python's.
_SIZE = 4
# So few calls at a time that other work of the machine spares some of the rounds.
_CALLS, _ROUNDS = 100, 500
# Of two matrices and a vector.
CALLS = (
    "x.sum(0)",
    "x + y",
    "x * y",
    "x * 2.0",
    "x.relu()",
    "x.softmax(1)",
    "x @ y",
    "x.linear(y, b)",
    "x.layer_norm(b, b)",
)


def measured(device: tl.Device) -> Iterator[tuple[str, float, float]]:
    """Each call, and its least time in microseconds: on tensors, and on variables."""
    shapes = {"x": (_SIZE, _SIZE), "y": (_SIZE, _SIZE), "b": (_SIZE,)}
    plain = {name: tl.randn(shape, device=device) for name, shape in shapes.items()}
    recorded = {name: Var(tensor) for name, tensor in plain.items()}
    for call in CALLS:
        timers = [Timer(call, timer=process_time, globals={**operands}) for operands in (plain, recorded)]
        # One after the other, so that both have the same machine.
        rounds = [[timer.timeit(_CALLS) for timer in timers] for _ in range(_ROUNDS)]
        on_tensors, on_variables = (min(times) / _CALLS * 1e6 for times in zip(*rounds, strict=True))
        yield call, on_tensors, on_variables
