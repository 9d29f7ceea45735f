"""Dtypes and gradients of tensor methods, observed by repeating the call of their example on the CPU."""

import doctest
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import tallow as tl
from tallow import DType, Tensor


class Call(NamedTuple):
    """A method and the arguments that its example calls it with."""

    method: Callable[..., Any]
    tensor: Tensor
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def repeat(self, change: Callable[[Tensor], Tensor]) -> object:
        """Call the method again, with every tensor replaced by `change` of it."""

        def changed(value: object) -> object:
            return change(value) if isinstance(value, Tensor) else value

        options = {name: changed(value) for name, value in self.options.items()}
        return self.method(change(self.tensor), *map(changed, self.arguments), **options)


@cache
def call_of(name: str) -> Call | None:
    """Return the first call of a tensor method in its example; None for class methods."""
    value = inspect.getattr_static(Tensor, name)
    method = value.fget if isinstance(value, property) else value
    if not inspect.isfunction(method):
        return None
    calls: list[Call] = []
    is_first = True

    def recorder(tensor: Tensor, *arguments: Any, **options: Any) -> object:
        nonlocal is_first
        if is_first:
            # Copies may call the method themselves.
            is_first = False
            # In place, it would change what the calls are repeated with.
            calls.append(Call(method, Tensor.from_numpy(tensor.numpy()), arguments, options))
        return method(tensor, *arguments, **options)

    values: dict[str, Any] = {"tl": tl, "np": np}
    with mock.patch.object(Tensor, name, property(recorder) if isinstance(value, property) else recorder):
        for example in doctest.DocTestParser().get_examples(inspect.getdoc(method) or ""):
            exec(compile(example.source, name, "exec"), values)
    return calls[0] if calls else None


@cache
def dtypes_of(name: str) -> tuple[str, ...]:
    """Return the names of the dtypes that a method accepts, in the order of the spec."""
    call = call_of(name)
    return () if call is None else tuple(dtype.value for dtype in DType if _takes(call, dtype))


def _takes(call: Call, dtype: DType) -> bool:
    kind = call.tensor.dtype
    converts_all = True

    def converted(tensor: Tensor) -> Tensor:
        is_one = tensor is call.tensor or (converts_all and tensor.dtype is kind)
        return tensor.to_dtype(dtype) if is_one else tensor

    # Integers next to integers may be indexes, which keep their dtype.
    for converts_all in (True, False) if kind.is_integer else (True,):  # noqa: B007 - the function reads it
        try:
            call.repeat(converted)
        except tl.TallowError:
            continue
        return True
    return False


class Gradient(NamedTuple):
    """Whether the result of a method has a gradient by one of its tensors, and whether that gradient has one itself."""

    exists: bool
    has_gradient: bool


@cache
def gradient_of(name: str) -> Gradient | None:
    """Return the gradient of a method; None if its result holds no tensors."""
    call = call_of(name)
    if call is None or not _gives_tensors(call):
        return None
    tensors = [it for it in (call.tensor, *call.arguments, *call.options.values()) if isinstance(it, Tensor)]
    of_floats = any(tensor.dtype.is_float for tensor in tensors)
    variables: list[tl.Var] = []

    def recorded(tensor: Tensor) -> Tensor:
        if not (tensor.dtype.is_float if of_floats else tensor is call.tensor):
            return tensor
        variables.append(tl.Var(tensor.to_dtype("f32")))
        # What ops write to in place is no variable.
        return variables[-1] * 1

    try:
        result = next((tensor for tensor in _tensors(call.repeat(recorded)) if tensor.is_recorded), None)
    except tl.TallowError:
        result = None
    if result is None:
        return Gradient(False, False)
    try:
        own = (result * result).sum().backward(create_graph=True)
    except tl.GradientError:
        # An op of one's own may have none.
        return Gradient(False, False)
    gradients = [gradient for each in variables if (gradient := own.get(each)) is not None]
    return Gradient(bool(gradients), any(gradient.is_recorded for gradient in gradients))


def _gives_tensors(call: Call) -> bool:
    try:
        return next(_tensors(call.repeat(lambda tensor: tensor)), None) is not None
    except tl.GradientError:
        return False


def _tensors(result: object) -> Iterator[Tensor]:
    parts = result if isinstance(result, tuple | list) else (result,)
    return (part for part in parts if isinstance(part, Tensor))
