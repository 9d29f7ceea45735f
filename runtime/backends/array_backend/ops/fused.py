"""Fused functions: their ops in order, as the steps of one program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .....dtype import DType
from .....kernels.constants import ROWS
from .....op import ElementwiseOp, MethodOp, ReduceOp
from ....core.layout import Layout
from ....host.numbers import numbers
from ....program.builder import ProgramBuilder
from ....program.fused_function import ALL, IndexOp, TotalOp
from ....program.program import HostCall
from ....program.values import Buffer, Parameter
from . import index, loss
from .elementwise import elementwise
from .operand import Operand
from .reduce import reduce
from .row import row

if TYPE_CHECKING:
    from ....program.fused_function import FusedFunction, Step


class FusedOps:
    """The ops of a backend that fused functions consist of."""

    def elementwise(
        self, build: ProgramBuilder, op: ElementwiseOp, *parts: Any, result: DType | None
    ) -> Buffer | HostCall:
        """`op` of operands and numbers: see `elementwise.elementwise`."""
        return elementwise(build, op, *parts, result=result)

    def row(
        self,
        build: ProgramBuilder,
        op: Any,
        operands: Sequence[Any],
        dim: int,
        numbers: Sequence[Any],
        wanted: Sequence[bool],
    ) -> tuple[Buffer, ...]:
        """Return the results of a row op of operands along a dim, and the totals that `wanted` selects.

        An operand that was left out is None.
        """
        count, x = ROWS[op.value].results, operands[0]
        arguments = row_arguments(op, operands, dim, numbers, wanted)
        lengths = [x.layout.elem_count] * count + [x.shape[dim]] * sum(wanted)
        return tuple([
            build.buffer_of(build.host(_row, number, op, *arguments), x.dtype, length)
            for number, length in enumerate(lengths)
        ])  # fmt: skip

    def row_numbers(
        self, build: ProgramBuilder, op: Any, operands: Sequence[Any], others: Sequence[Any]
    ) -> tuple[Buffer, ...]:
        """Return the results of a row op that takes or returns numbers of rows; dim, index and numbers are last."""
        facts, x, dim = ROWS[op.value], operands[0], others[0]
        rows = x.layout.elem_count // x.shape[dim]
        kinds = [(x.dtype.compute, rows)] * facts.number_results or [(x.dtype, x.layout.elem_count)]
        return tuple([
            build.buffer_of(build.host(_row, number, op, *operands, *others), *kind)
            for number, kind in enumerate(kinds)
        ])  # fmt: skip

    def ratio_of_sums(self, build: ProgramBuilder, x: Any, divisor: Any) -> tuple[Buffer, ...]:
        """The ratio of two sums, the divisor, and one over it."""
        return tuple([
            build.buffer_of(build.host(_ratio_of_sums, number, x, divisor), x.dtype, 1) for number in range(3)
        ])  # fmt: skip

    def reduce(
        self, build: ProgramBuilder, op: Any, x: Any, dims: tuple[int, ...], numbers: Sequence[Any] = ()
    ) -> Buffer | HostCall:
        """The reduction of an operand along some dims."""
        return reduce(build, op, x, dims, *numbers)

    def indexed(self, build: ProgramBuilder, op: IndexOp, x: Any, indexes: Any, dim: int, size: int) -> Buffer:
        """Gather what an index of each row along a dim names, or scatter a number of each row to its index."""
        function, count = (_gather, 1) if op is IndexOp.GATHER else (_scatter, size)
        return build.buffer_of(
            build.host(function, x, indexes, dim, size), x.dtype, x.layout.elem_count // x.shape[dim] * count
        )

    def element(self, build: ProgramBuilder, like: Buffer, number: Parameter, dtype: DType) -> Buffer:
        """A number of each call as one element, on the device of another buffer."""
        return build.buffer_of(build.host(_stored, like, number, dtype), dtype, 1)


def row_arguments(
    op: Any, operands: Sequence[Any], dim: int, numbers: Sequence[Any], wanted: Sequence[bool]
) -> list[Any]:
    """Return the arguments of row ops, with no residual."""
    facts = ROWS[op.value]
    views = [
        operand.as_strided(operand.shape[dim : dim + 1], operand.strides[dim : dim + 1])
        if operand is not None and facts.vectors >> k & 1
        else operand
        for k, operand in enumerate(operands)
    ]
    residual, along = [None] * facts.adds_residual, [] if facts.last_dim else [dim]
    return [*views, *residual, *along, *(wanted or [False] * facts.totals), *numbers]


def _gather(x: Operand, indexes: Operand, dim: int, _: int) -> Any:
    return index.gather(x, indexes, dim)


def _scatter(source: Operand, indexes: Operand, dim: int, size: int) -> Any:
    library, layout = source.library, Layout.contiguous((*source.shape[:dim], size, *source.shape[dim + 1 :]))
    zeros = source.result(library.broadcast_to(library.constant(0, source.storage.data), tuple(layout.shape)))
    index.scatter_add(Operand(zeros, layout), indexes, source, dim)
    return zeros


def _stored(like: Any, number: complex, dtype: DType) -> Any:
    return like.device.storage(numbers([number], dtype))


def _row_numbers(x: Operand, dim: int) -> tuple[list[int], list[int]]:
    """The shape and strides of one number a row, of what all elements of a row share."""
    return [1 if axis == dim else size for axis, size in enumerate(x.shape)], [*x.strides]


def _without_row(x: Operand, dim: int) -> Operand:
    """Numbers of rows, of what all elements of a row share, in the shape without the dim of the row."""
    return x.as_strided([*x.shape[:dim], *x.shape[dim + 1 :]], [*x.strides[:dim], *x.strides[dim + 1 :]])


def _ratio_of_sums(number: int, x: Operand, divisor: Operand) -> Any:
    """A result of a ratio of sums."""
    return loss.ratio_of_sums(x, divisor)[number]


def _row(number: int, op: MethodOp, *arguments: Any) -> Any:
    """A result of a row op."""
    results = row(op, *arguments)
    return results[number] if isinstance(results, tuple) else results


def fused(build: ProgramBuilder, ops: FusedOps, function: FusedFunction, *arguments: Any) -> tuple[Buffer, ...]:
    """The results of a fused function for its tensors, which are operands, and numbers that differ between calls."""
    tensors = arguments[: len(function.tensors)]
    values = function.named_numbers(arguments[len(tensors) :])
    buffers: dict[str, Buffer] = {name: tensors[it.position].storage for name, it in function.sources.items()}

    def operand(name: str, layout: Layout) -> Operand:
        if name not in buffers:
            value, dtype = values[name], function.numbers[name].dtype
            if isinstance(value, Parameter):
                buffers[name] = ops.element(build, tensors[0].storage, value, dtype)
            else:
                buffers[name] = build.constant(numbers([value], dtype))
        return Operand(buffers[name], layout)

    def compute(op: Any, operands: list[Operand], parameters: list[Any], dtype: DType) -> Buffer:
        result = dtype if op is MethodOp.TO_DTYPE else None
        elements = ops.elementwise(build, op, *operands, *parameters, result=result)
        return build.buffer_of(elements, dtype, operands[0].layout.elem_count)

    def row_operands(step: Step) -> list[Any]:
        """The operands of a row op; a number stands for one that was left out."""
        pairs = zip(step.operands, step.layouts, strict=True)
        return [None if name in function.numbers else operand(name, layout) for name, layout in pairs]

    summed = {result.name for result in function.results if result.along is not None}
    added_up: set[str] = set()
    for step in function.steps:
        parameters = [values[name] for name in step.parameters]
        if step.dim is None:
            operands = [*map(operand, step.operands, step.layouts)]
            buffers[step.name] = compute(step.op, operands, parameters, step.dtype)
        elif step.op is TotalOp.RATIO_OF_SUMS:
            buffers |= zip(
                step.names, ops.ratio_of_sums(build, *map(operand, step.operands, step.layouts)), strict=True
            )
        elif step.dim == ALL:
            x = operand(step.operands[0], step.layouts[0])
            reduced = ops.reduce(build, step.op, x, (*range(len(x.shape)),), parameters)
            buffers[step.name] = build.buffer_of(reduced, step.dtype, 1)
        elif step.facts.has_numbers and not isinstance(step.op, IndexOp):
            count = len(step.facts.absent)
            parts = row_operands(step)
            of_rows = [_without_row(part, step.dim) for part in parts[count:]]
            others = [] if step.facts.last_dim else [step.dim]
            others += [step.ignored] * step.facts.has_index
            others += [False] * (step.facts.numbers > 0) + [True] * (step.facts.saved > 0)
            outputs = ops.row_numbers(build, step.op, [*parts[:count], *of_rows], [*others, *parameters])
            buffers |= zip(step.names, outputs, strict=True)
        elif isinstance(step.op, IndexOp):
            x, indexes = map(operand, step.operands, step.layouts)
            indexes = indexes.as_strided(*_row_numbers(indexes, step.dim))
            if step.op is IndexOp.SCATTER:
                x = x.as_strided(*_row_numbers(x, step.dim))
            buffers[step.name] = ops.indexed(build, step.op, x, indexes, step.dim, step.shape[step.dim])
        elif step.is_reduction:
            x = operand(step.operands[0], step.layouts[0])
            reduced = ops.reduce(build, step.op, x, (step.dim,), parameters)
            buffers[step.name] = build.buffer_of(reduced, step.dtype, step.result_shape.elem_count)
        else:
            parts = row_operands(step)
            totals = step.names[step.facts.results :]
            wanted = [name in summed for name in totals]
            names = [name for name in step.names if name in summed or name not in totals]
            outputs = ops.row(build, step.op, parts, step.dim, parameters, wanted)
            buffers |= zip(names, outputs, strict=True)
            added_up.update(totals)
    fresh = {buffers[name] for step in function.steps for name in step.names if name in buffers}
    results: list[Buffer] = []
    for result in function.results:
        name, dtype, layout, along = result
        buffer = buffers[name]
        if along is not None and name not in added_up:
            total = ops.reduce(build, ReduceOp.SUM, Operand(buffer, layout), result.summed_dims)
            buffer = build.buffer_of(total, dtype, result.shape.elem_count)
            fresh.add(buffer)
        # Results share no memory, neither with each other nor with an argument.
        if buffer not in fresh or not (layout.is_contiguous or along is not None):
            shown = layout if along is None else Layout.contiguous(result.shape)
            buffer = compute(MethodOp.TO_DTYPE, [Operand(buffer, shown)], [], dtype)
        fresh.discard(buffer)
        results.append(buffer)
    return tuple(results)
