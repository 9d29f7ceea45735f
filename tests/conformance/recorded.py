"""Public calls with recorded operands: what they give, and how that changes with the operands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import tallow
from tallow import DType, Storage, Tensor, Var, array_api, distributed, optim
from tallow.array_api import fft, linalg
from tallow.kernels.constants import ROWS
from tallow.runtime.gradient.call_sites import line_of
from tallow.runtime.gradient.node import Node, tracked, unwrap
from tallow.runtime.selftest.trial import FORWARD

from . import hostile

_MODULES: dict[str, ModuleType] = {
    "array_api": array_api,
    "array_api.linalg": linalg,
    "array_api.fft": fft,
    "distributed": distributed,
    "optim": optim,
}
_MATRIX, _SQUARE = "ramp(d, DType.F32, 2, 3)", "ramp(d, DType.F32, 3, 3)"
_PRODUCT = f"{_MATRIX}; ramp(d, DType.F32, 3, 2)"
# Arguments by place, where those of `hostile` do not fit or are none of floats; those of methods begin with the object.
EXAMPLES = {
    "einsum": f"'ij,jk->ik'; {_PRODUCT}",
    "meshgrid": "ramp(d, DType.F32, 3); ramp(d, DType.F32, 2)",
    "Tensor.broadcast_as": f"{_MATRIX}; 2; 2; 3",
    "Tensor.expand": f"{_MATRIX}; 2; 2; 3",
    "Tensor.permute": f"{_MATRIX}; 1; 0",
    "Tensor.repeat": f"{_MATRIX}; 1; 2",
    "Tensor.reshape": f"{_MATRIX}; 3; 2",
    "Tensor.view": f"{_MATRIX}; 3; 2",
    "array_api.broadcast_arrays": f"{_MATRIX}; ramp(d, DType.F32, 3)",
    "array_api.matmul": _PRODUCT,
    "array_api.meshgrid": "ramp(d, DType.F32, 3); ramp(d, DType.F32, 2)",
    "array_api.permute_dims": f"{_MATRIX}; (1, 0)",
    "array_api.result_type": _MATRIX,
    "array_api.squeeze": "ramp(d, DType.F32, 1, 3); 0",
    "array_api.take": "ramp(d, DType.F32, 4); ramp(d, DType.I64, 3)",
    "array_api.where": f"ramp(d, DType.F32, 2, 3) > 0; {_MATRIX}; {_MATRIX}",
    "array_api.linalg.matmul": _PRODUCT,
    "array_api.linalg.matrix_power": f"{_SQUARE}; 2",
    "array_api.linalg.solve": f"{_SQUARE}; {_SQUARE}",
    **{
        f"array_api.linalg.{name}": _SQUARE
        for name in ("cholesky", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "slogdet")
    },
}
# Tensors instead of any argument, and in lists and mappings there.
FORMS = hostile.values("""
    ramp(d, DType.F32, 1)[0]; ramp(d, DType.F32, 3); ramp(d, DType.F32, 2, 3)
    [ramp(d, DType.F32, 1)[0], 1.0]; [[ramp(d, DType.F32, 1)[0]] * 2] * 2; {'a': ramp(d, DType.F32, 2)}
