"""sgd_step and adam_step."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from .. import values
from ..bench import Bench
from ..comparison import ROUNDED, assert_close, assert_same
from ..layouts import Operand
from ..oracle import optim as oracle
from ..oracle.formats import FLOATS, NUMPY, Array, compute_name, decode, encode, from_number

# Shapes of parameters, how they lie, and how their gradients do: around the widths of packs, of blocks and of parts.
LISTS: tuple[tuple[tuple[tuple[int, ...], str, str], ...], ...] = (
    (((1,), "contiguous", "contiguous"),),
    (((5, 7), "offset", "transposed"), ((), "contiguous", "contiguous"), ((3, 0), "contiguous", "contiguous")),
    (((3, 4, 5), "contiguous", "rolled"), ((17,), "contiguous", "offset"), ((8, 16), "contiguous", "broadcast rows")),
    (((2047,), "contiguous", "contiguous"), ((16385,), "offset", "contiguous"), ((2049,), "contiguous", "offset")),
    # More than one launch takes.
    tuple(((number % 5, 3), "contiguous", "contiguous") for number in range(180)),
)
# Parts begin at multiples of so many elements.
ROOM = 16


def _starts(shapes: list[tuple[int, ...]]) -> list[int]:
    sizes = [-(-int(np.prod(shape, dtype=np.int64)) // ROOM) * ROOM for shape in shapes]
    return [0, *itertools.accumulate(sizes)]


class _Step:
    """A step of some parameters, and what must come of it."""

    def __init__(self, bench: Bench, cases: tuple[tuple[tuple[int, ...], str, str], ...], kinds: int) -> None:
        self._bench = bench
        self.where = bench.where(f"{len(cases)} parameters, the first of shape {cases[0][0]}, {cases[0][1:]}")
        shapes = [shape for shape, _, _ in cases]
        self.parameters, self.gradients = (
            [bench.lay_out(self._drawn(shape), case[index]) for shape, case in zip(shapes, cases, strict=True)]
            for index in (1, 2)
        )
        self.starts = _starts(shapes)
        self.compute = compute_name(bench.name)
        state = np.zeros(max(kinds, 1) * self.starts[-1] if kinds else 0, NUMPY[self.compute])
        for kind, (parameter, start) in itertools.product(
            range(kinds), zip(self.parameters, self.starts, strict=False)
        ):
            begin = kind * self.starts[-1] + start
            drawn = values.modest(bench.generator, self.compute, (parameter.values.size,))
            state[begin : begin + parameter.values.size] = drawn**2 if kind else drawn
        self.state = bench.device.storage(state)

    def _drawn(self, shape: tuple[int, ...]) -> Array:
        drawn = values.modest(self._bench.generator, self._bench.name, shape)
        if drawn.size > 20:
            drawn.reshape(-1)[3], drawn.reshape(-1)[11] = (
                from_number(self._bench.name, each) for each in (0.0, np.nan)
            )
        return drawn

    def take(self, method: str, numbers: Any, is_chosen: bool) -> None:
        """Take the step."""
        first, *others = self.parameters
        getattr(first.storage, method)(
            first.layout, *_listed(others), *_listed(self.gradients), self.state, numbers, is_chosen
        )

    def before(self) -> tuple[list[Array], Array]:
        """The elements of the parameters and the state, extended."""
        name = self._bench.name
        return (
            [decode(name, each.storage.to_numpy()[each.places].reshape(each.values.shape)) for each in self.parameters],
            decode(self.compute, self.state.to_numpy()),
        )

    def part(self, state: Array, number: int, kind: int) -> Array:
        """A parameter's part of the state."""
        shape = self.parameters[number].values.shape
        begin = kind * self.starts[-1] + self.starts[number]
        return state[begin : begin + self.parameters[number].values.size].reshape(shape)

    def gradient(self, number: int) -> Array:
        """The gradient of a parameter, extended."""
        return decode(self._bench.name, self.gradients[number].values)

    def compare(self, number: int, results: oracle.Results) -> None:
        """Compare a parameter and its parts of the state."""
        bench, where = self._bench, f"{self.where}: parameter {number}"
        parameter = self.parameters[number]
        full = parameter.storage.to_numpy()
        (expected, slack), *kept = results
        got = full[parameter.places].reshape(parameter.values.shape)
        assert_close(bench.name, got, expected, ROUNDED, where, slack=slack, zero_sign=False)
        remaining = np.ones(full.shape, bool)
        remaining[parameter.places.reshape(-1)] = False
        assert_same(full[remaining], parameter.buffer[remaining], f"{where}: around it")
        for kind, (expected, slack) in enumerate(kept):
            part = self.part(self.state.to_numpy(), number, kind)
            assert_close(self.compute, part, expected, ROUNDED, f"{where}: state {kind}", slack=slack, zero_sign=False)


def _listed(operands: list[Operand]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return tuple(operand.storage for operand in operands), tuple(operand.layout for operand in operands)


def _numbers(bench: Bench, *values: float) -> tuple[Any, list[Any]]:
    name = compute_name(bench.name)
    numbers = encode(name, np.array(values, np.longdouble))
    return bench.device.storage(numbers), [*decode(name, numbers)]


def sgd_step(bench: Bench) -> None:
    for cases, momentum, is_nesterov in itertools.product(LISTS, (None, 0.9), (False, True)):
        step = _Step(bench, cases, 0 if momentum is None else 1)
        for decay in (0.0, 0.125):
            storage, numbers = _numbers(bench, 0.25, momentum or 0, decay)
            before, state = step.before()
            step.take("sgd_step", storage, is_nesterov)
            for number, theta in enumerate(before):
                velocity = None if momentum is None else step.part(state, number, 0)
                incoming = step.gradient(number)
                results = oracle.sgd(bench.name, theta, incoming, velocity, numbers, is_nesterov=is_nesterov)
                step.compare(number, results)


def adam_step(bench: Bench) -> None:
    for cases, is_decoupled in itertools.product(LISTS, (False, True)):
        step = _Step(bench, cases, 2)
        storage, numbers = _numbers(bench, 0.125, 0.9, 0.999, 1e-8, 0.1, 2, 0, 0)
        for steps in (3, 4):
            before, state = step.before()
            step.take("adam_step", storage, is_decoupled)
            for number, theta in enumerate(before):
                moments = step.part(state, number, 0), step.part(state, number, 1)
                incoming = step.gradient(number)
                results = oracle.adam(
                    bench.name, theta, incoming, moments, numbers[:5], steps, is_decoupled=is_decoupled
                )
                step.compare(number, results)
            result = decode(step.compute, storage.to_numpy())
            assert result[5] == steps, f"{step.where}: {result[5]} steps, expected {steps}"
            for got, beta in zip(result[6:8], numbers[1:3], strict=True):
                off = abs(got * (1 - beta**steps) - 1) * 2 ** FLOATS[step.compute].precision
                assert off <= 4, f"{step.where}: 1 / (1 - {beta}**{steps}) is off by {off} units"


HANDLERS = {"sgd_step": sgd_step, "adam_step": adam_step}
