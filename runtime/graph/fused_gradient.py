"""Gradients of fused functions: functions of the operands, the results and their gradients, which are fused too."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from ...gradients.functors import DERIVATIVES, JOINT_DERIVATIVES, Derivative
from ...gradients.second import SECOND_DERIVATIVES
from ...kernels.constants import ROWS
from ...op import BinaryOp, MethodOp, ReduceOp
from ...storage import Storage
from ..base.bounded_cache import BoundedCache
from ..base.error import FusionError
from ..core.layout import Layout
from ..core.shape import Shape
from ..program.fused_function import ALL, EmptyRowError, FusedFunction, IndexOp, Result, Source, Step, TotalOp
from ..program.fused_kernels import excess, kernels_of
from .traced import Trace, TracedStorage, TracedTensor
from .traced_number import TracedNumber
from .traced_rows import operand_names, vector_along

_Key: TypeAlias = "tuple[FusedFunction, tuple[int, ...], tuple[int, ...], tuple[Layout | None, ...], tuple[int, ...]]"
_DERIVATIVES: Final = {**DERIVATIVES, **SECOND_DERIVATIVES}
# The number of a call of which nothing is known but that it differs between calls.
_ANY: Final = frozenset((-1,))


class FusedGradient(NamedTuple):
    """How gradients of the arguments of a fused function are computed.

    Positions are those of the arguments, the gradients of the results and the results, in this order.
    """

    function: FusedFunction | None
    """None where all gradients are those of results as they are."""
    positions: list[int]
    """Of the tensors that the function takes."""
    gradients: list[tuple[Source, int | None, int]]
    """For what a layout shows of an argument: the position of a gradient, or None and which result of the function."""


_gradients: Final[BoundedCache[_Key, tuple[FusedGradient | None]]] = BoundedCache(1 << 10)


def gradient_of(
    function: FusedFunction,
    wanted: tuple[int, ...],
    variables: tuple[int, ...],
    layouts: tuple[Layout | None, ...],
    numbers: Sequence[float],
    owned: tuple[int, ...] = (),
) -> FusedGradient | None:
    """The gradients of the arguments at the positions `wanted`; None if they cannot be fused.

    Gradients of arguments at the positions `variables`, which the caller gets, share no memory. `layouts` are those of
    the gradients of the results, None for a result that has no gradient; those at `owned` stay alive in the caller.
    """
    key = function, wanted, variables, layouts, owned
    known = _gradients.get(key)
    if known is None:
        gradient = _find(function, wanted, variables, layouts, numbers, owned)
        if gradient is None and variables:
            # Where a kernel cannot write all of them, equal gradients are copied.
            gradient = _find(function, wanted, (), layouts, numbers, ())
        known = _gradients.put(key, (gradient,))
    return known[0]


class _NotFused(Exception):
    """A gradient needs something that is no op of a fused function, such as a sum."""


def _find(
    function: FusedFunction,
    wanted: tuple[int, ...],
    variables: tuple[int, ...],
    layouts: tuple[Layout | None, ...],
    numbers: Sequence[float],
    owned: tuple[int, ...],
) -> FusedGradient | None:
    """The cheaper variant: it computes results again, or reads them."""
    variants = []
    for reads_results in (True, False):
        try:
            variants.append(_Derivation(function, wanted, layouts, numbers, reads_results).gradient(variables, owned))
        except (_NotFused, EmptyRowError, FusionError):
            return None
    return min(variants, key=_cost)


def _cost(gradient: FusedGradient) -> tuple[int, int]:
    """The bytes that kernels read, and the ops that they compute."""
    if gradient.function is None:
        return 0, 0
    kernels = [kernel.function for kernel in kernels_of(gradient.function)]
    read = sum(
        _distinct_count(source.layout) * source.dtype.itemsize
        for kernel in kernels
        for source in kernel.sources.values()
    )
    return read, sum(len(kernel.steps) for kernel in kernels)


def _distinct_count(layout: Layout) -> int:
    return math.prod([size for size, stride in zip(layout.shape, layout.strides, strict=True) if stride])


def _shaped(layout: Layout, shape: Shape) -> Layout:
    """The layout of a gradient with the dims of size 1 that a result lacks."""
    shaped = layout.reshape(shape)
    if shaped is None:
        raise _NotFused  # It would be copied.
    return shaped


class _Derivation:
    """Steps that compute gradients, after those of a function."""

    def __init__(
        self,
        function: FusedFunction,
        wanted: tuple[int, ...],
        layouts: tuple[Layout | None, ...],
        numbers: Sequence[float],
        reads_results: bool,
    ) -> None:
        if any(step.dtype.is_complex for step in function.steps):
            raise _NotFused  # The op that computes complex numbers raises GradientError.
        self._function = function
        self._steps = {name: step for step in function.steps for name in step.names}
        count, results = len(function.tensors), function.results
        self._sources = dict(function.sources)
        full_layouts = [self._full_layout(result) for result in results]
        first_saved = len(results) - function.saved
        self._sources |= {
            result.name: Source(count + len(results) + k, result.dtype, layout)
            for k, (result, layout) in enumerate(zip(results, full_layouts, strict=True))
            if layout is not None and (reads_results or k >= first_saved)
        }
        gradients = {
            f"g{k}": Source(count + k, result.dtype, layout if own is None else _shaped(layout, own.shape))
            for k, (result, layout, own) in enumerate(zip(results, layouts, full_layouts, strict=True))
            if layout is not None
        }
        dense = [Layout.contiguous(result.layout.shape) for result in results]
        tensors = [*function.tensors, *[layout or dense[k] for k, layout in enumerate(layouts)], *dense]
        self._trace = Trace.after(function, tensors, {**self._sources, **gradients}, numbers)
        self._needed = {
            name for name, source in function.sources.items() if source.position in wanted and source.dtype.is_float
        }
        for step in function.steps:
            if step.dtype.is_float and not self._needed.isdisjoint(step.operands):
                # Further results have no gradient.
                self._needed.add(step.names[0])
        self._gradients: dict[str, TracedTensor] = {}
        # What elements add to the totals of row ops.
        self._added: set[str] = set()
        for k, result in enumerate(results):
            if f"g{k}" in gradients:
                self._add(result.name, full_layouts[k] or result.layout, self._argument(gradients[f"g{k}"]))
        for step in reversed(function.steps):
            self._go_back(step)

    def _full_layout(self, result: Result) -> Layout | None:
        """The layout of a result that is all of what a step computes, with the dims that were reduced; else None."""
        step = self._steps.get(result.name)
        if step is None or not result.layout.is_contiguous:
            return None
        layout = Layout.contiguous(step.result_shape)
        return layout if layout.elem_count == result.layout.elem_count else None

    def _argument(self, source: Source) -> Any:
        storage = TracedStorage.create(self._trace, source.dtype, position=source.position)
        return TracedTensor.of_argument(storage, source.layout)

    def _value(self, name: str, layout: Layout) -> Any:
        """Return a source, a number or a step as a layout shows it."""
        if name in self._sources:
            return self._argument(self._sources[name])
        step, number = self._steps.get(name), self._function.numbers.get(name)
        known = step or number
        assert known is not None
        shape = Shape(()) if step is None else step.result_shape
        return TracedTensor._new(TracedStorage.create(self._trace, known.dtype, name=name, shape=shape), layout)

    def _add(self, name: str, layout: Layout, gradient: Any) -> None:
        """Add a gradient of what a layout shows."""
        if name not in self._needed:
            return
        step = self._steps.get(name)
        if gradient.shape != layout.shape:
            gradient = gradient.broadcast_as(layout.shape)
        if step is not None and layout.shape != step.result_shape:
            gradient = self._summed(gradient, step.result_shape)
        before = self._gradients.get(name)
        if before is not None and not self._added.isdisjoint((before._storage.name, gradient._storage.name)):
            raise _NotFused  # Of an operand that is a vector of two row ops.
        self._gradients[name] = gradient if before is None else before + gradient

    def _summed(self, gradient: Any, shape: Shape) -> Any:
        """The gradient of what has a shape, of that of what was broadcast along the dim of rows."""
        dims = [dim for dim, size in enumerate(gradient.shape) if len(shape) == gradient.rank and size != shape[dim]]
        if len(dims) != 1 or dims[0] not in [step.dim for step in self._function.steps]:
            raise _NotFused  # It is a sum over rows.
        return gradient.sum(dims[0], keepdim=True)

    def _go_back(self, step: Step) -> None:
        """Add the gradients of the operands of a step."""
        gradients = [self._gradients.get(name) for name in step.names]
        if gradients == [None] * len(gradients):
            return
        if gradients[1:] != [None] * (len(gradients) - 1):
            raise _NotFused
        for index, gradient in self._contributions(step, gradients[0]):
            self._add(step.operands[index], step.layouts[index], gradient)

    def _contributions(self, step: Step, g: Any) -> Iterator[tuple[int, Any]]:
        if step.op is MethodOp.TO_DTYPE:
            yield 0, g.to_dtype(step.operand_dtype)
        elif isinstance(step.op, IndexOp):
            yield 0, self._scattered(step, g)
        elif step.op is TotalOp.RATIO_OF_SUMS:
            if step.operands[1] in self._needed:
                raise _NotFused
            yield 0, (g / self._value(step.names[1], Layout.contiguous(step.result_shape))).broadcast_as(step.shape)
        elif step.is_of_rows and step.facts.number_results:
            yield 0, self._of_numbers(step, g)
        elif step.is_reduction:
            yield from self._of_reduction(step, g)
        elif step.dim is not None:
            yield from self._of_row(step, g)
        elif step.op is BinaryOp.DIV and (inverse := self._inverse_of_rows(step)) is not None:
            wide = g.to_dtype(inverse.dtype) * inverse
            yield 0, wide.to_dtype(g.dtype)
            if step.operands[1] in self._needed:
                x = self._value(step.operands[0], step.layouts[0]).to_dtype(inverse.dtype)
                yield 1, (wide * (x * -inverse)).to_dtype(g.dtype)
        else:
            derivatives = _DERIVATIVES.get(step.op) or {}
            self._require_no_rounding(step, derivatives)
            for index, derivative in enumerate(derivatives.values()):
                if derivative is not None and step.operands[index] in self._needed:
                    parts = [self._part(step, [*derivatives], name) for name in derivative.takes]
                    yield index, derivative.function(g, *parts)

    def _inverse_of_rows(self, step: Step) -> Any:
        """One over a divisor that is one number a row, computed once a row; None if it is none."""
        name, layout = step.operands[1], step.layouts[1]
        dims = {each.dim for each in self._function.steps if each.dim is not None and each.shape == step.shape}
        alike = [dim for dim in dims if layout.strides[dim] == 0 and layout.shape[dim] > 1]
        if not alike or name in self._function.numbers:
            return None
        (dim, *_) = alike
        if name in self._sources:
            divisor = self._value(name, layout).narrow(dim, 0, 1)
        else:
            divisor = self._value(name, Layout.contiguous(self._steps[name].result_shape))
        return divisor.to_dtype(step.dtype.compute).recip().broadcast_as(step.shape)

    def _of_reduction(self, step: Step, g: Any) -> Iterator[tuple[int, Any]]:
        """The gradient of the operand of a reduction, of short floats in f32, as that of the op is computed."""
        derivatives = _DERIVATIVES.get(step.op) or {}
        derivative = derivatives.get("x")
        if derivative is None:
            return
        x = self._value(step.operands[0], step.layouts[0])
        x = x.to_dtype(x.dtype.compute)
        assert step.dim is not None
        dims = (*range(x.rank),) if step.dim == ALL else (step.dim,)

        def part(name: str) -> Any:
            if name == "x":
                return x
            if name == "result":
                numbers = [self._number(number) for number in step.parameters]
                return x._reduce(step.op, dims, True, None, None, *numbers)
            known = {"dims": dims, "count": math.prod([x.shape[dim] for dim in dims])}
            return known[name] if name in known else self._part(step, [], name)

        gradient = g
        if step.op is ReduceOp.NORM:
            # The quotient of an element and the norm, which no element exceeds, by a division for each row.
            norm = part("result")
            inverse = norm.eq(0.0).where(0.0, norm.recip())
            gradient = (x * inverse * g.to_dtype(x.dtype)).to_dtype(g.dtype)
        elif derivative.takes:
            gradient = derivative.function(g.to_dtype(x.dtype), *map(part, derivative.takes)).to_dtype(g.dtype)
        yield 0, gradient.broadcast_as(step.shape)

    def _scattered(self, step: Step, g: Any) -> Any:
        """The gradient of the elements of which one of each row is gathered."""
        g = g.broadcast_as(step.shape)
        operands, layouts = (g._storage.named(g.source_layout), step.operands[1]), (g.source_layout, step.layouts[1])
        scattered = self._trace.step(Step("", IndexOp.SCATTER, operands, layouts, (), step.dtype, step.dtype, step.dim))
        return g._new(self._trace.storage_of(scattered.name), Layout.contiguous(step.shape))

    def _of_numbers(self, step: Step, g: Any) -> Any:
        """The gradient of the elements of which an op gives a number for each row, by its gradient op."""
        op, trace = MethodOp(f"{step.op.value}_gradient"), self._trace
        if ROWS[op.value].passes or not self._needed.isdisjoint(step.operands[1:]):
            raise _NotFused
        x = self._value(step.operands[0], step.layouts[0])
        saved = [self._value(name, Layout.contiguous(step.result_shape)) for name in step.saved]
        numbers = {f"saved_{number}": each for number, each in enumerate(saved, 1)} | {"gradient": g}
        shown = {name: each.broadcast_as(step.shape) for name, each in numbers.items()} | {"self": x}
        known = {name: (each._storage.named(each.source_layout), each.source_layout) for name, each in shown.items()}
        of_op = zip(operand_names(step.op.value)[1:], step.operands[1:], step.layouts[1:], strict=True)
        known |= {name: (operand, layout) for name, operand, layout in of_op}
        operands, layouts = zip(*[known[name] for name in operand_names(op.value)], strict=True)
        result = trace.step(step._replace(name="", op=op, operands=operands, layouts=layouts, results=1))
        return x._new(trace.storage_of(result.name), Layout.contiguous(step.shape))

    def _require_no_rounding(self, step: Step, derivatives: Mapping[str, Derivative | None]) -> None:
        """Refuse what reads a result that was rounded, where the op of both gradients does not."""
        multi_output = JOINT_DERIVATIVES.get(step.op)
        reads_result = any(it is not None and "result" in it.takes for it in derivatives.values())
        is_rounded = step.dtype.compute is not step.dtype and reads_result
        if (
            is_rounded
            and multi_output is not None
            and "result" not in multi_output.takes
            and self._needed.issuperset(step.operands)
        ):
            raise _NotFused

    def _part(self, step: Step, operands: Sequence[str], name: str) -> Any:
        """An operand, the result or a parameter of a step, as derivatives name them."""
        if name in operands:
            index = operands.index(name)
            return self._value(step.operands[index], step.layouts[index])
        if name in ("result", "output"):
            return self._value(step.name, Layout.contiguous(step.shape))
        parameters = [*inspect.signature(getattr(Storage, step.op.value)).parameters][-len(step.parameters) :]
        return self._number(step.parameters[parameters.index(name)])

    def _number(self, name: str) -> Any:
        value = self._function.numbers[name].value
        return TracedNumber(self._trace, value, _ANY) if callable(value) else value  # type: ignore[arg-type]

    def _of_row(self, step: Step, g: Any) -> Iterator[tuple[int, Any]]:
        """The gradients of the operands of a row op: those of vectors along rows are what elements add to them."""
        method = f"{step.op.value}_gradient"
        facts = ROWS.get(method)
        if facts is None or facts.results != 1 or step.dim is None:
            raise _NotFused
        operands = ["x", *operand_names(step.op.value)[1:]][: len(step.operands)]
        of_gradient, totals = operand_names(method), 0
        wanted = [name in self._needed and name in self._sources for name in step.operands[1:]]
        if not self._needed.isdisjoint(step.operands[1:]) and (
            len(wanted) != facts.totals or wanted != [name in self._needed for name in step.operands[1:]]
        ):
            raise _NotFused  # A gradient of what was computed of a vector is a sum over rows.
        arguments: list[Any] = []
        for name in inspect.signature(getattr(Storage, method)).parameters:
            if name == "self" or name.endswith("layout"):
                continue
            if name == "dim":
                arguments.append(step.dim)
            elif name in of_gradient:
                is_absent = name not in ("output", *operands) or self._is_number(step, operands, name)
                part = None if is_absent else self._part(step, operands, name)
                is_vector = facts.vectors >> of_gradient.index(name) & 1
                if part is None:
                    arguments += [None, None]
                else:
                    layout = part._layout
                    arguments += [part._storage, vector_along(layout, step.dim) if is_vector else layout]
            elif totals < facts.totals:
                arguments.append(totals < len(wanted) and wanted[totals])
                totals += 1
            else:
                arguments.append(self._part(step, [], name))
        results = getattr(g._storage, method)(g._layout, *arguments)
        first, *others = results if isinstance(results, tuple) else (results,)
        yield 0, g._new(first, g._layout.dense)
        for index, (is_wanted, part) in enumerate(zip(wanted, others, strict=False), 1):
            if is_wanted:
                self._added.add(part.name)
                yield index, g._new(part, g._layout.dense)

    def _is_number(self, step: Step, operands: Sequence[str], name: str) -> bool:
        """Return True if an operand of an op of rows was left out."""
        return name in operands and step.operands[operands.index(name)] in self._function.numbers

    def _result_for(self, source: Source, gradient: Any) -> tuple[Source, Result]:
        """The result that computes a gradient, and the part of the argument whose gradient it is.

        Of what is broadcast along or across rows, the kernel of these sums it up.
        """
        layout, storage, shown = source.layout, gradient._storage, gradient.source_layout
        steps = [dim for dim, step in enumerate(layout.strides) if step and layout.shape[dim] > 1]
        dims = {step.dim for step in self._function.steps if step.dim is not None and step.shape == layout.shape}
        if not layout.elem_count:
            dims = set()
        if layout.rank > 1 and len(steps) == 1 and steps[0] in dims:
            vector = source._replace(layout=vector_along(layout, steps[0]))
            return vector, Result(storage.named(shown), source.dtype, shown, steps[0])
        if gradient.dtype is not source.dtype:
            raise _NotFused
        for dim in dims:
            if layout.strides[dim] == 0 and layout.shape[dim] > 1:
                gradient = gradient.sum(dim, keepdim=True)
                source = source._replace(layout=layout.narrow(dim, 0, 1))
                shown = gradient.source_layout
        return source, Result(gradient._storage.named(shown), gradient.dtype, shown)

    def gradient(self, variables: Sequence[int], owned: Sequence[int]) -> FusedGradient:
        """The function that computes the gradients, of the tensors that it needs.

        Two `variables` with the same gradient have a result each, and so has one whose gradient is that of a result
        that the caller owns: a kernel writes it faster than a copy.
        """
        if self._trace.read:
            raise _NotFused
        gradients: list[tuple[Source, int | None, int]] = []
        owned_positions = {len(self._function.tensors) + position for position in owned}
        results: list[Result] = []
        taken: Counter[Result] = Counter()
        for name, source in self._function.sources.items():
            gradient = self._gradients.get(name)
            if gradient is None:
                continue
            own, result = self._result_for(source, gradient)
            position = gradient._storage.position
            is_variable = source.position in variables
            is_copied = (
                is_variable and position in owned_positions and result.layout.is_contiguous and len(self._gradients) > 1
            )
            if position is not None and own is source and not is_copied:
                gradients.append((own, position, 0))
                continue
            equal = [index for index, other in enumerate(results) if other == result]
            number = taken[result] if is_variable else 0
            taken[result] += is_variable
            if number == len(equal):
                equal.append(len(results))
                results.append(result)
            gradients.append((own, None, equal[number]))
        if not results:
            return FusedGradient(None, [], gradients)
        function = self._trace.function_of(results)
        positions = sorted({source.position for source in function.sources.values()})
        function = function.of_tensors(positions)
        if excess(function) is not None:
            raise _NotFused
        return FusedGradient(function, positions, gradients)
