"""Whether calls are recorded, and where in a user's code a call was made."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextvars import ContextVar
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias, TypeVar, cast

from ..base.error import InvalidArgument, shown
from ..helpers.stepwise import decorated

F = TypeVar("F")

# What is behind the last frame of the package: the code of a user and the instruction in it.
Place: TypeAlias = tuple[CodeType, int]

_PACKAGE = f"{__name__.partition('.')[0]}."
# The files of the package, and those of others who called it.
_own_files: Final[set[str]] = set()
users_files: Final[set[str]] = set()
# The code of a user that recorded last; to ask for the file of code takes time.
latest_code: Final[list[CodeType | None]] = [None]
_MOST_FILES: Final = 1 << 12
frame_at: Final = sys._getframe


class Mode:
    """Whether calls are recorded, and how gradients are worked out: of each thread, and of each task of asyncio."""

    __slots__ = ("frees", "is_inner", "keeps_graph", "outer", "records")

    def __init__(
        self,
        *,
        records: bool = True,
        frees: bool = False,
        keeps_graph: bool = False,
        is_inner: bool = False,
        outer: Mode | None = None,
    ) -> None:
        self.records = records
        self.frees = frees
        """Whether gradients are worked out that let go of what they needed."""
        self.keeps_graph = keeps_graph
        """Whether gradients are recorded as they are worked out, so that they have gradients themselves."""
        self.is_inner = is_inner
        """Whether `value_and_grad` runs its function, whose variables are arguments of others."""
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
        # An interrupt came before the end of the block, and nobody has the generator any more.
        if mode() is not own:
            after = mode()
    finally:
        set_mode(after)


class NoGrad:
    """What `no_grad` returns: a context manager that is entered again, also inside itself and by several threads."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: list[Generator[None]] = []

    def __enter__(self) -> None:
        block = _unrecorded()
        self._blocks.append(block)
        try:
            next(block)
        except BaseException:
            # An interrupt may come behind any call.
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
            reason = f"function must be a function, not {shown(function)}; decorate each method of a class"
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


def place(calls: int) -> Place:
    """Where a user's code calls the package, of which the line is found where somebody asks for it.

    `calls` are at least made in between, that of this function and of a tensor's method among them: to look at one
    takes as long as the rest.
    """
    try:
        frame = frame_at(calls)
    except ValueError:  # a method of a storage was called
        frame = frame_at(1)
    frame = outside(frame)
    return frame.f_code, frame.f_lasti


def outside(frame: FrameType) -> FrameType:
    """The first frame from one on that is a user's; the last frame where none is."""
    while (name := frame.f_code.co_filename) not in users_files:
        if name not in _own_files and not _is_own(frame):
            users_files.add(name)
        elif frame.f_back is None:
            break
        else:
            frame = frame.f_back
    return frame


def _is_own(frame: FrameType) -> bool:
    """Whether a frame is one of the package, whose file is looked at for the first time."""
    if len(users_files) >= _MOST_FILES:
        users_files.clear()
    is_own = str(frame.f_globals.get("__name__")).startswith(_PACKAGE)
    if is_own:
        _own_files.add(frame.f_code.co_filename)
    return is_own


def line_of(where: Place) -> str:
    """The file and the line of a place, as errors show them."""
    code, instruction = where
    lines = [line for begin, end, line in code.co_lines() if begin <= instruction < end]
    return f"{code.co_filename}:{lines[0] if lines and lines[0] is not None else code.co_firstlineno}"
