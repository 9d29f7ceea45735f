"""Weights in blocks of GGML's formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .. import argument
from ..dtype import Array
from ..error import TallowError
from ..ggml_dtype import GgmlDType
from .base import StorageBase
from .quantized import QuantizedMethods

if TYPE_CHECKING:
    from ..device import Device


class QStorage(QuantizedMethods):
    """Weights in blocks on one device: `dtype` is their format, `length` how many there are.

    QStorage(inner) dispatches to `inner`, the blocks of a backend. What a method makes is an ordinary storage.
    """

    __slots__ = ()

    @classmethod
    def zeros(cls, device: Device, elem_count: int, dtype: GgmlDType | str) -> QStorage:
        """Blocks of zero bytes, of `elem_count` weights. Raises InvalidArgument, OutOfMemory."""
        return _on("zeros", device, lambda: device.quantized_zeros(elem_count, dtype))

    @classmethod
    def from_data(cls, data: bytes | bytearray | memoryview | Array, device: Device, dtype: GgmlDType | str) -> QStorage:
        """A copy of blocks as files have them, given by their bytes. Raises InvalidArgument, OutOfMemory."""
        try:
            held = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        except (TypeError, ValueError):
            raise argument.wrong_type("from_data", "data", data, "bytes") from None
        return _on("from_data", device, lambda: device.quantized_from_data(held, dtype))

    def __repr__(self) -> str:
        return f"QStorage({self.length}, {self.dtype}, {self.device.label})"


def _on(op: str, device: object, make: Callable[[], QStorage]) -> QStorage:
    """What is made on a device; errors name `op`."""
    if not isinstance(device, StorageBase.device_class):
        raise argument.wrong_type(op, "device", device, "Device")
    try:
        return make()
    except TallowError as error:
        error.rename(op)
        raise
