"""Processes that tests start, and what is left of them."""

from __future__ import annotations

from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"
