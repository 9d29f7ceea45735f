"""The results that the spec declares, compared with those of storage methods."""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import own_spec
import tallow
from tallow import results
from tallow.runtime.core.tensor_type import TensorType

if TYPE_CHECKING:
    import pytest
    from opgen.model.methods import Method

# What the last calls gave, each with its declared shape: tests read a result before they call much else.
_recent: deque[tuple[Any, tuple[int, ...]]] = deque(maxlen=16)


def check_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the dtype and the number of elements of each result from now on, where the spec can be read."""
    # A GPU's machine may lack PyYAML.
    if importlib.util.find_spec("yaml") is None:
        return
    for owner, name, checked in _checked_methods():
        monkeypatch.setattr(owner, name, checked)


def shape_of(storage: tallow.Storage) -> tuple[int, ...] | None:
    """The shape that the last checked call which gave a storage declares; None of any other storage."""
    return next((shape for result, shape in reversed(_recent) if result is storage), None)


def types_of(method: Method, arguments: dict[str, Any]) -> list[TensorType]:
    """Return the declared result of a method for arguments by name, `self` among them."""
    inputs = dict(arguments)
    for operand in method.operands:
        storage, layout = arguments[operand.name], arguments.get(operand.layout or "")
        if operand.layout is not None and storage is not None and not operand.is_of_blocks:
            inputs[operand.name] = (
                [TensorType(each.dtype, its.shape) for each, its in zip(storage, layout, strict=True)]
                if method.is_several(operand)
                else TensorType(storage.dtype, layout.shape)
            )
    function = getattr(results, method.name)
    own = "first" if "x" in method.signature.arguments else "x"
    names = ["self" if name == own else name for name in inspect.signature(function).parameters]
    actual = function(*[inputs[name] for name in names])
    return [actual] if isinstance(actual, TensorType) else [each for each in actual if each is not None]


@functools.cache
def _checked_methods() -> list[tuple[type, str, Callable[..., Any]]]:
    """The methods that give storages, each with its class and its name."""
    methods = [method for method in own_spec.read().storage_methods() if hasattr(results, method.name)]
    owners = [tallow.QStorage if method.holds_blocks else tallow.Storage for method in methods]
    return [
        (owner, method.name, _checked(method, getattr(owner, method.name)))
        for owner, method in zip(owners, methods, strict=True)
    ]


def _checked(method: Method, function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*given: Any, **named: Any) -> Any:
        result = function(*given, **named)
        declared = types_of(method, dict(signature.bind(*given, **named).arguments))
        _compare(method.name, (result,) if isinstance(result, tallow.Storage) else result, declared)
        return result

    return checked


def _compare(name: str, result: Iterable[tallow.Storage], declared: list[TensorType]) -> None:
    actual = [(storage.dtype, storage.length) for storage in result]
    assert actual == [(each.dtype, each.elem_count) for each in declared], (
        f"{name} gives {actual}, declared is {declared}"
    )
    _recent.extend(zip(result, [each.shape for each in declared], strict=True))
