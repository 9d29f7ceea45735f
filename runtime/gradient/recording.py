"""Whether calls are recorded."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar, cast

from ..base.error import InvalidArgument, describe
from ..helpers.stepwise import decorated

F = TypeVar("F")


class Mode:
    """Whether calls are recorded, and how gradients are worked out: of each thread, and of each task of asyncio."""

    __slots__ = ("frees", "is_inner", "keeps_graph", "outer", "records", "shares")

    def __init__(
        self,
        *,
        records: bool = True,
        frees: bool = False,
        keeps_graph: bool = False,
        is_inner: bool = False,
        shares: bool = False,
        outer: Mode | None = None,
    ) -> None:
        self.records = records
        self.frees = frees
        """Whether gradients are worked out that drop what they needed."""
        self.keeps_graph = keeps_graph
        """Whether gradients are recorded as they are worked out, so that they have gradients themselves."""
        self.is_inner = is_inner
        """Whether `value_and_grad` runs its function, whose variables are arguments of others."""
        self.shares = shares
        """Whether gradients of variables may share memory."""
        self.outer = outer
        """That of the code around a block."""

    def inside(self, *, records: bool, is_inner: bool) -> Mode:
        """That of a block in code that has this one."""
        return Mode(records=records, frees=self.frees, keeps_graph=self.keeps_graph, is_inner=is_inner, outer=self)


_RECORDING: Final = Mode()
_mode: Final = ContextVar("tallow_mode", default=_RECORDING)
# To look at it takes as long as to look at a global variable twice.
mode: Final = _mode.get
set_mode: Final = _mode.set


@contextmanager
def recorded() -> Iterator[None]:
    """Record in a block, whose variables stand for tensors of the code around."""
    around = mode()
    try:
        set_mode(around.inside(records=True, is_inner=True))
        yield
    finally:
        set_mode(around)


def _unrecorded() -> Generator[None]:
    """Record nothing between the first step and the second one."""
    before = after = mode()
    own = before.inside(records=False, is_inner=before.is_inner)
    try:
        set_mode(own)
        yield
        # Blocks of generators may end in another order than they began in: each takes one from this context.
        after = mode().outer or before
    except GeneratorExit:
        # An interrupt came before the end of the block, and the generator has no owner any more.
        if mode() is not own:
            after = mode()
    finally:
        set_mode(after)


class NoGrad:
    """The context manager of `no_grad`. It is reentrant, also from several threads."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: list[Generator[None]] = []

    def __enter__(self) -> None:
        block = _unrecorded()
        self._blocks.append(block)
        try:
            next(block)
        except BaseException:
            # An interrupt may come after any call.
            block.close()
            raise

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        next(self._blocks.pop(), None)

    def __call__(self, function: F) -> F:
        """Decorate a function, or a property; a generator or a coroutine records nothing in each of its steps."""
        return cast("F", self._decorated(function))

    def _decorated(self, function: Any) -> Any:
        if isinstance(function, classmethod | staticmethod):
            return type(function)(self._decorated(function.__func__))
        if isinstance(function, property):
            read, write, delete = [
                each and self._decorated(each) for each in (function.fget, function.fset, function.fdel)
            ]
            return property(read, write, delete, function.__doc__)
        if not callable(function) or isinstance(function, type):
            reason = f"function must be a function, not {describe(function)}; decorate each method of a class"
            raise InvalidArgument("no_grad", reason)
        return decorated(function, NoGrad)


def no_grad() -> NoGrad:
    """Record nothing in a `with` block, or in a function that this decorates; other threads are not affected.

        with tl.no_grad():
            w -= 0.1 * grads[w]

    What is computed in it has no gradient, and takes no memory for one. Only there a `Var` is written to in place.
    Neither are other tasks of asyncio affected, nor what takes the values of a generator that this decorates.

    >>> w = tl.Var(tl.ones(2))
    >>> with tl.no_grad():
    ...     y = w * 2
    >>> y.is_recorded
    False
    """
    return NoGrad()
