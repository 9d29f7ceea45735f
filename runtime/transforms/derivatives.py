"""Derivatives of functions of tensors: products with a vector, Jacobians and Hessians."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..base.error import BatchingError, DTypeMismatch, GradientError, InvalidArgument, ShapeMismatch, describe
from ..core import argument
from ..gradient.products import conjugated
from ..gradient.recording import mode, recorded
from ..gradient.variable import FunctionCall, Var
from ..tensor import Tensor
from ..tensor.promotion import fits
from ..tensor.shape.joining import stack
from .vmap import vmap


def jvp(
    function: Callable[..., Tensor], primals: Tensor | Sequence[Tensor], tangents: Tensor | Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return what a function gives, and how it changes as its arguments move along the tangents: (f(x), J v).

    Primals, the arguments, and tangents are tensors of the same shapes, or tuples of them. A tangent is converted to
    the dtype of its primal. It calls backward twice: it takes about as long as three gradients, whatever
    the number of results.

    >>> tl.jvp(lambda x: x**3, tl.Tensor([1.0, 2.0]), tl.Tensor([1.0, 10.0]))
    (Tensor([1., 8.], dtype=f32), Tensor([3., 120.], dtype=f32))
    """
    op = "jvp"
    _require_function(op, function)
    points, along = _tensors(op, "primals", primals), _tensors(op, "tangents", tangents)
    if len(points) != len(along):
        raise InvalidArgument(op, f"{len(points)} primals have {len(along)} tangents; give one for each")
    for point, tangent in zip(points, along, strict=True):
        if point.shape != tangent.shape:
            raise ShapeMismatch(op, (point.shape, tangent.shape), "a tangent has the shape of its primal")
        if not fits(tangent.dtype, point.dtype):
            reason = "a tangent has the dtype of its primal, or one that converts to it"
            raise DTypeMismatch(op, (point.dtype, tangent.dtype), reason)
    call = _call(op, function, points, {}, range(len(points)))
    _require_recorded(op, call)
    # The product is linear in the tangents, which may be recorded where the primals are not.
    is_recorded = call.is_recorded or (mode().records and any(tangent.is_recorded for tangent in along))
    along = along if is_recorded else tuple([tangent.detach() for tangent in along])
    seed = Var(call.result.zeros_like())
    total: Any = None
    with recorded():
        for slope, tangent in zip(call.gradients(seed, create_graph=True), along, strict=True):
            if slope.is_recorded:
                part = (slope * conjugated(tangent.to_dtype(slope.dtype))).sum()
                part = part.real() if part.dtype.is_complex else part
                total = part if total is None else total + part
    grads = None if total is None else total.backward(create_graph=is_recorded).get(seed)
    result, (product,) = call.finished([call.result.detach().zeros_like() if grads is None else grads])
    return result, product


