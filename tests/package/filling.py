"""The simplest op, and code that is none, for tests of what stands below the ops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tallow.dtype import DType
from tallow.kernels.arguments import fill_contiguous
from tallow.runtime.kernels import code_cache


def fill(device: Any, kernels: Any = None) -> list[float]:
    """The steps of an op: memory, a kernel and a copy to the host. Five nines."""
    storage = device.empty(DType.U32, 5)
    arguments = fill_contiguous(result=storage.memory.address, count=5, value=(9, 0)).packed()
    (kernels or device.kernels).launch("fill", "fill_b32_contiguous", 1, arguments)
    return storage.to_numpy().tolist()


def plant(cache: Path, code: bytes) -> None:
    """Put code into the only entry of a cache, with the checksum that it has."""
    (entry,) = cache.glob("*/*.co")
    start = len(code_cache._MARK)
    key = entry.read_bytes()[start : start + 32]
    entry.write_bytes(code_cache._head(key, code) + code)
