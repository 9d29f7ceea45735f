"""Where a user's code called the package, for errors that name the line."""

from __future__ import annotations

import itertools
import sys
from types import CodeType, FrameType
from typing import Final, Protocol, TypeAlias

CallSite: TypeAlias = tuple[CodeType, int]
"""A user's code and the instruction in it that calls the package. The line is looked up when an error shows it."""


class Hint(Protocol):
    """A caller into the package, nearly always through as many frames as the last time."""

    depth: int
    """How many frames further out the user's code was, counted from the function that asks; 1 before the first time.

    It is never 0: a frame that has itself in a variable stays, with all that it has, until garbage is collected.
    """


_PACKAGE = f"{__name__.partition('.')[0]}."
_MAX_CODES: Final = 1 << 12
# How seldom a guess is moved out if that would have been right.
_SELDOM: Final = 16
_found: Final = itertools.count(1)
frame_at: Final = sys._getframe
# By the id of a user's code, which the entry keeps alive: the instructions that are known to call the package.
_entries: Final[dict[int, tuple[CodeType, dict[int, CallSite]]]] = {}
# The entry of the code that called last. One item, so that another thread replaces code and sites together.
latest: Final[list[tuple[CodeType | None, dict[int, CallSite]]]] = [(None, {})]


def call_site(hint: Hint) -> CallSite:
    """Return the innermost call of the package by code outside of it.

    Walking the stack takes longer than recording a call. So the frame at the depth of `hint` is looked at first; it is
    the right one if its instruction is known to call the package.
    """
    try:
        frame = frame_at(hint.depth)
        code, sites = latest[0]
        return sites[frame.f_lasti] if frame.f_code is code else find(hint, frame, frame_at(0))
    except (KeyError, ValueError):
        return find(hint, frame_at(0), frame_at(0))


def find(hint: Hint, guess: FrameType, innermost: FrameType) -> CallSite:
    """Return the call site from a guess, if it is known already, or else from the innermost frame."""
    frame, steps = user_frame(guess)
    site = _known(frame)
    if site is None:
        frame, hint.depth = user_frame(innermost)
        site = _learn(frame.f_code, frame.f_lasti)
    elif hint.depth == 1 or not next(_found) % _SELDOM:
        # A guess that is not far enough out is corrected in a few steps, one that is too far out is not.
        hint.depth += steps
    return site


def user_frame(frame: FrameType) -> tuple[FrameType, int]:
    """The first frame from one on that is not of the package, or the last one; and how far out it is."""
    depth = 0
    while _is_of_package(frame) and frame.f_back is not None:
        frame = frame.f_back
        depth += 1
    return frame, depth


def _known(frame: FrameType) -> CallSite | None:
    entry = _entries.get(id(frame.f_code))
    if entry is None:
        return None
    latest[0] = entry
    return entry[1].get(frame.f_lasti)


def _learn(code: CodeType, instruction: int) -> CallSite:
    if len(_entries) >= _MAX_CODES:
        _entries.clear()
    latest[0] = entry = _entries.setdefault(id(code), (code, {}))
    return entry[1].setdefault(instruction, (code, instruction))


def _is_of_package(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(_PACKAGE)


def line_of(site: CallSite) -> str:
    """The file and the line of a call, as errors show them."""
    code, instruction = site
    lines = [line for begin, end, line in code.co_lines() if begin <= instruction < end]
    return f"{code.co_filename}:{lines[0] if lines and lines[0] is not None else code.co_firstlineno}"