""")
EXEMPT = {
    "Tensor.detach": "it ends a record by its very meaning",
    **{f"Storage.{name}": f"some operands are what {forward} gives" for name, (forward, _) in FORWARD.items()},
    "distributed.send": "it needs another rank",
    **{
        f"Storage.{name}": "what its gradient reads of a row is a result without a gradient"
        for name, facts in ROWS.items()
        if facts.number_results
    },
    **{
        f"Storage.{name}": "gradients that are recorded are computed op by op"
        for name in ROWS
        if name.endswith("_row_gradient")
    },
}
# Of these, writes to some operands are not noted.
STEPS_OF_OPTIMIZERS = dict.fromkeys(
    ("Storage.adam_step", "Storage.sgd_step"),
    "the state is no operand of recorded calls, and the optimizer notes the writes to all parameters together",
)
# What is of symmetric matrices, whose gradients are symmetric too.
SYMMETRIC = {
    f"{owner}.{name}" for owner in ("Storage", "array_api.linalg") for name in ("cholesky", "eigh", "eigvalsh")
}
# The size of a step in each dtype, and how near differences are; results may be of 16 bits.
STEPS = {DType.F64: ((1e-6, 1e-5), (0.125, 0.02)), DType.F32: ((2e-3, 0.02), (0.125, 0.02), (3e-4, 0.05))}


def _spread(count: int, seed: int) -> Any:
    """Numbers between 0 and 1, none of which is near another one."""
    generator = np.random.default_rng(seed)
    return (generator.permutation(count) + generator.uniform(0.3, 0.7, count)) / max(count, 1)


def _definite(count: int, seed: int) -> Any:
    """The elements of a symmetric matrix near twice the identity."""
    size = max(int(count**0.5), 1)
    noise = _spread(size * size, seed).reshape(size, size) * 0.1
    return np.resize((2 * np.eye(size) + noise + noise.T).reshape(-1), count)


# Numbers of operands, by where functions are defined.
RANGES: tuple[Callable[[int, int], Any], ...] = (
    lambda count, seed: 0.2 + 0.6 * _spread(count, seed),
    lambda count, seed: 1.2 + 0.6 * _spread(count, seed),
    _definite,
)


def _direction(array: Any, seed: int) -> Any:
    """A direction in which numbers change; what is symmetric stays so."""
    size = int(array.size**0.5)
    direction = 0.5 + _spread(array.size, seed + 1)
    if size * size == array.size:
        matrix = array.reshape(size, size)
        if np.array_equal(matrix, matrix.T):
            square = direction.reshape(size, size)
            return ((square + square.T) / 2).reshape(-1)
    return direction


@cache
def surface() -> dict[str, hostile.Call]:
    """Every public call, with those of the public modules that take tensors."""
    results = dict(hostile.surface())
    for prefix, module in _MODULES.items():
        names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
        for name in names:
            function = getattr(module, name)
            if inspect.isfunction(function):
                parameters = tuple(inspect.signature(function).parameters.values())
                label = f"{prefix}.{name}"
                results[label] = hostile.Call(label, None, lambda _, function=function: function, parameters)
    return results


class Given(NamedTuple):
    """The object that a call is made on, and its arguments."""

    of: Any
    arguments: Sequence[Any]
    keywords: dict[str, Any]


def example(call: hostile.Call) -> Given:
    """Arguments that fit a call, each yet to be made."""
    if call.name in EXAMPLES:
        of, *arguments = [None] * (call.owner is None) + hostile.values(EXAMPLES[call.name])
        return Given(of, arguments, {})
    base = hostile.base_of(call)
    return Given(base.of, base.arguments, base.keywords)


def variants(call: hostile.Call) -> Iterator[tuple[str, Given]]:
    """The same with a tensor, or what has some, instead of each argument in turn; most calls refuse it."""
    base = hostile.base_of(call)
    for parameter in call.parameters:
        for form in FORMS:
            if parameter.kind is parameter.VAR_POSITIONAL:
                yield f"*{form}", Given(base.of, [*base.arguments, *base.keywords.values(), form, form], {})
            elif parameter.kind is not parameter.VAR_KEYWORD:
                changed = base.changed({parameter.name: form})
                yield f"{parameter.name}={form}", Given(changed.of, changed.arguments, changed.keywords)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same with each tensor and each storage in it changed, also those in sequences and mappings."""
    if isinstance(value, Given):
        return Given(*[mapped(part, change) for part in value])
    if isinstance(value, Tensor | Storage):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)([mapped(part, change) for part in value])
    if type(value) is dict:
        return {key: mapped(part, change) for key, part in value.items()}
    return value


def leaves(value: Any) -> list[Any]:
    """The tensors and the storages in a value."""
    results: list[Any] = []
    mapped(value, results.append)
    return results


def is_operand(leaf: Any) -> bool:
    """Whether a leaf is of floats; variables stay as they are."""
    return leaf.dtype.is_float and not isinstance(leaf, Var)


def _is_result(leaf: Any) -> bool:
    """Whether a leaf has a gradient by nature; a variable begins a record."""
    return leaf.dtype.is_inexact and not isinstance(leaf, Var)


