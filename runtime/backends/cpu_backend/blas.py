"""NumPy's BLAS, which has threads of its own: as many as other calls on the CPU have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from ...doctor.finding import Finding
from ...helpers.threads import get_threads


def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController  # most programs need none of it

    return ThreadpoolController().select(user_api="blas")


_controller = cache(_libraries)


def threads() -> AbstractContextManager[Any]:
    """Products inside of it have the threads of `get_threads`; where these are 0 NumPy decides."""
    count = get_threads()
    return _controller().limit(limits=count) if count else nullcontext()


def diagnose() -> Iterator[Finding]:
    """Yield the libraries that are loaded, with their versions."""
    for library in _libraries().info():
        text = " ".join(filter(None, [library["internal_api"], library.get("version"), library.get("architecture")]))
        yield Finding("BLAS", True, text, files=(library["filepath"],))