def jacobian(function: Callable[..., Tensor], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """Make a function give its Jacobian: the derivative of each element of its result by each of an argument.

    The shape is that of the result, followed by that of the argument of number `argnums`; of several there is a tuple.
    Rows are worked out together, by one backward over a batch (`vmap`) as long as the result, with the memory that this
    takes; where an op has no rule for batches, they are worked out one by one, each by a backward of its own.

    >>> tl.jacobian(lambda x: x**2)(tl.Tensor([1.0, 2.0]))
    Tensor([[2., 0.],
            [0., 4.]], dtype=f32)
    """
    _require_function("jacobian", function)
    numbers = _numbers("jacobian", argnums)

    def call(*arguments: Any, **named: Any) -> Any:
        it = _call("jacobian", function, arguments, named, numbers)
        _require_recorded("jacobian", it)
        _require_real("jacobian", it)
        gradients = it.finished(_rows(it))[1]
        return gradients[0] if isinstance(argnums, int) else gradients

    return call


def hessian(function: Callable[..., Tensor], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """Make a function of tensors, which gives one element, give its second derivatives.

    It is the `jacobian` of the gradient: twice the shape of the argument of number `argnums`. Of several arguments
    there is a tuple of a row for each, with a derivative by each of them.

    >>> tl.hessian(lambda x: (x**3).sum())(tl.Tensor([1.0, 2.0]))
    Tensor([[ 6.,  0.],
            [ 0., 12.]], dtype=f32)
    """
    _require_function("hessian", function)
    numbers = _numbers("hessian", argnums)

    def gradient(index: int) -> Callable[..., Tensor]:
        def of_arguments(*arguments: Any, **named: Any) -> Tensor:
            call = _call("hessian", function, arguments, named, numbers)
            _require_recorded("hessian", call)
            _require_real("hessian", call)
            return call.finished(call.gradients(create_graph=True))[1][index]

        return of_arguments

    def call(*arguments: Any, **named: Any) -> Any:
        # The gradient of a linear function depends on no argument: its derivatives are 0.
        calls = [_call("hessian", gradient(index), arguments, named, numbers) for index in range(len(numbers))]
        rows = tuple([it.finished(_rows(it))[1] for it in calls])
        return rows[0][0] if isinstance(argnums, int) else rows

    return call


def _require_real(op: str, call: FunctionCall) -> None:
    """Raise GradientError for complex arguments and results: the derivative by a part of a number may differ."""
    for tensor in (*call.variables, call.result):
        if tensor.dtype.is_complex:
            raise GradientError(op, "arguments and results are real; make it of real() and imag()")


def _require_function(op: str, function: object) -> None:
    if not callable(function):
        raise InvalidArgument(op, f"function must be a function, not {describe(function)}")


def _tensors(op: str, name: str, value: Any) -> tuple[Tensor, ...]:
    return argument.objects(op, name, [value] if isinstance(value, Tensor) else value, Tensor, "Tensor")


def _numbers(op: str, argnums: Any) -> tuple[int, ...]:
    numbers = (argnums,) if type(argnums) is int else argnums
    if not isinstance(numbers, tuple) or not numbers or not all(type(each) is int for each in numbers):
        raise InvalidArgument(op, f"argnums is a number of an argument, or a tuple of these, not {describe(argnums)}")
    return numbers


def _call(
    op: str, function: Callable[..., Tensor], arguments: Sequence[Any], named: Mapping[str, Any], numbers: Iterable[int]
) -> FunctionCall:
    """Call a function with variables substituted for the arguments of some numbers."""
    values, chosen = list(arguments), list(numbers)
    for number in chosen:
        if not -len(values) <= number < len(values) or not isinstance(values[number], Tensor):
            what = describe(values[number]) if -len(values) <= number < len(values) else "missing"
            raise InvalidArgument(op, f"argument {number} is a tensor, whose derivatives are asked for, not {what}")
    sources = [values[number] for number in chosen]
    variables = [Var(source) for source in sources]
    for number, variable in zip(chosen, variables, strict=True):
        values[number] = variable
    return FunctionCall(op, sources, variables, lambda: function(*values, **named))


def _require_recorded(op: str, call: FunctionCall) -> None:
    if call.node is None:
        reason = "the result does not depend on the arguments by ops that have a gradient"
        raise GradientError(op, f"{reason}; leave out detach, argmax and other ops without one")


def _rows(call: FunctionCall) -> list[Tensor]:
    """The derivatives of a result by each of the variables."""
    result, count = call.result, call.result.elem_count
    shapes = [(*result.shape, *each.shape) for each in call.variables]
    if call.node is None or not count:
        return [each.detach()._new_full(shape) for each, shape in zip(call.variables, shapes, strict=True)]
    seeds = Tensor.eye(count, dtype=result.dtype, device=result.device).reshape(count, *result.shape)
    try:
        rows_of_seeds = vmap(lambda seed: call.gradients(seed, keep=True))(seeds)
    except BatchingError:
        rows = [call.gradients(seeds[i], keep=True) for i in range(count)]
        rows_of_seeds = [stack(each, 0) for each in zip(*rows, strict=True)]
    return [each.reshape(shape) for each, shape in zip(rows_of_seeds, shapes, strict=True)]
