"""Kernels that most programs come to need, compiled beside the first one on cores that are idle."""

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..dtype import DType

# Cores that are left to the program, and the most threads that compile for it.
_LEFT: Final = 2
_MOST_THREADS: Final = 16
# Where Linux says how much of its time a container may compute, and in which period; "max" for all of it.
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")

_ARITHMETIC: Final = ("add", "mul", "sub", "div")
# Family, pattern and ops, in the order in which programs mostly come to need them.
USUAL: Final = (
    ("binary", "{op}_{dtype}_contiguous", _ARITHMETIC),
    ("unary", "{op}_{dtype}_contiguous", ("exp", "relu", "gelu", "tanh", "sqrt", "rsqrt", "sqr", "silu")),
    ("reduce", "{op}_{dtype}_rows", ("sum", "max", "mean")),
    ("binary", "{op}_{dtype}_strided", _ARITHMETIC),
    ("binary", "{op}_{dtype}_number_contiguous", _ARITHMETIC),
    ("copy", "copy_b{bits}_{op}", ("strided", "turned")),
)


def usual_kernels(dtype: DType) -> list[tuple[str, str]]:
    """Family and name of the kernels that programs on elements of a dtype mostly need."""
    return [
        (family, pattern.format(op=op, dtype=dtype.value, bits=8 * dtype.itemsize))
        for family, pattern, ops in USUAL
        for op in ops
    ]


class CompiledAhead:
    """Threads that compile the usual kernels of a dtype into the cache, once its first kernel was not found there.

    The cache keeps what they compile, so a machine does this once. They end with the program.
    """

    def __init__(self, compile_kernel: Callable[[str, str], object]) -> None:
        self._compile = compile_kernel
        self._begun: set[DType] = set()

    def begin(self, name: str) -> None:
        """Compile what belongs to the dtype of kernel `name`, if it has one that is a float's, and return at once."""
        dtype = next((dtype for dtype in DType if dtype.is_float and dtype.value in name.split("_")), None)
        if dtype is None or dtype in self._begun:
            return
        self._begun.add(dtype)
        waiting = deque(usual_kernels(dtype))
        for _ in range(min(_idle_cores() - _LEFT, _MOST_THREADS)):
            threading.Thread(target=self._work, args=(waiting,), name=f"tallow compiles {dtype.value}").start()

    def _work(self, waiting: deque[tuple[str, str]]) -> None:
        # A thread that is in a compiler cannot be stopped, and Python waits for it: it takes nothing new at the end.
        while threading.main_thread().is_alive():
            try:
                kernel = waiting.popleft()
            except IndexError:
                return
            # What fails here fails again, and is told, where somebody needs it.
            with suppress(Exception):
                self._compile(*kernel)


def _idle_cores() -> int:
    """How many cores this process may use beside what the machine does already."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = map(int, _QUOTA.read_text().split())
        count = min(count, quota // period)
    with suppress(OSError, AttributeError):  # Windows has no such average
        count -= round(os.getloadavg()[0])
    return count
