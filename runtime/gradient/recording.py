"""Whether this thread records, and where in a user's code a call was made."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Final, TypeAlias

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


class _State(threading.local):
    """What each thread has of its own."""

    records = True
    frees = False
    """Whether gradients are worked out that let go of what they needed."""
    keeps_graph = False
    """Whether gradients are recorded as they are worked out, so that they have gradients themselves."""


state = _State()


# An item for each block of a thread that does not record, and for each in which gradients are recorded. While there are
# none, nobody asks a thread's state, which takes time.
pauses: Final[list[None]] = []
kept_graphs: Final[list[None]] = []


@contextmanager
def no_grad() -> Iterator[None]:
    """Record nothing in a `with` block, or in a function that this decorates; other threads are not affected.

        with tl.no_grad():
            w -= 0.1 * grads[w]

    What is computed in it has no gradient, and takes no memory for one. Only there a `Var` is written to in place.
    """
    with _recording(False, state.keeps_graph):
        yield


@contextmanager
def graph_kept(keeps: bool) -> Iterator[None]:
    """Record the gradients that are worked out in a `with` block if `keeps`, and nothing otherwise."""
    with _recording(keeps, keeps):
        yield


@contextmanager
def _recording(records: bool, keeps_graph: bool) -> Iterator[None]:
    before = state.records, state.keeps_graph
    state.records, state.keeps_graph = records, keeps_graph
    pauses.extend([None] * (not records))
    kept_graphs.extend([None] * keeps_graph)
    try:
        yield
    finally:
        del pauses[: not records]
        del kept_graphs[:keeps_graph]
        state.records, state.keeps_graph = before


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
