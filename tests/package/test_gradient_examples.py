"""Gradients of the examples of the spec: every storage method that has gradients, compared with differences."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import own_spec
import pytest
import tallow as tl
from tallow import DType, Layout, Storage, Tensor
from tallow.examples import METHODS
from tallow.gradients.functors import DERIVATIVES
from tallow.runtime.selftest import examples, trial

from .gradcheck import CLOSE, Gradcheck, rand

_FUNCTORS: Final = {op.value: derivatives for op, derivatives in DERIVATIVES.items()}
# Domains of functions, the widest first.
_RANGES: Final = ((-0.9, 0.9), (0.2, 0.8), (1.2, 2.8))
# Second differences of an example with more elements take long.
_MAX_SECOND: Final = 40


class Example(NamedTuple):
    """An example of a supported cell of f64, and how its operands lie."""

    cell: tl.SupportCell
    number: int
    lay: Callable[[Sequence[int]], Layout]

    def __str__(self) -> str:
        return f"{trial.name_of(self.cell)} {self.number} {self.lay.__name__}"

    def made(self, dtype: DType, make: examples.Make) -> examples.Example:
        """The call for a dtype."""
        cell = replace(self.cell, dtype=dtype)
        return trial.consistent(examples.storage_example(cell, make, self.number, self.lay))


def _has_gradient(cell: tl.SupportCell) -> bool:
    name = cell.op or cell.method
    if name in _FUNCTORS:
        return _FUNCTORS[name] is not None
    methods = {it.name: it for it in own_spec.read().storage_methods()}
    gradient = methods[name].gradient if name in methods else None
    return gradient is not None and not (gradient.none or gradient.missing)


def _examples() -> Iterator[object]:
    """The examples of methods whose gradients the spec or opgen gives, but for the largest ones.

    Of an op's layouts, each third op has more than one by default: they reach its gradient by the same rules.
    """
    for position, cell in enumerate(_supported("cpu", DType.F64)):
        method = METHODS[cell.method]
        # The gradients of an op that a user writes are the user's.
        is_of_user = cell.op is None and "op" in method.parameters
        if _has_gradient(cell) and not is_of_user:
            for number in range(max(len(method.calls) - 1, 1)):
                yield Example(cell, number, examples.contiguous)
                if method.operands["self"].layout is not None:
                    marks = [pytest.mark.full] if position % 3 else []
                    yield pytest.param(Example(cell, number, trial.strided), marks=marks)


@cache
def _supported(backend: str, dtype: DType) -> list[tl.SupportCell]:
    return [it for it in tl.support() if (it.backend, it.dtype, it.status) == (backend, dtype, "supported")]


def _lacking(example: Example, device: tl.Device) -> list[str]:
    """The dtypes that the op lacks."""
    key = example.cell.method, example.cell.op
    return [it for it in CLOSE if key not in {(cell.method, cell.op) for cell in _supported(device.backend, DType(it))}]


class _Call:
    """The call of an example as a function of those of its operands that are f64 of any numbers."""

    def __init__(self, example: Example) -> None:
        self.example = example
        self.lengths: dict[int, int] = {}
        """The number of elements of each such operand, by its position."""
        self.results: Sequence[int] = ()
        """The positions of the results that have gradients."""
        positions = itertools.count()

        def note(dtype: str, length: int, /, numbers: examples.Numbers = examples.ANY) -> Storage:
            position = next(positions)
            if dtype == DType.F64.value and numbers.matrix is None:
                self.lengths[position] = length
            return Tensor.ones(length, dtype=dtype)._storage

        example.made(DType.F64, note)

    def operands(self) -> list[Tensor]:
        """Numbers of which the results that have gradients are defined; none if no result has one."""
        for low, high in _RANGES:
            tensors = [rand(it, low=low, high=high, seed=seed) for seed, it in enumerate(self.lengths.values())]
            results = self._results([tl.Var(tensor) for tensor in tensors]) if tensors else ()
            self.results = [index for index, it in enumerate(results) if _passes_gradients(it)]
            if not any(np.isnan(results[index].to_numpy()).any() for index in self.results):
                return tensors if self.results else []
        raise AssertionError(f"{self.example} is NaN everywhere")

    def __call__(self, *tensors: Tensor) -> Tensor:
        """The results as one vector, with zeros for infinities."""
        every = self._results(tensors)
        parts = [Tensor.from_storage(every[index], every[index].length) for index in self.results]
        flat = [part for it in parts for part in ((it.real(), it.imag()) if it.dtype.is_complex else (it,))]
        result = tl.cat([it.to_dtype(tensors[0].dtype.compute) for it in flat])
        return result.isinf().where(0.0, result)

    def _results(self, tensors: Sequence[Tensor]) -> Sequence[Storage]:
        """What the call gives; of a call in place, its operands afterwards."""
        dtype, device = tensors[0].dtype, tensors[0].device
        variables, generator = iter(tensors), np.random.default_rng(0)
        operands: list[Storage] = []

        def make(name: str, length: int, /, numbers: examples.Numbers = examples.ANY) -> Storage:
            if len(operands) in self.lengths:
                # A copy, which may be overwritten.
                operands.append((next(variables) * 1.0).to_dtype(name)._storage)
            else:
                operands.append(device.storage(trial.array(generator, name, length, numbers)))
            return operands[-1]

        call = self.example.made(dtype, make)
        device.set_seed(0)
        result = call.call()
        return operands if result is None else result if isinstance(result, tuple) else (result,)


def _passes_gradients(result: Storage) -> bool:
    """Whether differences of a result can be compared with gradients, which it does not refuse."""
    if not result.is_recorded or result.dtype not in (DType.F64, DType.COMPLEX128):
        return False
    flat = Tensor.from_storage(result, result.length)
    try:
        flat.backward(flat.detach().ones_like(), keep=True)
    except tl.GradientError:
        return False
    return True


@pytest.mark.parametrize("example", list(_examples()), ids=str)
def test_gradients_are_slopes(example: Example, gradcheck: Gradcheck) -> None:
    call = _Call(example)
    if operands := call.operands():
        is_small = sum(call.lengths.values()) <= _MAX_SECOND
        gradcheck(call, *operands, second=is_small, without=_lacking(example, gradcheck.device))
