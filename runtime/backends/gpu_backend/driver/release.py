"""What garbage collection gives back, where nobody handles errors."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from . import capture, fork, slow_path


def release_with(owner: object, release: Callable[..., None], *arguments: Any) -> None:
    """Arrange for one call `release(*arguments)` when `owner` is collected.

    The arguments must not refer to the owner: that would keep it alive. The end of the interpreter calls nothing, since
    daemon threads are at work even then; the end of the process gives everything back behind the last of them.
    """
    weakref.finalize(owner, _quietly, release, arguments).atexit = False


def _quietly(release: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    # A forked child holds copies of its parent's handles; releasing those would pull them from under the parent.
    if slow_path.required and (fork.lost or capture.postpone(release, arguments)):
        return
    with suppress(Exception):
        release(*arguments)
