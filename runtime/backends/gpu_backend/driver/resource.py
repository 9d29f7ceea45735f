"""What every owner of a vendor's handle shares: it gives the handle back exactly once, however it ends."""

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
    daemon threads are at work even then; the end of the process gives everything back behind the last of them.
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

    __slots__ = ("__weakref__", "_held")

    closed_error: ClassVar[type[Closed]] = Closed
    """What a use after `close()` raises."""

    def _own(self, release: Callable[..., None], *arguments: Any) -> None:
        """Arrange for one call `release(*arguments)`, which must not refer to this object: that would keep it alive."""
        # Whoever takes the entry out makes the call.
        self._held = [(release, arguments)]
        release_with(self, _release, self._held)

    @property
    def closed(self) -> bool:
        """Whether the handle was given back, or is of a process that this one was forked from."""
        return fork.lost or not self._held

    def close(self) -> None:
        """Give the handle back; nothing happens when it is closed already.

        Raises `DriverError` when the driver refuses. The handle is then still there, and the next call tries again.
        """
        _release(self._held)

    def require_open(self) -> None:
        """Raise `Closed` after `close()`, `BackendUnavailable` in a process that was forked from the handle's."""
        if self.closed:
            fork.require_own()
            raise self.closed_error(repr(self))


def _release(held: list[tuple[Callable[..., None], tuple[Any, ...]]]) -> None:
    if fork.lost:
        return
    # Two threads may close at the same time; taking out the entry is atomic where asking first would not be.
    try:
        entry = release, arguments = held.pop()
    except IndexError:
        return
    try:
        release(*arguments)
    except Exception:
        held.append(entry)
        raise
