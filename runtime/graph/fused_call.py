"""Calls of fused functions: the program that runs, and what is recorded of a call whose arguments are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...storage import Storage
from ..core.layout import inverse
from ..gradient.node import Contributions, Node, Rule, Use, record_each, recorded_of, result_of, tracked, unwrap
from ..gradient.recording import mode, set_mode
from ..gradient.walk import is_seed
from ..program.fused_function import FusedFunction
from ..program.values import Operand
from ..tensor import Tensor
from .fused_gradient import gradient_of
from .staged import StagedFunction


def launch(function: FusedFunction | StagedFunction, inners: Sequence[Any], numbers: Sequence[float]) -> Any:
    """Compute the results of a function of tensors on one device, and of numbers: those of the backend."""
    if isinstance(function, StagedFunction):
        return _run(function, inners, numbers)
    device = inners[0].device
    computed = [compute(numbers) for compute in function.computed_numbers]
    plan = device.plans.get(function)
    if plan is not None:
        return plan(*inners, *computed)
    op, *others = device.fused_op
    operands = map(Operand, inners, function.tensors)
    return device.planned(function, len(computed), op, (*others, function, *operands, *computed), {})


def _run(function: StagedFunction, inners: Sequence[Any], numbers: Sequence[float]) -> list[Any]:
    """Run the stages one after the other; what none reads any more is freed."""
    values = [*inners]
    for stage in function.stages:
        operands = [None if position is None else values[position] for position in stage.operands]
        if isinstance(stage.function, FusedFunction):
            values += launch(stage.function, operands, numbers)
        else:
            values.append(stage.function(operands))
        for position in stage.released:
            values[position] = None
    return [values[position] for position in function.results]


class _Call(NamedTuple):
    """A call that is recorded."""

    function: FusedFunction
    numbers: Sequence[float]
    again: Callable[[Sequence[Tensor]], list[Any]]
    """Calls the ops of the function one by one, for the tensors among its arguments."""


def record(
    function: FusedFunction | StagedFunction,
    tensors: Sequence[Tensor],
    numbers: Sequence[float],
    again: Callable[[Sequence[Tensor]], list[Any]],
) -> list[Storage] | None:
    """Compute a function and record the call as one; None if its gradients cannot be fused."""
    if isinstance(function, StagedFunction):
        return None
    values, nodes = zip(*[unwrap(tensor._storage) for tensor in tensors], strict=True)
    wanted = tuple([position for position, node in enumerate(nodes) if node is not None])
    count, function = len(function.results), function.with_saved
    layouts = tuple(
        [
            layout if result.dtype.is_float and index < count else None
            for index, (layout, result) in enumerate(zip(function.computed_layouts, function.results, strict=True))
        ]
    )
    variables = tuple([position for position in wanted if nodes[position].rule is None])
    if gradient_of(function, wanted, variables, layouts, numbers) is None:
        return None
    results = [*map(Storage._new, launch(function, [value.inner for value in values], numbers))]
    inputs = tuple([part for node, tensor in zip(nodes, tensors, strict=True) for part in (node, tensor._layout)])
    saved = *map(tracked, values), _Call(function, numbers, again), results
    return [*record_each(results, Rule(function.name, _gradients), inputs, saved)][:count]


def _gradients(node: Node, parts: Any) -> Contributions:
    """The gradients of the arguments of a call, by another fused function; op by op where they are recorded."""
    call: _Call = node.saved[-2]
    gradients = [
        None if (gradient := parts.get(position)) is None else gradient.reshape(layout.shape)
        for position, layout in enumerate(call.function.computed_layouts)
    ]
    wanted = tuple([position for position in range(len(call.function.tensors)) if node.takes(position)])
    layouts = tuple([None if gradient is None else gradient._layout for gradient in gradients])
    is_wrapped = any(gradient is not None and gradient._storage.is_wrapped for gradient in gradients)
    variables: tuple[int, ...] = ()
    owned: tuple[int, ...] = ()
    if not mode().shares:
        variables = tuple([position for position in wanted if node.inputs[2 * position].rule is None])
        owned = tuple([position for position, each in enumerate(gradients) if each is not None and is_seed(node, each)])
    fused = None if is_wrapped else gradient_of(call.function, wanted, variables, layouts, call.numbers, owned)
    if mode().keeps_graph or fused is None:
        yield from _by_ops(node, call, gradients)
        return
    known: list[Callable[[], Any]] = [
        *[partial(node.operand, position) for position in range(len(call.function.tensors))],
        *[partial(gradients.__getitem__, position) for position in range(len(gradients))],
        *[partial(result_of, node, position, layout) for position, layout in enumerate(call.function.computed_layouts)],
    ]
    outputs: Sequence[Any] = ()
    if fused.function is not None:
        outputs = launch(
            fused.function, [known[position]()._storage.inner for position in fused.positions], call.numbers
        )
        outputs = [*map(Tensor._new, map(Storage._new, outputs), fused.function.layouts)]
    for source, position, result in fused.gradients:
        use = Use(node.inputs[2 * source.position], source.layout)
        yield use, outputs[result] if position is None else known[position]()


def _by_ops(node: Node, call: _Call, gradients: Sequence[Tensor | None]) -> Iterator[tuple[Use, Tensor]]:
    """Go back through the ops of a call, which are called and recorded once more, as those of `checkpoint` are."""
    around = mode()
    tensors = []
    for position, layout in enumerate(node.inputs[1 : 2 * len(call.function.tensors) : 2]):
        node.require_unchanged(node.saved[position])
        source, value = node.inputs[2 * position], node.saved[position]
        tensors.append(Tensor._new(value if source is None else recorded_of(value, source), layout))
    try:
        set_mode(around.inside(records=True, is_inner=around.is_inner))
        results = call.again(tensors)
    finally:
        set_mode(around)
    order = inverse(call.function.order)
    if order:
        gradients = [None if gradient is None else gradient.permute(order) for gradient in gradients]
    for result, gradient in zip(results, gradients[: len(results)], strict=True):
        source = unwrap(result._storage)[1]
        if gradient is not None and source is not None:
            yield Use(source, result._layout), gradient
