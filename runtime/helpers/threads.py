"""How many threads work on the CPU."""

from __future__ import annotations

import os
from typing import Final

from ..base.error import InvalidArgument
from ..core import argument

MAX_THREADS: Final = 256


def _from_environment() -> int:
    text = os.environ.get("TALLOW_THREADS", "")
    if not text:
        return min(
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, MAX_THREADS
        )
    if not text.isdecimal() or int(text) > MAX_THREADS:
        raise InvalidArgument("TALLOW_THREADS", f"it is a number from 0 to {MAX_THREADS}, not '{text}'")
    return int(text)


_threads: int | None = None


def get_threads() -> int:
    """Return the number of threads of the CPU; 0 where `TALLOW_THREADS=0` leaves everything to NumPy.

    >>> tl.get_threads() >= 0
    True
    """
    global _threads
    if _threads is None:
        _threads = _from_environment()
    return _threads


def set_threads(count: int) -> None:
    """Limit the threads of a call on the CPU to `count`; results are the same for every number.

    The default is the number of cores of the process, or the environment variable TALLOW_THREADS: 0 leaves everything
    to NumPy. Threads are started when they are first needed.

    >>> before = tl.get_threads()
    >>> tl.set_threads(1)
    >>> tl.get_threads()
    1
    >>> tl.set_threads(before)
    """
    global _threads
    number = argument.integer("set_threads", "count", count)
    if not 1 <= number <= MAX_THREADS:
        raise InvalidArgument("set_threads", f"count is a number from 1 to {MAX_THREADS}, not {number}")
    if get_threads() == 0:
        raise InvalidArgument("set_threads", "TALLOW_THREADS=0 leaves everything to NumPy; unset it")
    _threads = number
