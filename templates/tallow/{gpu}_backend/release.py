"""What a process gives back when nobody handles errors any more: in garbage collection, and at its end."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final, Protocol

_PACKAGE: Final = __name__.rpartition(".")[0]
_PATIENCE_SECONDS: Final = 1.0
_GLANCE_SECONDS: Final = 0.001


class Stoppable(Protocol):
    """The part of a driver that the end of the interpreter needs."""

    def stop(self) -> None:
        """Raise Closed from now on for whatever would be enqueued."""

    def synchronize_device(self) -> None:
        """Wait until the device is done with everything that anybody gave it."""


def release_with(owner: object, release: Callable[..., None], *arguments: Any) -> weakref.finalize[..., Any]:
    """Arrange for one call `release(*arguments)` when `owner` is collected, or at the end of the interpreter.

    The arguments must not refer to the owner: that would keep it alive.
    """
    return weakref.finalize(owner, _quietly, os.getpid(), release, arguments)


def stop_at_exit(driver: Stoppable) -> None:
    """Arrange that the end of the interpreter stops a driver before it calls any `release` of `release_with`.

    Daemon threads are at work even then, and would use what is given back. There must be a `release` already: weakref
    enters its own part of the end with the first one, and what is entered later comes earlier.
    """
    atexit.register(_quietly, os.getpid(), _stop, (weakref.ref(driver),))


def _quietly(process: int, release: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    # A forked child holds copies of its parent's handles; releasing those would pull them from under the parent.
    if process == os.getpid():
        with suppress(Exception):
            release(*arguments)


def _stop(reference: weakref.ref[Stoppable]) -> None:
    driver = reference()
    if driver is not None:
        driver.stop()
        _let_threads_leave()
        driver.synchronize_device()


def _let_threads_leave() -> None:
    """Wait until each other thread was seen outside of the backend once, or for a second.

    One that found the driver open may be on its way into it, where nothing holds it back: a lock, or a count of those
    inside, would cost every launch. Its place tells as much.
    """
    inside = set(sys._current_frames()) - {threading.get_ident()}
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        frames = sys._current_frames()
        inside = {thread for thread in inside if _is_inside(frames.get(thread))}
        if not inside:
            break
        time.sleep(_GLANCE_SECONDS)


def _is_inside(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
            return True
        frame = frame.f_back
    return False
