"""Controls of the HIP runtime for the CPU: failures on demand, a log of calls, counts of live objects."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self


def library(name: str) -> ctypes.CDLL:
    """A library of the ROCm that hip-python finds."""
    return ctypes.CDLL(str(Path(os.environ.get("ROCM_PATH", "/opt/rocm")) / "lib" / f"lib{name}.so"))


class Host:
    """The functions that no other HIP runtime exports."""

    def __init__(self) -> None:
        self._runtime = library("amdhip64")
        self._runtime.hip_host_log_take.restype = ctypes.c_char_p
        self._runtime.hip_host_trace_take.restype = ctypes.c_char_p
        self._runtime.hip_host_live.restype = ctypes.c_long
        self._runtime.hip_host_live_all.restype = ctypes.c_char_p
        self._runtime.hip_host_fail.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int]

    @classmethod
    def found(cls) -> Self | None:
        """None where there is no HIP runtime, or another one."""
        try:
            return cls()
        except (OSError, AttributeError):
            return None

    def fail(self, function: str | None, nth: int = 1, error: int = 0) -> None:
        self._runtime.hip_host_fail(function.encode() if function else None, nth, error)

    def keep_log(self, on: bool) -> None:
        self._runtime.hip_host_log_keep(int(on))

    def take_log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._runtime.hip_host_log_take().decode().splitlines()]

    def calls_of(self, operation: Callable[[], object]) -> list[str]:
        """The functions that an operation calls, in order, by the names that `fail` takes."""
        self._runtime.hip_host_trace_keep(1)
        try:
            operation()
            return self._runtime.hip_host_trace_take().decode().split()
        finally:
            self._runtime.hip_host_trace_keep(0)

    def live_all(self) -> dict[str, int]:
        """How many objects of each kind are live."""
        return json.loads(self._runtime.hip_host_live_all())

    def live(self, kind: str) -> int:
        return int(self._runtime.hip_host_live(kind.encode()))
