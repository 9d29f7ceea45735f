"""Memory that every step of a model uses again."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...device import Device
from ...dtype import DType
from ..base.error import InvalidArgument
from ..core import argument
from ..core.argument import DTypeLike
from ..tensor import Tensor
from ..tensor.base import device_of

_OPERATION = "ScratchBufferManager.get"


class ScratchBufferManager:
    """Tensors by name, whose memory is the same from call to call: steps copy to them instead of allocating.

    A graph that was captured reads where they are, so that writing to them is how a replay gets what is new.

    >>> from tallow import models
    >>> scratch = models.ScratchBufferManager("cpu")
    >>> scratch.get("hidden", (2, 8)).shape, scratch.size_in_bytes
    ((2, 8), 64)
    """

    def __init__(self, device: Device | str | None = None) -> None:
        self.device = device_of(device)
        self._buffers: dict[tuple[str, DType], Tensor] = {}

    def get(self, name: str, shape: Sequence[int], dtype: DTypeLike = DType.F32) -> Tensor:
        """The tensor of a name and a dtype, in any shape: its elements are what was left there.

        Memory is allocated the first time, and again, filled with zeros, if more elements are requested than before.
        Raises InvalidArgument, OutOfMemory.
        """
        key = argument.text(_OPERATION, "name", name), argument.dtype(_OPERATION, "dtype", dtype)
        sizes = argument.integers(_OPERATION, "shape", shape)
        if min(sizes, default=0) < 0:
            raise InvalidArgument(_OPERATION, f"shape is {tuple(sizes)}, and must have sizes from 0 on")
        count = math.prod(sizes)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.shape[0] < count:
            buffer = self._buffers[key] = Tensor.zeros((count,), dtype=key[1], device=self.device)
        return buffer[:count].reshape(*sizes)

    @property
    def size_in_bytes(self) -> int:
        """The bytes of all of them."""
        return sum(tensor.shape[0] * dtype.itemsize for (_, dtype), tensor in self._buffers.items())

    def clear(self) -> None:
        """Free all buffers that no tensor uses."""
        self._buffers.clear()

    def __repr__(self) -> str:
        return (
            f"<ScratchBufferManager of {len(self._buffers)} tensors, {self.size_in_bytes} bytes, {self.device.label}>"
        )
