"""The simplest op, for tests of what stands below the ops."""

from __future__ import annotations

from typing import Any

from tallow.dtype import DType
from tallow.kernels.arguments import FILL_CONTIGUOUS


def fill(device: Any, kernels: Any = None) -> list[float]:
    """What an op does: memory, a kernel and a copy to the host. Five nines."""
    storage = device.empty(DType.U32, 5)
    arguments = FILL_CONTIGUOUS.pack(storage.memory.address, 5, 9)
    (kernels or device.kernels).launch("fill", "fill_b32_contiguous", 1, arguments)
    return storage.to_numpy().tolist()