def shown(leaf: Tensor | Storage) -> Tensor:
    """A vector of what a leaf has."""
    return leaf.reshape(-1) if isinstance(leaf, Tensor) else Tensor.from_storage(leaf, leaf.length)


def elements(leaf: Tensor | Storage) -> Any:
    """The same as numbers of at least 64 bits."""
    array = shown(leaf).numpy()
    return array.astype(np.result_type(array.dtype, np.float64))


def storage_of(leaf: Tensor | Storage) -> Storage:
    return leaf.storage if isinstance(leaf, Tensor) else leaf


class Trial:
    """A call with numbers for all its operands of floats."""

    def __init__(self, call: hostile.Call, result: Given, device: tallow.Device, dtype: DType) -> None:
        self.call = call
        self.made = result
        self.device = device
        self.dtype = dtype
        self.arrays: list[Any] = []
        self.directions: list[Any] = []

    def inputs(self) -> Given:
        """The object and the arguments, made anew."""
        of, arguments, keywords = self.made
        make = lambda value: value.make(self.device)  # noqa: E731
        inputs = [make(value) for value in arguments]
        return Given(None if of is None else make(of), inputs, {name: make(it) for name, it in keywords.items()})

    def take(self, numbers: Callable[[int, int], Any]) -> None:
        """Take numbers for the operands, and the directions in which they change."""
        operands = filter(is_operand, leaves(self.inputs()))
        self.arrays = [numbers(storage_of(leaf).length, seed) for seed, leaf in enumerate(operands)]
        self.directions = [_direction(array, seed) for seed, array in enumerate(self.arrays)]

    def operands(
        self, indices: frozenset[int], step: float, record: Callable[[Var], Tensor] | None
    ) -> tuple[Given, dict[int, Var]]:
        """The arguments with the numbers, some moved by a step, or made of variables; and the variables."""
        variables: dict[int, Var] = {}
        moved = [
            array + step * direction * (index in indices)
            for index, (array, direction) in enumerate(zip(self.arrays, self.directions, strict=True))
        ]
        numbers = iter(enumerate(moved))

        def changed(leaf: Any) -> Any:
            if not is_operand(leaf):
                return leaf
            index, array = next(numbers)
            flat = Tensor(array, dtype=self.dtype, device=self.device)
            if record is not None and index in indices:
                variables[index] = Var(flat)
                flat = record(variables[index])
            return Tensor.from_storage(flat.storage, leaf.layout) if isinstance(leaf, Tensor) else flat.storage

        return mapped(self.inputs(), changed), variables

    def results(self, given: Given) -> list[Any]:
        """The tensors and storages of floats that the call returns."""
        every = leaves(self.call.find(given.of)(*given.arguments, **given.keywords))
        return list(filter(_is_result, every))

    def run(
        self, indices: frozenset[int] = frozenset(), step: float = 0.0, record: Callable[[Var], Tensor] | None = None
    ) -> tuple[list[Any], dict[int, Var]]:
        """Make the call with such operands: what it returns, besides what it writes to; and the variables."""
        inputs, variables = self.operands(indices, step, record)
        before = [elements(leaf) for leaf in leaves(inputs)]
        self.device.set_seed(0)
        results = self.results(inputs)
        for old, leaf in zip(before, leaves(inputs), strict=True):
            is_new = _is_result(leaf) and not any(leaf is other for other in results)
            if is_new and not np.array_equal(old, elements(leaf), equal_nan=True):
                results.append(leaf)
        return results, variables

    def rate(self, indices: frozenset[int], step: float) -> float:
        """How the weighted sum of what the call gives, its real part, changes along the directions of some operands."""
        below, above = [
            sum(np.dot(elements(leaf), factors) for leaf, factors in weighted(self.run(indices, sign * step)[0]))
            for sign in (-1, 1)
        ]
        return complex(above - below).real / (2 * step)

    def recorded_rate(self, indices: frozenset[int]) -> float:
        """The same by gradients: what is not recorded does not change."""
        # A variable itself is not written to.
        results, variables = self.run(indices, record=lambda variable: variable * 1.0)
        rate = 0.0
        for leaf, factors in weighted(results):
            if not storage_of(leaf).is_recorded:
                continue
            grads = shown(leaf).backward(Tensor(factors, dtype=leaf.dtype, device=leaf.device), keep=True)
            for index, variable in variables.items():
                if variable in grads:
                    rate += float(np.dot(elements(grads[variable]), self.directions[index]).real)
        return rate

    def fault(self, indices: frozenset[int]) -> str:
        """Return the faults of a call with some recorded operands; none if it raises GradientError."""
        try:
            result = self.recorded_rate(indices)
        except tallow.GradientError:
            return ""
        rates = []
        for step, tolerance in STEPS[self.dtype]:
            rates.append(self.rate(indices, step))
            if abs(result - rates[-1]) <= tolerance * max(1, abs(rates[-1])):
                return ""
        return f"{self.call.name}: operands {sorted(indices)} have the rate {result}, and differences {rates}"

    def fault_of_capture(self, device: tallow.Device) -> str:
        """Return the faults of gradients that a graph computes; none if it cannot make the call itself."""
        every = frozenset(range(len(self.arrays)))
        record = lambda variable: variable + 0.0  # noqa: E731
        inputs, variables = self.operands(every, 0.0, record)
        device.set_seed(0)
        try:
            results = self.results(inputs)
            seeds = [Tensor(it, dtype=leaf.dtype, device=device) for leaf, it in weighted(results)]
            expected = [elements(it) for it in _found(results, seeds, variables)]
        except tallow.GradientError:
            return ""
        with tallow.Graph(device) as graph:
            inputs, variables = self.operands(every, 0.0, record)
            device.set_seed(0)
            is_done = False
            try:
                with graph.capture():
                    results = self.results(inputs)
                    is_done = True
                    actual = _found(results, seeds, variables)
            except tallow.CaptureError as error:
                return f"{self.call.name}: {error}" if is_done else ""
            graph.replay()
            for one, other in zip(actual, expected, strict=True):
                if not np.array_equal(elements(one), other, equal_nan=True):
                    return f"{self.call.name}: a graph gives {elements(one)} instead of {other}"
        return ""

    def fault_of_lines(self) -> str:
        """The nodes of a call whose errors do not name the line that makes it; the second time it is remembered."""
        for _ in range(2):
            try:
                results, _ = self.run(frozenset(range(len(self.arrays))), record=lambda variable: variable * 1.0)
            except tallow.GradientError:
                return ""
            for node in _nodes(unwrap(storage_of(leaf))[1] for leaf in results):
                code, _ = getattr(node, "site", (self.run.__code__, 0))
                if code.co_filename != __file__:
                    return f"{self.call.name}: {node.name} is recorded at {line_of(node.site)}"
        return ""

    def fault_of_writes(self) -> str:
        """What the call writes to without a note for gradients that need it: without a plan, and with one."""
        if self.device.is_cpu():
            self.device.inner.plans.clear()
        for _ in range(2 * (self.call.name not in STEPS_OF_OPTIMIZERS)):
            inputs, _ = self.operands(frozenset(), 0.0, None)
            matches = [(leaf, tracked(unwrap(storage_of(leaf))[0]), elements(leaf)) for leaf in leaves(inputs)]
            before = [storage.written for _, storage, _ in matches]
            self.results(inputs)
            for index, (leaf, storage, old) in enumerate(matches):
                if storage.written is before[index] and not np.array_equal(old, elements(leaf), equal_nan=True):
                    return f"{self.call.name}: operand {index} is written to"
        return ""

    def fault_of_rewritten(self) -> str:
        """What differs where operands are in plain storages to which recorded elements were written."""
        actual: list[Any] = []
        for record in (lambda it: it * 1.0, lambda it: it.detach().zeros_like().copy_(it)):
            try:
                results, _ = self.run(frozenset(range(len(self.arrays))), record=record)
            except tallow.GradientError:
                actual.append(None)
            else:
                actual.append([(storage_of(leaf).is_recorded, elements(leaf).tolist()) for leaf in results])
        return "" if actual[0] == actual[1] else f"{self.call.name}: {actual[1]} instead of {actual[0]}"

    def sharing(self, is_sum: bool, create_graph: bool) -> str:
        """Return what else changes when a gradient is written to, of operands that are variables or sums of two."""
        others: list[Var] = []

        def record(variable: Var) -> Tensor:
            if not is_sum:
                return variable
            others.append(Var(variable.zeros_like()))
            return variable + others[-1]

        try:
            results, variables = self.run(frozenset(range(len(self.arrays))), record=record)
            every = [*variables.values(), *others]
            for leaf, factors in weighted(results):
                if storage_of(leaf).is_recorded:
                    seed = Tensor(factors, dtype=leaf.dtype, device=leaf.device)
                    if what := _shared(shown(leaf), seed, every, create_graph):
                        return f"{self.call.name}: {what} changed"
        except tallow.GradientError as error:
            # Variables are not written to, and not all functions have gradients.
            return f"{self.call.name}: {error}" if "has overwritten" in str(error) else ""
        return ""


