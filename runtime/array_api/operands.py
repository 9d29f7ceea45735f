"""The tensors that functions of the namespace require, and the errors for arguments of other types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, wraps
from types import FunctionType
from typing import Any

from ..tensor.base import require_tensors


def require_operands(names: Iterable[str], namespace: dict[str, Any]) -> None:
    """Have functions raise InvalidArgument where a parameter that is annotated as a Tensor is of another type."""
    namespace.update({name: _checked(it) for name in names if isinstance(it := namespace[name], FunctionType)})


# A function may be in several namespaces.
@cache
def _checked(function: FunctionType) -> Callable[..., Any]:
    annotations = function.__annotations__.items()
    tensors = {name for name, annotation in annotations if annotation == "Tensor"} - {"return"}
    if not tensors:
        return function

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        # Types are looked at only after a failure, so that calls take no longer.
        try:
            return function(*arguments, **options)
        except (AttributeError, TypeError):
            # Where there are too many arguments or too few, Python has said so.
            with suppress(TypeError):
                bound = inspect.signature(function).bind(*arguments, **options).arguments
                require_tensors(function.__name__, **{name: bound[name] for name in bound if name in tensors})
            raise

    return call
