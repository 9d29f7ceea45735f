"""What a process gives back when nobody handles errors any more: in garbage collection, and at its end."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any


def release_with(owner: object, release: Callable[..., None], *arguments: Any) -> weakref.finalize[..., Any]:
    """Arrange for one call `release(*arguments)` when `owner` is collected, or at the end of the interpreter.

    The arguments must not refer to the owner: that would keep it alive.
    """
    return weakref.finalize(owner, _quietly, os.getpid(), release, arguments)


def _quietly(process: int, release: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    # A forked child holds copies of its parent's handles; releasing those would pull them from under the parent.
    if process == os.getpid():
        with suppress(Exception):
            release(*arguments)
