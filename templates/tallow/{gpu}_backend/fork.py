"""A GPU belongs to the process that opened it: no runtime survives a fork, so forked children leave it alone."""

import os
from typing import Final

from ..error import BackendUnavailable
from .names import BACKEND

_REASON: Final = (
    "this process was forked from one that had opened a GPU, which children cannot use; start processes with"
    " multiprocessing.get_context('spawn')"
)

lost = False
"""Whether this process was forked from one that had opened a GPU. Nothing that was opened there is of use here."""

_is_watched = False


def watch() -> None:
    """Note that this process opens a GPU: from now on those that are forked from it have lost theirs."""
    global _is_watched
    if not _is_watched and hasattr(os, "register_at_fork"):
        _is_watched = True
        os.register_at_fork(after_in_child=_lose)


def _lose() -> None:
    global lost
    lost = True


def require_own() -> None:
    """BackendUnavailable in a process that has lost its GPU."""
    if lost:
        raise BackendUnavailable(BACKEND, _REASON)
