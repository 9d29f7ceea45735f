"""NumPy's BLAS, which has threads of its own: as many as other calls on the CPU have."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

from ...helpers.threads import get_threads


@cache
def _controller() -> Any:
    return ThreadpoolController().select(user_api="blas")


def threads() -> AbstractContextManager[Any]:
    """Products inside of it have the threads of `get_threads`; where these are 0 NumPy decides."""
    count = get_threads()
    return _controller().limit(limits=count) if count else nullcontext()