def _nodes(roots: Iterable[Node | None]) -> set[Node]:
    """The nodes of a graph."""
    waiting, results = [*roots], set[Node]()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in results:
            results.add(node)
            waiting += node.inputs[::2]
    return results


def _found(results: list[Any], seeds: list[Tensor], variables: dict[int, Var]) -> list[Tensor]:
    """The gradients of variables by each result that is recorded."""
    matches = []
    for leaf, seed in zip(results, seeds, strict=True):
        if storage_of(leaf).is_recorded:
            grads = shown(leaf).backward(seed, keep=True)
            matches += [grads[variable] for variable in variables.values() if variable in grads]
    return matches


def _shared(result: Tensor, seed: Tensor, variables: list[Var], create_graph: bool) -> str:
    """Return what changes when gradients are written to, one after the other."""
    grads = result.backward(seed, keep=True, create_graph=create_graph)
    results = {f"gradient {index}": grads[it] for index, it in enumerate(variables) if it in grads}
    first = {name: elements(gradient) for name, gradient in results.items()}
    shared = {"the seed": seed, "the result": result} | {f"variable {index}": it for index, it in enumerate(variables)}
    known = {name: elements(leaf) for name, leaf in {**results, **shared}.items()}
    for name, gradient in results.items():
        with tallow.no_grad():
            gradient.add_(1000)
        known[name] = elements(gradient)
        for other, leaf in {**results, **shared}.items():
            if not np.array_equal(elements(leaf), known[other], equal_nan=True):
                return f"{other}, when {name} was written to,"
        if not np.allclose(elements(gradient), first[name] + 1000):
            return f"{name} once more, or not at all,"
    again = result.backward(seed, keep=True, create_graph=create_graph)
    for index, variable in enumerate(variables):
        if variable in again and not np.array_equal(elements(again[variable]), first[f"gradient {index}"]):
            return f"gradient {index} of a second backward"
    return ""


def weighted(results: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Results, each with numbers by which it is multiplied before all is summed up."""
    for seed, leaf in enumerate(results):
        yield leaf, 0.5 + _spread(shown(leaf).elem_count, seed)


def is_accepted(call: hostile.Call, result: Given, device: tallow.Device) -> bool:
    """Whether a call takes arguments."""
    try:
        inputs = Trial(call, result, device, DType.F32).inputs()
        call.find(inputs.of)(*inputs.arguments, **inputs.keywords)
    except Exception:
        return False
    return True


def trial(call: hostile.Call, output: Given, device: tallow.Device) -> Trial | Exception | None:
    """The call with numbers with which it gives finite ones; why there are none; None without operands of floats."""
    reason: Exception | None = None
    for dtype in STEPS:
        for numbers in RANGES[-1:] if call.name in SYMMETRIC else RANGES:
            result = Trial(call, output, device, dtype)
            try:
                result.take(numbers)
                if not result.arrays:
                    return None
                if all(np.isfinite(elements(leaf)).all() for leaf in result.run()[0]):
                    return result
                reason = ValueError(f"{call.name} gives no finite numbers")
            except Exception as error:
                reason = error
    return reason
