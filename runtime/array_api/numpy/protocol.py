"""NumPy's functions called with tensors, as `numpy.sin(x)` and `numpy.sum(x, axis=0)` are.

They are the functions of the standard, which NumPy has under the same names, and those of `functions`. What has
no counterpart is refused with the call that works, since nothing moves to the host unasked. Arrays among the arguments
are copied to the device of the first tensor.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NoReturn

import numpy as np

from ...base.error import TallowError, UnsupportedOperand, type_name
from ...core.extensions import extensions
from ...tensor import Tensor
from ...tensor.equivalents import EQUIVALENTS
from ...tensor.names import OF_TENSORS, as_call
from . import fft as numpy_fft
from . import functions as numpy_functions
from . import histograms as numpy_histograms
from . import linalg as numpy_linalg
from . import shapes as numpy_shapes

Function = Callable[..., Any]

# Operators take numbers as they are.
_OPERATORS: Final[Mapping[np.ufunc, Function]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.divide: operator.truediv,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.divmod: divmod,
    np.power: operator.pow,
    np.matmul: operator.matmul,
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.bitwise_xor: operator.xor,
    np.left_shift: operator.lshift,
    np.right_shift: operator.rshift,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
}
# What neither the standard nor tensors have under another name.
_BEYOND: Final[Mapping[np.ufunc, Function]] = {
    np.fabs: Tensor.abs,
    np.degrees: numpy_functions.degrees,
    np.rad2deg: numpy_functions.degrees,
    np.radians: numpy_functions.radians,
    np.deg2rad: numpy_functions.radians,
}
# What takes the elements to the host because that is what it is for.
_ON_HOST: Final = frozenset({np.save, np.savez, np.savez_compressed, np.savetxt, np.array2string})
# What works instead of a function that is refused, where neither a method nor the call with an array does.
_HINTS: Final[Mapping[str, str]] = {
    "numpy.copyto": "x.copy_(source), or x[...] = source",
    "numpy.put_along_axis": "x.scatter_(indexes, source, dim)",
    "numpy.place": "x[mask] = values",
    "numpy.putmask": "x[mask] = values",
    "numpy.put": "x.view(-1)[indexes] = values",
    "numpy.select": "mask.where(x, y)",
    "numpy.result_type": "tallow.array_api.result_type(x, y)",
    "numpy.can_cast": "tallow.array_api.can_cast(x, dtype)",
}
_HINTS_OF_ARGUMENTS: Final[Mapping[str, str]] = {
    "out": "write x[...] = result instead",
    "where": "choose with mask.where(x, y) instead",
    "dtype": "convert with x.to_dtype(dtype) instead",
}
# What NumPy calls a parameter of the standard's.
_RENAMED: Final = {"ddof": "correction", "a_min": "min", "a_max": "max", "rcond": "rtol"}


# Scalars of NumPy's whose product with a tensor is that of a number of Python's.
_NUMBERS: Final = (np.float64, np.float32, np.int64)
_OPERANDS: Final = (Tensor, np.ndarray, np.generic, int, float, complex)
_UFUNC_DEFAULTS: Final = {"where": True, "casting": "same_kind", "order": "K", "subok": True, "keepdims": False}


def call_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Do what a ufunc of NumPy's does, or one of its methods, with tensors among the operands or the results."""
    if type(inputs[0]) in _NUMBERS and not options and ufunc in _OPERATORS and method == "__call__":
        # NumPy's number * x is as frequent as x * number.
        return _OPERATORS[ufunc](inputs[0].item(), inputs[1])
    prefix = "numpy." if getattr(np, ufunc.__name__, None) is ufunc else ""
    name = f"{prefix}{ufunc.__name__}{'' if method == '__call__' else f'.{method}'}"
    tensor = next(_tensors(inputs), None)
    if tensor is None:
        raise UnsupportedOperand(name, "out= is a Tensor, and no operand is; write x[...] = result instead")
    is_reduction = method in ("reduce", "accumulate")
    function = _reductions(method).get(ufunc) if is_reduction else _ufuncs().get(ufunc)
    if function is None or not (is_reduction or method in ("__call__", "outer")):
        return _refuse(name)
    for it in inputs:
        if isinstance(it, list | tuple):
            _refuse_operand(name, "an operand", it)
        if not isinstance(it, _OPERANDS):
            return NotImplemented
    keywords = {key: it for key, it in options.items() if not _is_default(it, _UFUNC_DEFAULTS.get(key))}
    if is_reduction:
        keywords["axis"] = options.get("axis", 0)
    known: Iterable[str] = inspect.signature(function).parameters if "axis" in keywords else ()
    for key, it in keywords.items():
        if key not in known:
            _refuse_argument(name, key, it)
    operands = [_converted(tensor, it) for it in inputs]
    if method == "outer":
        x, y = (it if isinstance(it, Tensor) else Tensor(it, device=tensor.device) for it in operands)
        operands = [x.reshape(*x.shape, *[1] * y.rank), y]
    return _named(name, function, operands, keywords)


