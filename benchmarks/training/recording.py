"""What recording adds to a call: the processor's time of calls on variables, and of the same calls on tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import process_time_ns

import tallow as tl
from tallow import Tensor, Var

from benchmarks.gpu.machine import without_garbage_collection

Call = Callable[[Tensor, Tensor, Tensor], object]

# Operands are so small that nearly all time is Python's.
_SIZE = 4
# So few calls at a time that other work of the machine spares some of the rounds.
_CALLS, _ROUNDS, _WARM_CALLS = 100, 500, 20
# Of two matrices and a vector.
CALLS: Mapping[str, Call] = {
    "x.sum(0)": lambda x, *_: x.sum(0),
    "x + y": lambda x, y, _: x + y,
    "x * y": lambda x, y, _: x * y,
    "x * 2.0": lambda x, *_: x * 2.0,
    "x.relu()": lambda x, *_: x.relu(),
    "x.softmax(1)": lambda x, *_: x.softmax(1),
    "x @ y": lambda x, y, _: x @ y,
    "x.linear(y, b)": lambda x, y, b: x.linear(y, b),
    "x.layer_norm(b, b)": lambda x, _, b: x.layer_norm(b, b),
}


def measured(device: tl.Device) -> Iterator[tuple[str, float, float]]:
    """Each call, and its least time in microseconds: on tensors, and on variables."""
    shapes = (_SIZE, _SIZE), (_SIZE, _SIZE), (_SIZE,)
    plain = [tl.randn(shape, device=device) for shape in shapes]
    recorded = [Var(tensor) for tensor in plain]
    for name, call in CALLS.items():
        for _ in range(_WARM_CALLS):
            call(*plain)
            call(*recorded)
        with without_garbage_collection():
            # One after the other, so that both have the same machine.
            times = [(_time(call, plain), _time(call, recorded)) for _ in range(_ROUNDS)]
        yield name, min(first for first, _ in times), min(second for _, second in times)


def _time(call: Call, operands: list[Tensor] | list[Var]) -> float:
    x, y, b = operands
    begin = process_time_ns()
    for _ in range(_CALLS):
        call(x, y, b)
    return (process_time_ns() - begin) / _CALLS / 1000
