"""Whether this thread records, and where in a user's code a call was made."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import TypeAlias

# What is behind the last frame of the package: the code of a user and the instruction in it.
Place: TypeAlias = tuple[CodeType, int]

_PACKAGE = f"{__name__.partition('.')[0]}."
# By the ids of the names that modules define, whether they are of the package.
_is_inside: dict[int, bool] = {}


class _State(threading.local):
    """What each thread has of its own."""

    records = True
    frees = False
    """Whether gradients are worked out that let go of what they needed."""
    keeps_graph = False
    """Whether gradients are recorded as they are worked out, so that they have gradients themselves."""


state = _State()


class Exceptions:
    """How many threads do not do the usual. While there are none, nobody asks a thread's state, which takes time."""

    pauses = 0
    """How many do not record."""
    kept_graphs = 0
    """How many record gradients."""
    lock = threading.Lock()


def _count(pauses: int, kept_graphs: int) -> None:
    with Exceptions.lock:
        Exceptions.pauses += pauses
        Exceptions.kept_graphs += kept_graphs


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
    _count(not records, keeps_graph)
    try:
        yield
    finally:
        _count(-(not records), -keeps_graph)
        state.records, state.keeps_graph = before


def _look_inside(frame: FrameType) -> bool:
    """Whether a frame is one of the package."""
    name = frame.f_globals.get("__name__", "")
    _is_inside[id(frame.f_globals)] = found = isinstance(name, str) and name.startswith(_PACKAGE)
    return found


def place(calls: int) -> Place:
    """Where a user's code calls the package, of which the line is found where somebody asks for it.

    `calls` are at least made in between, that of this function and of a tensor's method among them: to look at one
    takes as long as the rest.
    """
    try:
        frame = sys._getframe(calls)
    except ValueError:  # a method of a storage was called
        frame = sys._getframe(1)
    while (found := _is_inside.get(id(frame.f_globals))) or (found is None and _look_inside(frame)):
        if frame.f_back is None:
            break
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def line_of(where: Place) -> str:
    """The file and the line of a place, as errors show them."""
    code, instruction = where
    lines = [line for begin, end, line in code.co_lines() if begin <= instruction < end]
    return f"{code.co_filename}:{lines[0] if lines and lines[0] is not None else code.co_firstlineno}"
