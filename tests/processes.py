"""Processes that tests start, and what is left of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def wait_until(is_so: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until something is so, which another process brings about."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"it was not so within {seconds} seconds"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"