def _named(name: str, function: Function, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Call a function, with errors that name the one of NumPy's that the user called."""
    try:
        return function(*positional, **named)
    except TallowError as error:
        error.rename(name)
        raise


def call_function(function: Function, kinds: Iterable[type], arguments: Sequence[Any], options: dict[str, Any]) -> Any:
    """Do what a function of NumPy's does that has tensors among its arguments."""
    if not all(issubclass(kind, Tensor | np.ndarray) for kind in kinds):
        return NotImplemented
    if function in _ON_HOST:
        return function(*map(_on_host, arguments), **{key: _on_host(it) for key, it in options.items()})
    name = f"{function.__module__}.{function.__name__}"
    own = _functions().get(function)
    if own is None:
        _refuse(name)
    tensor = next(_tensors((*arguments, *options.values())))
    positional, named = _bound(name, function, own, arguments, options)
    parameters = inspect.signature(own).parameters
    slots = [each for each in parameters.values() if each.kind is each.POSITIONAL_ONLY]
    slots += [each for each in parameters.values() if each.kind is each.VAR_POSITIONAL] * len(positional)
    values = [_argument(name, tensor, each, it) for each, it in zip(slots, positional, strict=False)]
    return _named(name, own, values, {key: _argument(name, tensor, parameters[key], it) for key, it in named.items()})


def _argument(name: str, tensor: Tensor, parameter: inspect.Parameter, value: Any) -> Any:
    """Return an argument as its parameter takes it; a list that stands for a tensor is refused."""
    annotation = str(parameter.annotation)
    value = _converted(tensor, value)
    is_list = isinstance(value, list | tuple)
    if annotation == "Sequence[Tensor]" and is_list:
        return [_operand(name, tensor, parameter.name, it) for it in value]
    if annotation in ("Operand", "Tensor | Scalar") and is_list:
        _refuse_operand(name, parameter.name, value)
    return _operand(name, tensor, parameter.name, value) if annotation == "Tensor" else value


def _operand(name: str, tensor: Tensor, argument: str, value: Any) -> Tensor:
    """Return a tensor as it is, and a number as one on the device of a tensor."""
    if isinstance(value, int | float | complex):
        return Tensor(value, device=tensor.device)
    return value if isinstance(value, Tensor) else _refuse_operand(name, argument, value)


def _bound(
    name: str, function: Function, own: Function, arguments: Sequence[Any], options: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call of NumPy's function as those of the own one; refused are those that it does not have."""
    theirs, ours = inspect.signature(function), inspect.signature(own).parameters
    by_place = sum(each.kind is each.POSITIONAL_ONLY for each in ours.values())
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for key, it in theirs.bind(*arguments, **options).arguments.items():
        parameter = theirs.parameters[key]
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += it
        elif len(positional) < by_place:
            positional.append(it)
        elif parameter.kind is not parameter.VAR_KEYWORD and not _is_default(it, parameter.default):
            if _RENAMED.get(key, key) not in ours:
                _refuse_argument(name, key, it)
            named[_RENAMED.get(key, key)] = it
    return positional, named


def _is_default(value: Any, default: Any) -> bool:
    if value is default or value is np._NoValue or (isinstance(value, tuple) and set(map(type, value)) == {type(None)}):
        return True
    return isinstance(value, str | int | float) and isinstance(default, str | int | float) and value == default


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Find the tensors in arguments and in lists of them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _converted(tensor: Tensor, value: Any) -> Any:
    """Copy arrays to the device of a tensor, in lists too, and make numbers of NumPy's Python's."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim):
        return value.item()
    if isinstance(value, np.ndarray):
        return Tensor.from_numpy(value, tensor.device)
    if isinstance(value, list | tuple) and any(isinstance(it, Tensor | np.ndarray) for it in value):
        return type(value)([_converted(tensor, it) for it in value])
    return value


def _on_host(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)([_on_host(it) for it in value])
    return value.numpy() if isinstance(value, Tensor) else value


def _refuse(name: str) -> NoReturn:
    """Refuse a function that tensors have no op for."""
    method = name.rpartition(".")[2]
    if method == "at":
        hint = "x.index_add(indexes, source, dim), or x.scatter_add_(indexes, source, dim)"
    elif name == method and hasattr(Tensor, method):
        # A ufunc of another package's, such as erf of SciPy's.
        hint = f"x.{method}()"
    else:
        word = OF_TENSORS.get(method, "")
        hint = as_call(word, getattr(Tensor, word.removeprefix("x."), None)) or f"{name}(x.numpy()), on the host"
    raise UnsupportedOperand(name, f"tensors have no op for it; use {_HINTS.get(name, hint)}")


def _refuse_operand(name: str, argument: str, value: object) -> NoReturn:
    reason = f"{argument} is a {type_name(value)}, and operands are tensors, arrays and numbers"
    raise UnsupportedOperand(name, f"{reason}; use Tensor(values, device=x.device)")


def _refuse_argument(name: str, argument: str, value: object) -> NoReturn:
    if argument == "out" and any(
        isinstance(it, np.ndarray) for it in (value if isinstance(value, tuple) else (value,))
    ):
        raise UnsupportedOperand(name, "elements of a Tensor do not go to an array unasked; use x.numpy()")
    hint = _HINTS_OF_ARGUMENTS.get(argument, f"leave it out, or call {name} with x.numpy()")
    raise UnsupportedOperand(name, f"with tensors there is no argument {argument}=; {hint}")


@cache
def _ufuncs() -> Mapping[np.ufunc, Function]:
    standard = extensions.array_namespace()
    names = [name for name in standard.__all__ if isinstance(getattr(np, name, None), np.ufunc)]
    functions: dict[np.ufunc, Function] = {getattr(np, name): getattr(standard, name) for name in names}
    for ours, (theirs, _) in EQUIVALENTS.items():
        owner, _, method = ours.rpartition(".")
        for name in theirs.split() if owner == "Tensor" else ():
            ufunc = getattr(np, name, None)
            if isinstance(ufunc, np.ufunc):
                functions.setdefault(ufunc, _by_method(method))
    functions.update(_OPERATORS)
    functions.update(_BEYOND)
    return functions


def _by_method(name: str) -> Function:
    """A method of tensors as a function, of which the first operand may be a number."""

    def function(x: Any, *others: Any) -> Any:
        first = x if isinstance(x, Tensor) else others[0]._operand(name, x)
        return getattr(first, name)(*others)

    return function


@cache
def _reductions(method: str) -> Mapping[np.ufunc, Function]:
    """Return the functions that reduce by a ufunc, or accumulate it."""
    of = extensions.array_namespace()
    if method == "accumulate":
        return {np.add: of.cumulative_sum, np.multiply: of.cumulative_prod}
    extremes: dict[np.ufunc, Function] = {
        np.maximum: of.max,
        np.minimum: of.min,
        np.logical_and: of.all,
        np.logical_or: of.any,
    }
    return {np.add: of.sum, np.multiply: of.prod, **extremes, np.logaddexp: Tensor.logsumexp}


@cache
def _functions() -> Mapping[Function, Function]:
    """By NumPy's functions, those of the standard that take tensors, and what the standard does not have."""
    functions: dict[Function, Function] = {}
    standard = extensions.array_namespace()
    for theirs, ours in ((np, standard), (np.linalg, standard.linalg), (np.fft, standard.fft)):
        for name in ours.__all__:
            function = getattr(ours, name)
            if inspect.isfunction(function) and _takes_tensors(function) and hasattr(theirs, name):
                functions[getattr(theirs, name)] = function
    # Functions with NumPy's own signatures replace those of the standard.
    of_numpy = [(np, own) for own in (numpy_functions, numpy_histograms, numpy_shapes)]
    for theirs, own in (*of_numpy, (np.linalg, numpy_linalg), (np.fft, numpy_fft)):
        functions |= {getattr(theirs, name): getattr(own, name) for name in own.__all__}
    return functions


def _takes_tensors(function: Function) -> bool:
    annotations = [str(each.annotation) for each in inspect.signature(function).parameters.values()]
    return bool(annotations) and "Tensor" in annotations[0] and "DType" not in annotations[0]
