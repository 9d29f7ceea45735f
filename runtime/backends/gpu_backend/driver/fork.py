"""A GPU belongs to the process that opened it: no runtime survives a fork, so forked children leave it alone."""

import os
from typing import Final

from ....base.error import BackendUnavailable
from . import slow_path

_REASON: Final = (
    "this process was forked from one that had opened a GPU, which children cannot use; start processes with"
    " multiprocessing.get_context('spawn')"
)

lost = False
"""Whether this process was forked from one that had opened a GPU. Nothing that was opened there is of use here."""

_opened = ""
"""The backend of the GPU that was opened last."""


def watch(backend: str) -> None:
    """Note that this process opens a GPU of a backend: from now on those that are forked from it have lost theirs."""
    global _opened
    if not _opened and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_lose)
    _opened = backend


def _lose() -> None:
    global lost
    lost = slow_path.required = True


def require_own() -> None:
    """BackendUnavailable in a process that has lost its GPU."""
    if lost:
        raise BackendUnavailable(_opened, _REASON)
