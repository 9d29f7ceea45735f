"""Calls whose arguments fit each other: the examples of the spec, and those of docstrings."""

from __future__ import annotations

import ast
import doctest
import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tallow
from tallow.examples import METHODS
from tallow.runtime.base.example import Operand
from tallow.runtime.selftest import examples, trial

if TYPE_CHECKING:
    from tallow.runtime.doctor.support import SupportCell

# What makes a value on a device.
Maker = Callable[[tallow.Device], Any]
# The classes whose methods are those of the spec.
OWNERS = ("Storage", "QStorage", "Device")
_NO_TENSOR = Operand(None, "")


class Base(NamedTuple):
    """What a call is made on, and its arguments by name: each a text to show, and what makes it."""

    of: tuple[str, Maker]
    arguments: Mapping[str, tuple[str, Maker]]


@cache
def example_cell(method: str) -> SupportCell:
    """A cell of a method, of f32 where that is supported."""
    cells = [cell for cell in tallow.support() if cell.method == method and cell.status == "supported"]
    return min(cells, key=lambda cell: str(cell.dtype) != "f32")


def make_on(device: tallow.Device) -> examples.Make:
    """Create the storages of examples."""

    def make(name: str, length: int, numbers: examples.Numbers = examples.ANY) -> tallow.Storage:
        return device.storage(trial.array(np.random.default_rng(0), name, length, numbers))

    return make


def of_spec(owner: str, method: str, number: int = examples.SMALLEST) -> Base | None:
    """An example of the spec for a storage method or a device method."""
    if owner not in OWNERS or method not in METHODS:
        return None
    cell = example_cell(method)
    call = examples.Call(cell, number)

    def argument(name: str) -> tuple[str, Maker]:
        return f"{name} of {method}", lambda device: call.argument(name, make_on(device))

    def own(device: tallow.Device) -> Any:
        if owner == "Device":
            return device
        if owner == "QStorage":
            return device.quantized_zeros(examples.block_count(cell, number), cell.dtype)
        return call.storage("self", make_on(device))

    return Base((f"self of {method}", own), {name: argument(name) for name in call.method.parameters})


def of_tensors(method: str, parameters: Mapping[str, inspect.Parameter]) -> Base | None:
    """The same with tensors, for the tensor method with the name of a storage method."""
    if method not in METHODS or METHODS[method].operands.get("self", _NO_TENSOR).layout is None:
        return None
    cell = example_cell(method)
    call = examples.Call(cell)

    def tensor(name: str) -> Maker:
        layout = call.layouts[call.method.operands[name].layout]
        return lambda device: tallow.Tensor.from_storage(call.storage(name, make_on(device)), layout)

    written = {**call.written, **call.written.get("params", {})}
    arguments: dict[str, tuple[str, Maker]] = {}
    for name in parameters:
        if name in call.method.operands and written[name] is not None:
            arguments[name] = f"{name} of {method}", tensor(name)
        elif written.get(name) is not None and name not in call.method.operands:
            arguments[name] = repr(written[name]), lambda _, value=written[name]: value
        elif isinstance(parameters[name].default, str | float):
            arguments[name] = repr(parameters[name].default), lambda _, value=parameters[name].default: value
    is_whole = _required(parameters) <= arguments.keys()
    return Base((f"self of {method}", tensor("self")), arguments) if is_whole else None


def of_docs(function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]) -> Base | None:
    """The first call of a function in the session of its docstring, on a device."""
    setup = ""
    for example in doctest.DocTestParser().get_examples(inspect.getdoc(function) or ""):
        for node in ast.walk(ast.parse(example.source)):
            match node:
                case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name == function.__name__:
                    inputs = dict(zip(parameters, node.args, strict=False))
                    inputs |= {part.arg: part.value for part in node.keywords if part.arg is not None}
                    named = {name: part for name, part in inputs.items() if "VAR" not in parameters[name].kind.name}
                    if _required(parameters) <= named.keys():
                        arguments = {name: _evaluated(part, setup) for name, part in named.items()}
                        return Base(_evaluated(owner, setup), arguments)
        setup += example.source
    return None


def _required(parameters: Mapping[str, inspect.Parameter]) -> set[str]:
    return {name for name, each in parameters.items() if each.default is each.empty and "VAR" not in each.kind.name}


def _evaluated(expression: ast.expr, setup: str) -> tuple[str, Maker]:
    """An expression after the statements before it, with its tensors on a device."""
    text = ast.unparse(expression)

    def make(device: tallow.Device) -> Any:
        names: dict[str, Any] = {"tl": tallow, "np": np}
        exec(setup, names)
        return _moved(eval(text, names), device)

    return text, make


def _moved(value: Any, device: tallow.Device) -> Any:
    if isinstance(value, tallow.Tensor):
        return value.to_device(device)
    return type(value)(_moved(part, device) for part in value) if type(value) in (list, tuple) else value
