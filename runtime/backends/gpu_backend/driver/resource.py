"""The base of all owners of a vendor's handle: it is released exactly once, however the owner ends."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

from ....helpers.closing import Closing
from . import capture, fork, slow_path
from .error import Closed


def release_with(owner: object, release: Callable[..., None], *arguments: Any) -> None:
    """Arrange for one call `release(*arguments)` when `owner` is collected.

    The arguments must not refer to the owner: that would keep it alive. The end of the interpreter calls nothing, since
    daemon threads are at work even then; the end of the process releases everything after the last of them.
    """
    weakref.finalize(owner, _quietly, release, arguments).atexit = False


def _quietly(release: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    # A forked child holds copies of its parent's handles; releasing those would pull them from under the parent.
    if slow_path.required and (fork.lost or capture.postpone(release, arguments)):
        return
    with suppress(Exception):
        release(*arguments)


class Resource(Closing):
    """An owner of something that a vendor's driver or library handed out.

    `close()` gives it back and may be called again; so do leaving a `with` block and garbage collection. What is still
    open at the end ends with the process. `repr()` of a resource is how errors name it.
    """

    __slots__ = ("__weakref__", "_handles")

    closed_error: ClassVar[type[Closed]] = Closed
    """The error of a use after `close()`."""

    def _own(self, release: Callable[..., None], *arguments: Any) -> None:
        """Arrange for one call `release(*arguments)`, which must not refer to this object: that would keep it alive."""
        # Whoever takes the entry out makes the call.
        self._handles = [(release, arguments)]
        release_with(self, _release, self._handles)

    @property
    def closed(self) -> bool:
        """Whether the handle was released, or is of a process that this one was forked from."""
        return fork.lost or not self._handles

    def close(self) -> None:
        """Give the handle back; nothing happens when it is closed already.

        Raises `DriverError` when the driver refuses. The handle is then still there, and the next call tries again.
        """
        _release(self._handles)

    def require_open(self) -> None:
        """Raise `Closed` after `close()`, `BackendUnavailable` in a process that was forked from the handle's."""
        if self.closed:
            fork.require_own()
            raise self.closed_error(repr(self))


def _release(handles: list[tuple[Callable[..., None], tuple[Any, ...]]]) -> None:
    if fork.lost:
        return
    # Two threads may close at the same time; taking out the entry is atomic where asking first would not be.
    try:
        entry = release, arguments = handles.pop()
    except IndexError:
        return
    try:
        release(*arguments)
    except Exception:
        handles.append(entry)
        raise
