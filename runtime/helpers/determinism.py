"""Whether the same call gives the same bits on every run, which may cost time where many numbers are added up."""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import Final

from ..core import argument

_REQUIRED: Final = ContextVar("deterministic", default=True)


class Determinism:
    """The effect of a call of `deterministic`; leaving a `with` block undoes it."""

    def __init__(self, before: bool) -> None:
        self._before = before

    def __enter__(self) -> None:
        """Leave it as `deterministic` has set it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _REQUIRED.set(self._before)


def deterministic(required: bool = True) -> Determinism:
    """Say whether the same call must give the same bits on every run: from now on, or in a `with` block.

    It must by default. With `deterministic(False)`, scatter_add of floats on a GPU adds in any order, and so does cuDNN
    for gradients of attention, which is quicker; results then differ by rounding. A thread says it for itself, an
    asynchronous task too, and new threads begin with the default.

    >>> with tl.deterministic(False):
    ...     tl.is_deterministic()
    False
    >>> tl.is_deterministic()
    True
    """
    required = argument.boolean("deterministic", "required", required)
    before = _REQUIRED.get()
    _REQUIRED.set(required)
    return Determinism(before)


def is_deterministic() -> bool:
    """Return True if the same call must give the same bits on every run.

    >>> tl.is_deterministic()
    True
    """
    return _REQUIRED.get()
