"""The processor of the machine at hand, and its cores."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def processor() -> str:
    """Its name as Linux gives it, elsewhere its architecture."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def cores() -> int:
    """How many of them this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
