"""The base of ops that users write, and the checks before and after they run."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

from ..base.error import GradientError, InvalidArgument, type_name
from ..core.layout import Layout
from ..core.protocols import Sized
from ..core.shape import Shape

S = TypeVar("S", bound=Sized)


class _NameOfClass:
    """Not a property, so that a class, or an object, may set another name."""

    def __get__(self, op: object, owner: type) -> str:
        return owner.__name__


class UserOp:
    """An op that a user writes; the classes to derive from are in `tallow.custom_op`."""

    name: str = _NameOfClass()  # type: ignore[assignment]
    """The name that errors state: that of the class, unless the class or the object sets another."""
    # The method of storages and tensors that takes ops of the class.
    _applied_by: ClassVar[str]

    def bwd(self, *arguments: Any) -> Any:
        """Give the gradients of the operands of an op; it has none where this is not written.

        Its arguments are the operands, the result and the gradient of the result, as tensors: bwd(x, result, g) of a
        CustomOp1. For an op that writes in place, x is the overwritten value, and the result the new one. It returns
        a gradient in the shape of its operand, or None for zeros; for several operands a tuple of as many.
        """
        raise self._without_gradient(len(arguments) - 2)

    def require_bwd(self, count: int) -> None:
        """Raise GradientError if the op has no gradients of `count` operands."""
        if getattr(self.bwd, "__func__", None) is UserOp.bwd:
            raise self._without_gradient(count)

    def _without_gradient(self, count: int) -> GradientError:
        operands = [f"x{index}" for index in range(1, count + 1)]
        parameters = ", ".join(["self", *operands, "result", "g"])
        reason = f"class {type(self).__name__} gives no gradient; define bwd({parameters}) in it"
        return GradientError(self.name, reason)


def require_op(op: object, kind: type[UserOp], backend: str) -> None:
    """Raise `InvalidArgument` unless `op` is of a class that derives from `kind` and runs on the backend."""
    if not isinstance(op, kind):
        reason = f"the op is an object of a class that derives from {kind.__name__}, {_instead(op)}"
        raise InvalidArgument(kind._applied_by, reason)
    # Of `kind`, or of another class of its module that the op derives from.
    method = f"{backend}_fwd"
    if getattr(op, method).__module__ == getattr(kind, method).__module__:
        raise unwritten(op, kind, backend)


def require_made(op: UserOp, backend: str, storage_class: type[S], result: object) -> tuple[S, Shape]:
    """Return the storage and the shape that an op computed; `InvalidArgument` if it returned anything else.

    `InvalidLayout` if the shape has more elements than the storage.
    """
    if isinstance(result, tuple) and len(result) == 2:
        storage, sizes = result
        if isinstance(storage, storage_class) and isinstance(sizes, Iterable):
            try:
                shape = Shape(sizes)
            except InvalidArgument as error:
                raise InvalidArgument(op.name, f"{_returned(op, backend)} a wrong shape: {error.reason}") from None
            # Here alone a shape comes from a user and not from an op: nothing else has compared it with the storage.
            Layout.contiguous(shape).check(op.name, storage.length)
            return storage, shape
    expected = f"({storage_class.__name__}, Shape), such as (storage.device.storage(array), Shape(array.shape))"
    raise InvalidArgument(op.name, f"{_returned(op, backend)} {_described(result)}; return {expected}")


def require_nothing(op: UserOp, backend: str, result: object) -> None:
    """Raise `InvalidArgument` if an op that changes its first storage returned anything."""
    if result is not None:
        reason = "change the first storage in place and return None, or derive from a CustomOp"
        raise InvalidArgument(op.name, f"{_returned(op, backend)} {_described(result)}; {reason}")


def unwritten(op: UserOp, kind: type[UserOp], backend: str) -> InvalidArgument:
    """The error that the class of an op lacks the method of a backend."""
    parameters = ", ".join(inspect.signature(getattr(kind, f"{backend}_fwd")).parameters)
    reason = f"class {type(op).__name__} does not run on {backend}; define {backend}_fwd({parameters}) in it"
    return InvalidArgument(op.name, reason)


def _instead(op: object) -> str:
    if isinstance(op, type):
        return f"not a class; make an object of it, {op.__name__}()"
    if isinstance(op, UserOp):
        base = next(base for base in type(op).__mro__ if "_applied_by" in vars(base))
        return f"not from {base.__name__} as {type(op).__name__} does; call {op._applied_by} with it"
    return f"not a {type_name(op)}; derive one"


def _returned(op: UserOp, backend: str) -> str:
    return f"{backend}_fwd of {type(op).__name__} returned"


def _described(result: object) -> str:
    if isinstance(result, tuple):
        return f"({', '.join(map(type_name, result))})"
    return "None" if result is None else type_name(result)
